"""Read exports back as their consumers do, a file per form."""
