"""RAM and RAM++: what is in an image, by name."""
