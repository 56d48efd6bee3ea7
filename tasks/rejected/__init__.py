"""Rejected sides of preferences: false texts about a pair, images with an element removed."""
