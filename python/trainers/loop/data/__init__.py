"""Batches: their sources, structure and transfer."""
