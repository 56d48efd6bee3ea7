"""Tables on disk: parts, journals, what is owed, snapshots. The only writer of a dataset's
folder.
"""
