"""The parts of `benchmarks.loop`."""
