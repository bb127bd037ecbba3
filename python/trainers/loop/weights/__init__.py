"""Initial weights, moving averages and the best weights."""
