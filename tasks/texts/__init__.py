"""Parsers, checks and wordings of the texts that models and people write."""
