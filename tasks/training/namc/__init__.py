"""Train NAMC, the captioner of differences (paper 001), on a run's frozen rows."""
