"""Data parallelism: process groups and the values that they exchange."""
