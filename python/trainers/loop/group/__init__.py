"""Data parallelism: how the processes of a group work together."""
