"""Quantra's training half: how a forecaster comes to be."""
