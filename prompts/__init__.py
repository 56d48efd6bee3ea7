"""What we say to models: one Jinja file each, read through ``load``."""
