"""Downloads that reach public addresses only."""
