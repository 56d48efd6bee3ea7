"""Write static pages that show a dataset."""
