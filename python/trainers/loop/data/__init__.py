"""Batches: where they come from and what they are made of."""
