"""Checkpoints: what a training needs to go on exactly where it was, and when it is written."""
