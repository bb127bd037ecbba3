"""What an exported file is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One input or output of the graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """A name stands for a number that each call chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A file that was written, and what its graph reads and gives."""

    file: Path
    size: int
    """Bytes."""
    opset: int
    """Version of ONNX's operators that whoever runs the file must know."""
    inputs: tuple[Port, ...]
    absent: tuple[str, ...]
    """Groups of inputs that the model has no features in, and that the graph therefore does not take."""
    outputs: tuple[Port, ...]
    metadata: Mapping[str, str]
    """What the file says of itself; lists are JSON."""
    difference: float
    """Largest difference from the model's own answers to the golden instance, in the target's unit."""
