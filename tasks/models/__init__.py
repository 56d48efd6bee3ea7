"""Models behind Protocols: descriptors, search, inpainting. With tasks.serving the only place that loads heavy libraries."""
