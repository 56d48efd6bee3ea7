"""Versions of a dataset: open, count, show, filter, export, remove."""
