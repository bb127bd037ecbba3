"""The kinds there are, by the names that artifacts and the command line use: one line each, closed and constant."""

from collections.abc import Mapping

from predictor.errors import ConfigurationError
from predictor.networks.graph import GRAPH
from predictor.networks.kind import NetworkKind
from predictor.networks.recurrent import GRU, HYBRID, LSTM
from predictor.networks.tft import TFT
from predictor.networks.unconditional import GARCH, HAR

_NETWORKS = (
    LSTM,
    GRU,
    HYBRID,
    TFT,
    GRAPH,
    HAR,
    GARCH,
)

KINDS: Mapping[str, NetworkKind] = {kind.name: kind for kind in _NETWORKS}


def kind_named(name: str) -> NetworkKind:
    """The kind of that name.

    Raises:
        ConfigurationError: there is none; the message lists those that exist.
    """
    if name not in KINDS:
        raise ConfigurationError(f"there is no network kind {name!r}; the kinds are {sorted(KINDS)}")
    return KINDS[name]
