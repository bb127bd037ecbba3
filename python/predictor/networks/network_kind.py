"""Network kinds: name, settings, constructor and training defaults; the forecaster of adopted models."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.flags import Dataclass
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.target import Target, TargetKind

Setting = int | float | str | bool

NetworkConfig = Dataclass
"""Settings of a kind: a frozen dataclass whose fields all have defaults of their type."""


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
        is_trainable: whether an optimizer trains its weights in epochs; if not, they are computed before.
        is_scale_only: whether the forecast is its scale, which has the kind's name.
        is_adopted: whether its weights come from another project, so that it cannot be trained here.
        training: default training settings.
    """

    name: str
    version: int
    config: type[NetworkConfig]
    build: Callable[..., nn.Module]
    arithmetic: Mapping[str, str | float]
    is_panel_model: bool = False
    is_trainable: bool = True
    is_scale_only: bool = False
    is_adopted: bool = False
    training: TrainingDefaults = TrainingDefaults()


def make_config(kind: NetworkKind, settings: Mapping[str, Setting]) -> NetworkConfig:
    """The kind's default settings, overridden by `settings`.

    Raises:
        ConfigurationError: a setting is unknown, of another type, or out of range.
    """
    return read_config(kind, {**list_config_settings(kind.config()), **settings})


def read_config(kind: NetworkKind, settings: Mapping[str, Setting]) -> NetworkConfig:
    """Read all settings from an artifact.

    Raises:
        ConfigurationError: a setting is missing, unknown or of another type.
    """
    known = {field.name: field for field in fields(kind.config)}
    _check_names(kind, set(settings), set(known))
    for name, value in settings.items():
        _check_type(kind, known[name], value)
    return kind.config(**settings)  # pyright: ignore[reportArgumentType] - every type was just checked


def list_config_settings(config: NetworkConfig) -> dict[str, Setting]:
    """All settings by name, for an artifact."""
    return asdict(config)


def build_network(
    kind: NetworkKind, config: NetworkConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]
) -> nn.Module:
    """A network with new weights, in train mode."""
    return kind.build(config, sizes=sizes, target=target, levels=levels)


def _check_names(kind: NetworkKind, given_names: set[str], known_names: set[str]) -> None:
    faults = (("has no setting", given_names - known_names), ("lacks the setting", known_names - given_names))
    problems = [f"{fault} {', '.join(map(repr, sorted(names)))}" for fault, names in faults if names]
    if problems:
        settings = f"its settings are {', '.join(sorted(known_names))}" if known_names else "it has no settings"
        raise ConfigurationError(f"network {kind.name!r} {' and '.join(problems)}; {settings}")


def _check_type(kind: NetworkKind, field: "Field[Setting]", value: Setting) -> None:
    expected_type = type(field.default)
    is_whole = expected_type is float and type(value) is int  # other writers of JSON may write 0 for 0.0
    if field.default is MISSING or not (type(value) is expected_type or is_whole):
        raise ConfigurationError(
            f"network {kind.name!r}: {field.name} is {value!r}, but must be of type {expected_type.__name__}"
        )


class AdoptedForecaster(nn.Module):
    """A model that others trained, which forecasts log returns from the last close.

    Raises:
        ConfigurationError: the target is another one, or the model reads or forecasts fewer sessions.
    """

    def __init__(self, target: Target, sizes: InputSizes, *, longest: int, reach: int) -> None:
        """Check the target and lengths; the model reads at most `longest` sessions and forecasts `reach`."""
        super().__init__()
        if target.kind is not TargetKind.LOG_RETURN or target.lag:
            raise ConfigurationError(
                f"the target is {target}, but an adopted model forecasts log returns from the last close (lag 0)"
            )
        if target.horizons[-1] > reach:
            raise ConfigurationError(
                f"horizon {target.horizons[-1]} is beyond the {reach} sessions that the model forecasts; choose "
                "shorter horizons"
            )
        if sizes.encoder_length > longest:
            raise ConfigurationError(
                f"encoder length is {sizes.encoder_length}, but the model reads at most {longest} sessions"
            )
        self.days: Final = [horizon - 1 for horizon in target.horizons]
        self.spread: Final = torch.from_numpy(target.spread)

    def quantiles(self, inputs: Inputs) -> Tensor:
        """Rising quantiles [N, H, Q] float64 of the log returns."""
        raise NotImplementedError

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float64 in units of the window's scale."""
        unit = inputs.scale * self.spread.to(inputs.scale.device)
        return (self.quantiles(inputs) - inputs.location[..., None]) / unit[..., None]
