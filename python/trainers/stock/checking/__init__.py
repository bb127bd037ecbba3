"""`quantra check`: what a file of bars holds, before anything is trained on it."""
