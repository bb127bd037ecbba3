"""The parts of `benchmarks.diffusion`."""
