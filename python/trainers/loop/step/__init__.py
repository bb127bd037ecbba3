"""One optimizer step: forward and backward of an accumulation window, update, and checks."""
