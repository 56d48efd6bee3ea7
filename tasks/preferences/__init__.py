"""Build preferences of chosen and rejected sides, and split them."""
