"""Common parts of all pages: frame, style sheet, charts."""
