"""Adoption of models that others trained: a local folder of config and safetensors becomes an artifact."""
