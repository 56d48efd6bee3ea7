"""The forms of export, a file each."""
