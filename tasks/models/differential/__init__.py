"""Differential perception: a vision-language model sees what differs between two images (paper 002, M3Diff)."""
