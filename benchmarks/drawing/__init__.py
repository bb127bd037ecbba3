"""What the rows of `benchmarks.diffusion` are measured with."""
