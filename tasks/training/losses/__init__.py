"""The objectives: pure functions of log-probabilities, ``loss(policy, reference, config) -> Loss``."""
