"""What all pages have in common: their frame, their looks, their numbers."""
