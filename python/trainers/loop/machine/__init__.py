"""The machine: its devices, precisions, memory and generators."""
