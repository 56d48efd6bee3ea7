"""Audits: what texts and checks are worth on planted changes, whose truth is known."""
