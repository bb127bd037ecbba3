"""Network kinds: name, settings, constructor, interfaces and training defaults."""

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
    """Settings of a kind: a frozen dataclass whose fields all have defaults of their type."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@runtime_checkable
class PanelConfig(Protocol):
    """Settings of a kind that reads several stocks of a panel."""

    @property
    def neighbours(self) -> int:
        """Number of stocks that each stock can attend to."""
        ...


class ForecastNetwork(Protocol):
    """A network that forecasts each row separately, with a head that can start at fixed quantiles."""

    head: QuantileHead

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's scale."""
        ...


@runtime_checkable
class PanelForecastNetwork(Protocol):
    """A network that reads several stocks of a panel.

    A forecast depends only on its own row and on those of its stock's k neighbours.

    All members are attributes of the class: from Python 3.12, `isinstance` does not see buffers and submodules, which
    come from a module's `__getattr__`.
    """

    @property
    def adjacency(self) -> Tensor:
        """int64 [U, k] index of each stock's neighbours in the universe, -1 = none."""
        ...

    @property
    def has_equal_scores(self) -> bool:
        """Whether every stock has the same score."""
        ...

    def equalize_scores(self) -> None:
        """Give every stock the same score."""
        ...

    def connect(self, edges: Edges) -> None:
        """Set the edges of the graph; they are saved with the weights."""
        ...

    def forward(self, inputs: Inputs, nodes: Tensor, panels: int = 1) -> PanelOutput:
        """Quantiles and scores of N = panels x S rows, panel by panel; `nodes` int64 [N], -1 = unknown stock."""
        ...


class Internals(NamedTuple):
    """Selection and attention weights of a network; they sum to 1 along the last axis.

    They show what the network attended to, not what moved the forecast. Legend: N rows, T encoder sessions, D future
    sessions, H horizons, F observed, K known features, V static variables.
    """

    past: Tensor
    """[N, T, F + K + 1] selection weights of observed features, known features and the share of known cells."""
    future: Tensor
    """[N, D, K] selection weights of the known features."""
    static: Tensor
    """[N, V] selection weights of the static variables."""
    attention: Tensor
    """[N, H, T + D] attention of each horizon's last session, mean of the heads."""


@runtime_checkable
class IntrospectiveNetwork(Protocol):
    """A network that also returns its selection and attention weights."""

    def with_internals(self, inputs: Inputs) -> tuple[Tensor, Internals]:
        """Quantiles [N, H, Q] as from `forward`, and the weights of the inputs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDefaults:
    """Default training settings of a kind; the recipe can override each."""

    max_epochs: int = 40
    learning_rate: float = 3e-4
    weight_decay: float = 0.1
    schedule: Literal["constant", "cosine"] = "constant"
    ema: float | None = None


@dataclass(frozen=True, slots=True)
class NetworkKind:
    """A kind of network: its settings and its constructor.

    Attributes:
        name: name in artifacts and on the command line.
        version: increases when the same settings mean another network.
        config: class of the settings.
        build: constructor.
        arithmetic: all other conventions that the numbers depend on; an artifact states them in full, and an artifact
            with different ones is rejected.
        is_panel_model: whether the forecast of a symbol depends on others of its panel.
        learns: whether it has trained weights; otherwise the forecast is its scale, which has the kind's name.
        training: default training settings.
    """

    name: str
    version: int
    config: type[NetworkConfig]
    build: Callable[..., nn.Module]
    arithmetic: Mapping[str, str | float]
    is_panel_model: bool = False
    learns: bool = True
    training: TrainingDefaults = TrainingDefaults()


def make_config(kind: NetworkKind, given: Mapping[str, Setting]) -> NetworkConfig:
    """The kind's default settings, overridden by `given`.

    Raises:
        ConfigurationError: a setting is unknown, of another type, or out of range.
    """
    return config_from_settings(kind, {**settings_from_config(kind.config()), **given})


def config_from_settings(kind: NetworkKind, settings: Mapping[str, Setting]) -> NetworkConfig:
    """Read all settings from an artifact.

    Raises:
        ConfigurationError: a setting is missing, unknown or of another type.
    """
    known = {field.name: field for field in fields(kind.config)}
    _check_names(kind, set(settings), set(known))
    for name, value in settings.items():
        _check_type(kind, known[name], value)
    return kind.config(**settings)  # pyright: ignore[reportArgumentType] - every type was just checked


def settings_from_config(config: NetworkConfig) -> dict[str, Setting]:
    """All settings by name, for an artifact."""
    return asdict(config)


def build_network(
    kind: NetworkKind, config: NetworkConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]
) -> nn.Module:
    """A network with new weights, in train mode."""
    return kind.build(config, sizes=sizes, target=target, levels=levels)


def _check_names(kind: NetworkKind, given: set[str], known: set[str]) -> None:
    faults = (("has no setting", given - known), ("lacks the setting", known - given))
    problems = [f"{fault} {', '.join(map(repr, sorted(names)))}" for fault, names in faults if names]
    if problems:
        settings = f"its settings are {', '.join(sorted(known))}" if known else "it has no settings"
        raise ConfigurationError(f"network {kind.name!r} {' and '.join(problems)}; {settings}")


def _check_type(kind: NetworkKind, field: "Field[Setting]", value: Setting) -> None:
    expected_type = type(field.default)
    is_whole = expected_type is float and type(value) is int  # other writers of JSON may write 0 for 0.0
    if field.default is MISSING or not (type(value) is expected_type or is_whole):
        raise ConfigurationError(
            f"network {kind.name!r}: {field.name} is {value!r}, but must be of type {expected_type.__name__}"
        )
