"""The verbs of the command line: one a function, grouped by what they are for; each names an example."""
