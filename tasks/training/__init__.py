"""Train vision-language models on a dataset's preferences."""
