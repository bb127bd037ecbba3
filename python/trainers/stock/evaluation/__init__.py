"""How good forecasts are on days that no training has seen: scores, baselines, calibration, and what of it is luck.

Each module is imported by its own name, because training itself scores by them.
"""
