"""Data parallelism: what the processes of a group say to each other."""
