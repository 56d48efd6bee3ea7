"""LaMa: holes are filled from their surroundings."""
