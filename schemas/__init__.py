"""Rows and their Arrow schemas, configuration, errors; imports nothing else of Pairwright."""
