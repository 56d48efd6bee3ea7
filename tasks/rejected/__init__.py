"""Make what a preference rejects: texts that are wrong for their pair, images with an element removed."""
