"""The parts of `benchmarks.dotnet`."""
