"""Build a dataset: plan, run, find the models, show progress."""
