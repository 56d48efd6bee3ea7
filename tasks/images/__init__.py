"""Pixels: decode and encode images; masks."""
