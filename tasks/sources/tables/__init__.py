"""Parquet and Arrow tables, and what their cells spell."""
