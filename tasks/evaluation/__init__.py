"""Score captions against references, and models on benchmarks."""
