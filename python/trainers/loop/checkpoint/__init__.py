"""Checkpoints: the state that a run needs to resume exactly, and when it is saved."""
