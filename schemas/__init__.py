"""What flows between the steps: rows, their Arrow schemas, configuration and errors. Imports
nothing of ours.
"""
