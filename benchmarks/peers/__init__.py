"""Programs that run in the environments of peer libraries."""
