"""The HTTP server: the calls of quantra.v1 as JSON. Needs the extra `ui`."""
