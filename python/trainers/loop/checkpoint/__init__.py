"""Checkpoints: saving a training run, and resuming it exactly."""
