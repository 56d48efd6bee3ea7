"""Read images from where they are: folders, rendered scenes."""
