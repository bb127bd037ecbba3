"""What the project promises in numbers, measured anew: `python -m benchmarks.NAME [--quick] [--json FILE]`."""
