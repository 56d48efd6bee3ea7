"""Grounding DINO: boxes for tags."""
