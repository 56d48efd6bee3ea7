"""The benchmarks: questions and truths of published files, and of datasets of Pairwright."""
