"""Checkpoints: what a training needs to resume exactly where it was, and when that is saved."""
