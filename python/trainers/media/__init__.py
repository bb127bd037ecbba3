"""Code shared by the speech and image trainers: console output, metadata, pages and run directories."""
