"""Find pairs of images that look alike: vectors, neighbours, pairs."""
