"""The accumulation window: forward, backward, step and checks."""
