"""Conversion between the KServe v2 inference protocol and domain values: instances and forecasts."""
