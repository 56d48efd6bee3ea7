"""Pages that show a dataset: a static report, and pages served to browse, judge and decide."""
