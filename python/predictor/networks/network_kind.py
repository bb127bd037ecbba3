"""What a kind of network is: its name, settings and constructor, what it offers, and how it is trained as a rule."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.networks.inputs import Edges, Inputs, InputSizes
from predictor.networks.output import PanelOutput, QuantileHead
from predictor.networks.target import Target

Setting = int | float | str | bool


class NetworkConfig(Protocol):
    """The settings of a kind: a frozen dataclass whose fields all have defaults of their own type."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@runtime_checkable
class PanelConfig(Protocol):
    """The settings of a kind that looks across the stocks of a panel."""

    @property
    def neighbours(self) -> int:
        """Stocks that each one can look at."""
        ...


class ForecastNetwork(Protocol):
    """What a network that reads row by row offers: quantiles, and a head that can start at given ones."""

    head: QuantileHead

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's scale."""
        ...


@runtime_checkable
class PanelForecastNetwork(Protocol):
    """What a network that looks across the stocks of a panel offers.

    A forecast depends on its own row and on those of the k neighbours of its stock, and on no others.

    All of it is what a class has itself: from Python 3.12 on, `isinstance` sees nothing of what a module keeps as
    a buffer or a part, which only its `__getattr__` gives.
    """

    @property
    def adjacency(self) -> Tensor:
        """int64 [U, k] place of each stock's neighbours in the universe, -1 = none."""
        ...

    @property
    def ranks_nobody(self) -> bool:
        """Whether every stock has the same score."""
        ...

    def rank_nobody(self) -> None:
        """Give every stock the same score."""
        ...

    def connect(self, edges: Edges) -> None:
        """Lay the edges of the graph; they are saved with the weights."""
        ...

    def forward(self, inputs: Inputs, nodes: Tensor, panels: int = 1) -> PanelOutput:
        """Quantiles and scores of N = panels x S rows, panel by panel; `nodes` int64 [N], -1 = unknown stock."""
        ...


class Internals(NamedTuple):
    """The weights by which the network selects and attends; along the last axis they sum to 1.

    They show what the network attended to, not what moved the forecast. Legend: N rows, T encoder sessions, D future
    sessions, H horizons, F observed, K known features, V static variables.
    """

    past: Tensor
    """[N, T, F + K + 1] selection weights of the observed features, the known features, the share of known cells."""
    future: Tensor
    """[N, D, K] selection weights of the known features."""
    static: Tensor
    """[N, V] selection weights of the static variables."""
    attention: Tensor
    """[N, H, T + D] what the session that a horizon ends on attends to, mean of the heads."""


@runtime_checkable
class IntrospectiveNetwork(Protocol):
    """What a network offers that shows what it attended to, beside its quantiles."""

    def with_internals(self, inputs: Inputs) -> tuple[Tensor, Internals]:
        """Quantiles [N, H, Q] as `forward` gives them, and the weights that the network gave to its inputs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDefaults:
    """What a network is trained with where nothing else is asked for; each is a setting of the recipe."""

    max_epochs: int = 40
    learning_rate: float = 3e-4
    weight_decay: float = 0.1
    schedule: Literal["constant", "cosine"] = "constant"
    ema: float | None = None


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
        learns: whether it has weights that are trained; else it is its scale alone, which has the kind's name.
        training: how it is trained where nothing else is asked for.
    """

    name: str
    version: int
    config: type[NetworkConfig]
    build: Callable[..., nn.Module]
    arithmetic: Mapping[str, str | float]
    is_panel_model: bool = False
    learns: bool = True
    training: TrainingDefaults = TrainingDefaults()


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
    _check_names(kind, set(settings), set(known))
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


def _check_names(kind: NetworkKind, given: set[str], known: set[str]) -> None:
    faults = (("has no setting", given - known), ("lacks the setting", known - given))
    problems = [f"{fault} {', '.join(map(repr, sorted(names)))}" for fault, names in faults if names]
    if problems:
        settings = f"its settings are {', '.join(sorted(known))}" if known else "it has no settings"
        raise ConfigurationError(f"network {kind.name!r} {' and '.join(problems)}; {settings}")


def _check_type(kind: NetworkKind, field: "Field[Setting]", value: Setting) -> None:
    want = type(field.default)
    whole = want is float and type(value) is int  # JSON of other writers may say 0 for 0.0
    if field.default is MISSING or not (type(value) is want or whole):
        raise ConfigurationError(
            f"network {kind.name!r}: {field.name} is {value!r}, but must be of type {want.__name__}"
        )
