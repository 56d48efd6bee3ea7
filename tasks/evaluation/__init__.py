"""Evaluation: scores of written captions against references."""
