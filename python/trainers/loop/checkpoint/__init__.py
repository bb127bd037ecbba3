"""Checkpoints: saving a training, and resuming it exactly."""
