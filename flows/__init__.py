"""Orchestration: flows, the command line, profiles. No arithmetic, no tables."""
