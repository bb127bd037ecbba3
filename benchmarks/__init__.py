"""Measurements of the numbers that the project promises: `python -m benchmarks.NAME [--quick] [--json FILE]`."""
