"""GRPO by TRL's trainer, with rewards that are exact by scene graphs."""
