"""Train vision-language models on preferences, off the shards."""
