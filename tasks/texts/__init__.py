"""Read texts that models and people wrote: their parts, their sentences and words, and why they will not do."""
