"""Models behind Protocols: descriptors, encoders, search; the only place of heavy libraries."""
