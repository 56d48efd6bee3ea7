"""Readers of sources: each lists items and reads them."""
