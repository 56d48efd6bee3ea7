"""Train and evaluate models on a dataset."""
