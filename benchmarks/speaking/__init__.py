"""The parts of `benchmarks.speech`."""
