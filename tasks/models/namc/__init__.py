"""NAMC (Noise-Aware Modeling and Captioning), the captioner of differences that reads noisy descriptions."""
