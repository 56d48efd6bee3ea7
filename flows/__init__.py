"""What runs, in which order: the flow, the command line, the profiles. No arithmetic, no tables."""
