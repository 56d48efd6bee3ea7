"""Describe images and pairs: captions, implicit-change descriptions, comparisons, questions."""
