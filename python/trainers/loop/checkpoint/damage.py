"""A checkpoint that is not what was written."""

from trainers.loop.errors import CheckpointError


class DamagedError(CheckpointError):
    """A checkpoint whose files are missing, changed or unreadable; the message says which and how."""
