"""Quantra's deployed half: what a forecaster is, and how it is asked."""
