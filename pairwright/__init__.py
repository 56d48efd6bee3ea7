"""Pairwright: synthetic image-difference and preference datasets, and the training that uses them."""
