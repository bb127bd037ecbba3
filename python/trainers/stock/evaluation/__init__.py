"""How good forecasts are on days that no training has seen: scores, baselines, calibration, and the role of luck.

Each module is imported by its own name, because training itself scores by them.
"""
