"""Tables on disk: parts, journals, pending rows, snapshots; the only writer of a dataset."""
