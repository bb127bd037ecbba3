"""What `benchmarks.loop` measures: hand-written training loops and ours, at the same work."""
