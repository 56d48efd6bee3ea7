"""Models behind Protocols: descriptors, search, inpainting. Heavy libraries are loaded here, when they are used."""
