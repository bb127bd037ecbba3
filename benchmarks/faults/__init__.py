"""Load and hostile requests against a real server process: memory, latency and errors."""
