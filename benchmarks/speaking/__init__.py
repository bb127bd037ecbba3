"""What the rows of `benchmarks.speech` are measured with."""
