"""Put chosen and rejected sides together, and split them."""
