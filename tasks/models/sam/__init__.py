"""SAM: masks of boxes."""
