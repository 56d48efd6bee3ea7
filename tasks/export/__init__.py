"""Write datasets in the forms that other programs read."""
