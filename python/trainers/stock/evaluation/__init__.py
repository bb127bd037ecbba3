"""Evaluation on held-out days: scores, baselines, calibration and uncertainty.

Import the modules directly; training uses some of them too.
"""
