"""The names of a checkpoint's files."""

META = "meta.json"
STATE = "state.pt"
SUFFIX = ".safetensors"
