"""The parts of `benchmarks.serving`."""
