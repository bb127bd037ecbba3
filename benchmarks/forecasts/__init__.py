"""Forecast accuracy of our networks, other libraries and baselines on the same windows."""
