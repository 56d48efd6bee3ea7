"""Weights ahead of a build: found, downloaded, taken up, verified."""
