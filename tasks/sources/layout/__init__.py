"""Folders of images with annotation files: records, paths, pairs."""
