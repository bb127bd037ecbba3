"""Bounds for what an artifact may ask to be built; far beyond what daily bars can teach."""

from typing import Annotated, Final

from predictor.errors import ConfigurationError
from predictor.flags import Flag

MOST_HIDDEN: Final = 4096
MOST_LAYERS: Final = 16
MOST_HEADS: Final = 64

_OWN: Final = "the kind's own"
Hidden = Annotated[int, Flag("Width of the network.", own=_OWN)]
Layers = Annotated[int, Flag("Recurrent layers.", own=_OWN)]
Blocks = Annotated[int, Flag("Transformer layers of the hybrid.", own=_OWN)]
Heads = Annotated[int, Flag("Attention heads.", own=_OWN)]
Neighbours = Annotated[int, Flag("Edges per stock of the graph.", own=_OWN)]
Dropout = Annotated[float, Flag("Share dropped in training.", own=_OWN)]


def check_whole(name: str, value: int, most: int, *, least: int = 1) -> None:
    """Raise ConfigurationError, naming the setting, unless it lies between `least` and `most`."""
    if not least <= value <= most:
        raise ConfigurationError(f"{name} is {value}, but must be {least} to {most}")


def check_dropout(dropout: float) -> None:
    """Raise ConfigurationError unless the share lies in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ConfigurationError(f"dropout is {dropout:g}, but must be at least 0 and below 1")


def check_heads(heads: int, hidden: int) -> None:
    """Raise ConfigurationError unless attention of that width divides into so many heads."""
    check_whole("heads", heads, MOST_HEADS)
    if hidden % heads:
        raise ConfigurationError(f"hidden is {hidden}, but must be a multiple of heads, {heads}")
