"""The kinds of network there are, by the names that artifacts and the command line use."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.networks.graph import GRAPH_ARITHMETIC, GraphConfig, GraphForecaster
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.output import PanelOutput, QuantileHead
from predictor.networks.recurrent import (
    GRU_ARITHMETIC,
    HYBRID_ARITHMETIC,
    LSTM_ARITHMETIC,
    GRUConfig,
    GRUForecaster,
    HybridConfig,
    HybridForecaster,
    LSTMConfig,
    LSTMForecaster,
)
from predictor.networks.target import Target
from predictor.networks.tft import TFT_ARITHMETIC, Internals, TFTConfig, TFTForecaster
from predictor.networks.unconditional import UNCONDITIONAL_ARITHMETIC, UnconditionalConfig, UnconditionalForecaster

Setting = int | float | str | bool
NetworkConfig = LSTMConfig | GRUConfig | HybridConfig | TFTConfig | GraphConfig | UnconditionalConfig


@runtime_checkable
class Forecasting(Protocol):
    """What a network that reads row by row offers: quantiles, and a head that can start at given ones."""

    head: QuantileHead

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's scale."""
        ...


@runtime_checkable
class PanelForecasting(Protocol):
    """What a network that looks across the stocks of a panel offers.

    A forecast depends on its own row and on those of the k neighbours of its stock, and on no others.
    """

    head: QuantileHead
    neighbours: Tensor
    """int64 [U, k] place of each stock's neighbours in the universe, -1 = none."""

    def forward(self, inputs: Inputs, nodes: Tensor, panels: int = 1) -> PanelOutput:
        """Quantiles and scores of N = panels x S rows, panel by panel; `nodes` int64 [N], -1 = unknown stock."""
        ...


@runtime_checkable
class Introspective(Protocol):
    """What a network offers that tells what it turned to, beside its quantiles."""

    def with_internals(self, inputs: Inputs) -> tuple[Tensor, Internals]:
        """Quantiles [N, H, Q] as `forward` gives them, and the weights that the network gave to its inputs."""
        ...


@dataclass(frozen=True, slots=True)
class NetworkKind:
    """A kind of network: its settings and its constructor.

    Attributes:
        name: as in artifacts and on the command line.
        version: rises when the same settings mean another network.
        config: the settings.
        build: the constructor.
        arithmetic: everything else that the numbers depend on; an artifact states it in full, and one that states
            something else is refused.
        is_panel_model: whether a forecast of one symbol depends on the others of its panel.
        learns: whether it has weights that are trained; else it is its scale alone.
    """

    name: str
    version: int
    config: type[NetworkConfig]
    build: Callable[..., nn.Module]
    arithmetic: Mapping[str, str | float]
    is_panel_model: bool = False
    learns: bool = True


_TABLE = (
    NetworkKind("lstm", 1, LSTMConfig, LSTMForecaster, LSTM_ARITHMETIC),
    NetworkKind("gru", 1, GRUConfig, GRUForecaster, GRU_ARITHMETIC),
    NetworkKind("hybrid", 1, HybridConfig, HybridForecaster, HYBRID_ARITHMETIC),
    NetworkKind("tft", 1, TFTConfig, TFTForecaster, TFT_ARITHMETIC),
    NetworkKind("graph", 1, GraphConfig, GraphForecaster, GRAPH_ARITHMETIC, is_panel_model=True),
    NetworkKind("har", 1, UnconditionalConfig, UnconditionalForecaster, UNCONDITIONAL_ARITHMETIC, learns=False),
    NetworkKind("garch", 1, UnconditionalConfig, UnconditionalForecaster, UNCONDITIONAL_ARITHMETIC, learns=False),
)

KINDS: Mapping[str, NetworkKind] = {kind.name: kind for kind in _TABLE}


def kind_named(name: str) -> NetworkKind:
    """The kind of that name.

    Raises:
        ConfigurationError: there is none; the message lists those that exist.
    """
    if name not in KINDS:
        raise ConfigurationError(f"there is no network kind {name!r}; the kinds are {sorted(KINDS)}")
    return KINDS[name]


def configured(kind: NetworkKind, given: Mapping[str, Setting]) -> NetworkConfig:
    """The kind's own settings with those that are given in their place.

    Raises:
        ConfigurationError: a setting is none of the kind's, of another type, or cannot be.
    """
    return read_config(kind, {**write_config(kind.config()), **given})


def read_config(kind: NetworkKind, settings: Mapping[str, Setting]) -> NetworkConfig:
    """Settings from an artifact: each must be named, known and of its own type.

    Raises:
        ConfigurationError: a setting is missing, unknown or of another type.
    """
    known = {field.name: field for field in fields(kind.config)}
    if set(settings) != set(known):
        raise ConfigurationError(
            f"network {kind.name!r}: missing {sorted(set(known) - set(settings))}, "
            f"unknown {sorted(set(settings) - set(known))}; its settings are {sorted(known)}"
        )
    for name, value in settings.items():
        _check_type(kind, known[name], value)
    return kind.config(**settings)  # pyright: ignore[reportArgumentType] - every type was just checked


def write_config(config: NetworkConfig) -> dict[str, Setting]:
    """Every setting by name, for an artifact."""
    return asdict(config)


def build_network(
    kind: NetworkKind, config: NetworkConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]
) -> nn.Module:
    """A network with fresh weights, in train mode."""
    return kind.build(config, sizes=sizes, target=target, levels=levels)


def _check_type(kind: NetworkKind, field: "Field[Setting]", value: Setting) -> None:
    want = type(field.default)
    whole = want is float and type(value) is int  # JSON of other writers may say 0 for 0.0
    if field.default is MISSING or not (type(value) is want or whole):
        raise ConfigurationError(
            f"network {kind.name!r}: {field.name} is {value!r}, but must be of type {want.__name__}"
        )
