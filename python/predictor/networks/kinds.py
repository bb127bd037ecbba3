"""Registry of network and normaliser kinds, by their names in artifacts, and the forecasters without a network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor, nn

from predictor.canonical import Json, Record
from predictor.errors import ConfigurationError
from predictor.networks.chronos import CHRONOS_2, CHRONOS_BOLT
from predictor.networks.econometric import FITTED
from predictor.networks.graph import GRAPH
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.kronos import KRONOS
from predictor.networks.network_kind import NetworkKind
from predictor.networks.normaliser import WINDOW, Normaliser, NormaliserKind
from predictor.networks.output import HEAD_ARITHMETIC, QuantileHead
from predictor.networks.recurrent import GRU, HYBRID, LSTM
from predictor.networks.target import Target
from predictor.networks.tft import TFT
from predictor.networks.trees import TREES

UNCONDITIONAL_ARITHMETIC: Final[Mapping[str, str | float]] = {"head": f"{HEAD_ARITHMETIC}, of the bias alone"}
"""Conventions that another implementation needs besides the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconditionalConfig:
    """An empty configuration."""


class UnconditionalForecaster(nn.Module):
    """A forecaster without a network: its quantiles are the head's bias, the same for every window."""

    def __init__(
        self,
        config: UnconditionalConfig,  # noqa: ARG002 - the signature of all networks
        *,
        sizes: InputSizes,  # noqa: ARG002
        target: Target,
        levels: tuple[float, ...],
    ) -> None:
        super().__init__()
        self.head = QuantileHead(0, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's scale."""
        return self.head.rising(self.head.bias.expand(inputs.observed.shape[0], -1, -1))


HAR: Final = NetworkKind(
    "har",
    1,
    UnconditionalConfig,
    UnconditionalForecaster,
    UNCONDITIONAL_ARITHMETIC,
    is_trainable=False,
    is_scale_only=True,
)
GARCH: Final = NetworkKind(
    "garch",
    1,
    UnconditionalConfig,
    UnconditionalForecaster,
    UNCONDITIONAL_ARITHMETIC,
    is_trainable=False,
    is_scale_only=True,
)

_NETWORKS = (
    LSTM,
    GRU,
    HYBRID,
    TFT,
    GRAPH,
    TREES,
    HAR,
    GARCH,
)

_NORMALISERS = (
    WINDOW,
    FITTED,
)

KINDS: Mapping[str, NetworkKind] = {kind.name: kind for kind in _NETWORKS}
"""Kinds that can be trained."""
ADOPTED_KINDS: Mapping[str, NetworkKind] = {kind.name: kind for kind in (CHRONOS_BOLT, CHRONOS_2, KRONOS)}
"""Kinds whose weights others trained."""
NORMALISERS: Mapping[str, NormaliserKind] = {kind.name: kind for kind in _NORMALISERS}


def get_kind(name: str) -> NetworkKind:
    """The kind of a name, which can be trained.

    Raises:
        ConfigurationError: the name is unknown; the message lists the kinds.
    """
    if name not in KINDS:
        raise ConfigurationError(f"unknown network kind {name!r}; choose one of {sorted(KINDS)}")
    return KINDS[name]


def get_stored_kind(name: str) -> NetworkKind:
    """The kind of a name in an artifact, which may be an adopted one; raises as `get_kind`."""
    return ADOPTED_KINDS[name] if name in ADOPTED_KINDS else get_kind(name)


def write_normaliser(normaliser: Normaliser) -> dict[str, Json]:
    """Write a normaliser for an artifact: its kind and all its settings.

    Raises:
        ConfigurationError: its kind is not registered.
    """
    if normaliser.kind not in NORMALISERS:
        raise ConfigurationError(f"a {type(normaliser).__name__} cannot be written to an artifact")
    return {"kind": normaliser.kind, **normaliser.settings()}


def read_normaliser(record: Record, target: Target, kind: str) -> Normaliser:
    """Read a normaliser of a kind from JSON.

    Raises:
        ArtifactError: a key is missing, unknown or of another type, or the kind is unknown.
        ConfigurationError: the numbers contradict each other or the target.
    """
    if kind not in NORMALISERS:
        raise record.make_error("kind", f"is {kind!r}, but must be {' or '.join(map(repr, NORMALISERS))}")
    normaliser = NORMALISERS[kind].read(record, target)
    record.end()
    return normaliser
