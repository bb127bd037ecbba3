"""Programs that run in the environments of other training libraries, with what `benchmarks.training` has."""
