"""Export datasets in the formats of other programs."""
