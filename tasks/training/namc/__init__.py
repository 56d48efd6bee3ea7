"""The training of NAMC."""
