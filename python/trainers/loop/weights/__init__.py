"""Initial weights, moving averages and best weights."""
