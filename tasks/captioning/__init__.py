"""Describe images and pairs in words: captions, implicit-change descriptions, commonalities and
differences.
"""
