"""Tars: their names, their members, hostile ones among them."""
