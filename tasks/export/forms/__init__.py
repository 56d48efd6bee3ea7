"""The forms of export, one file each."""
