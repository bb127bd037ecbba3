"""Weights: who trains which, and which were best."""
