"""Batches: sources, structure, splitting and transfer."""
