"""How each step works: one folder a stage, one file a step."""
