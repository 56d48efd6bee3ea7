"""Readers of what users bring: each lists items and reads one item."""
