"""The recipe of a stock model: every setting that affects the result of a training run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from math import inf, isfinite
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from predictor import canonical
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.flags import Flag, ParsedFlags, parse_numbers
from predictor.networks import (
    KINDS,
    WINDOW,
    GraphConfig,
    LSTMConfig,
    NetworkConfig,
    Normaliser,
    Target,
    TargetKind,
    TrainingDefaults,
    WindowNormaliser,
    check_quantiles,
    get_kind,
    list_config_settings,
    make_config,
    read_config,
    read_normaliser,
)
from predictor.windows import BarRequirements
from trainers.options import ComputationOptions
from trainers.stock.splits import PARTS, DataSplits, RollingSplits, SplitShares, parse_splits

FLATTEST_VOLATILITY = 0.1
"""Smallest deviation of a window's daily log volatility. It is usually 0.3 to 0.5, but near 0 for a new stock with few
sessions, and targets in units of that would be unbounded."""


def choose_window_normaliser(kind: TargetKind) -> WindowNormaliser:
    """The default normaliser of the scale `window` for a kind of target."""
    if kind is TargetKind.LOG_VOLATILITY:
        return WindowNormaliser(centred=True, decay=1.0, floor=FLATTEST_VOLATILITY)
    return WindowNormaliser()


Scale = Literal["window", "har", "garch", "mix"]
"""Units of targets: the window's own volatility, or a forecast by HAR, GARCH or both."""

_SCALES: Mapping[str, Scale] = {name: name for name in get_args(Scale)}


Schedule = Literal["constant", "cosine"]

USUAL: Final = TrainingDefaults()

WARMUP = 0.1
"""Share of all steps in which the cosine schedule rises."""


OWN: Final = "depends on the kind"


@dataclass(frozen=True, kw_only=True)
class Optimisation(ComputationOptions):
    """How the weights are optimised."""

    max_epochs: Annotated[int, Flag("Epochs at most.", name="epochs", minimum=1, shown_default=OWN)] = USUAL.max_epochs
    patience: Annotated[int, Flag("Epochs without a better selection loss before training stops.", minimum=1)] = 5
    batch_size: Annotated[int, Flag("Windows per micro-batch.", minimum=1)] = 64
    learning_rate: Annotated[float, Flag("Learning rate of AdamW.", shown_default=OWN)] = USUAL.learning_rate
    weight_decay: Annotated[float, Flag("Weight decay of AdamW.", shown_default=OWN)] = USUAL.weight_decay
    schedule: Annotated[Schedule, Flag("Learning rate over time: constant, or cosine to 0.", shown_default=OWN)] = (
        USUAL.schedule
    )
    """Cosine rises over the first tenth of all steps, then falls to 0 at the last."""
    ranking_weight: Annotated[
        float, Flag("Weight of the ranking loss, added to the quantile loss of a model that ranks stocks.")
    ] = 0.1

    def __post_init__(self) -> None:
        for name in ("max_epochs", "patience", "batch_size", "accumulate"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"{name} is {value}, but must be at least 1")
        if not 0 < self.learning_rate < 1:
            raise ConfigurationError(f"learning rate is {self.learning_rate:g}, but must be between 0 and 1")
        if not (0 <= self.weight_decay < inf and self.clip > 0):
            raise ConfigurationError(
                f"weight decay is {self.weight_decay:g} and clip {self.clip:g}, but the first must be at "
                "least 0 and finite, the second above 0"
            )
        if not 0 < self.ranking_weight < inf:
            raise ConfigurationError(f"ranking weight is {self.ranking_weight:g}, but must be above 0 and finite")
        if not 0 <= self.seed < 2**32:
            raise ConfigurationError(f"seed is {self.seed}, but must be between 0 and {2**32 - 1}")


def choose_default_optimisation(kind: str) -> Optimisation:
    """The default optimisation of a network kind."""
    return Optimisation(**asdict(get_kind(kind).training))


@dataclass(frozen=True, slots=True, kw_only=True)
class StockRecipe:
    """Every setting that a trained model depends on, besides the data."""

    kind: Annotated[str, Flag(f"Kind of model: {', '.join(KINDS)}.", name="model")] = "lstm"
    config: NetworkConfig = field(default_factory=LSTMConfig)
    target: Target = field(default_factory=Target)
    quantiles: Annotated[
        tuple[float, ...], Flag("Quantile levels between 0 and 1.", parse=partial(parse_numbers, "quantiles"))
    ] = (
        0.1,
        0.5,
        0.9,
    )
    encoder_length: Annotated[int, Flag("Sessions that the network reads.")] = 60
    scale: Annotated[
        Scale,
        Flag(
            "Units to learn in: har, garch or mix forecast each window's volatility, window measures it.",
            shown_default="har; garch: garch",
        ),
    ] = "har"
    """How a window's location and scale are measured; all but `window` are fitted on the training split."""
    normaliser: Normaliser | None = None
    """Of the scale `window`; None takes the default of the target's kind."""
    minimum: BarRequirements = field(default_factory=BarRequirements)
    """Bars that a symbol needs on a day to be used in training, evaluation and forecasts."""
    shares: SplitShares = field(default_factory=SplitShares)
    parts: Annotated[
        DataSplits | RollingSplits | None,
        Flag(
            "Sessions of train, selection, calibration and test: 2000-01-03/2007-12-31,…; rolling: the last sessions "
            "for selection and calibration, and no test; empty: by shares.",
            name="splits",
            metavar="FIRST/LAST,…|rolling",
            parse=parse_splits,
            none_text="",
        ),
    ] = None
    """The splits by their dates, or by their lengths from the end; None cuts the bars by `shares`."""
    calendar: Annotated[
        str,
        Flag(
            "Exchange code, such as XNYS; 24/7: every day of the week; weekdays: Monday to Friday; by default, the one "
            "that fits the dates.",
            parse=str,
        ),
    ] = ""
    optimisation: Optimisation = field(default_factory=Optimisation)

    def __post_init__(self) -> None:
        check_quantiles(self.quantiles)
        config_type = get_kind(self.kind).config
        if type(self.config) is not config_type:
            raise ConfigurationError(
                f"a network of kind {self.kind!r} takes {config_type.__name__}, not {self.config!r}"
            )
        if get_kind(self.kind).is_scale_only and self.scale != self.kind:
            raise ConfigurationError(
                f"model {self.kind} consists of its scale only, but the scale is {self.scale}; leave it out"
            )
        if self.normaliser is not None and self.scale != "window":
            raise ConfigurationError(f"settings of a window's normaliser are given, but the scale is {self.scale}")
        if self.scale in {"garch", "mix"} and self.target.kind is not TargetKind.LOG_RETURN:
            raise ConfigurationError(
                f"scale {self.scale} forecasts the volatility of returns, but the target is {self.target.kind}; use "
                "har or window"
            )

    @property
    def window_normaliser(self) -> Normaliser:
        """The normaliser of the scale `window`: the given one, or the default of the target's kind."""
        return self.normaliser or choose_window_normaliser(self.target.kind)

    def require_graph(self) -> GraphConfig:
        """Return the settings of the network's graph, for which edges are given.

        Raises:
            ConfigurationError: The network has no graph.
        """
        if not isinstance(self.config, GraphConfig):
            raise ConfigurationError(f"edges is given, but a network of kind {self.kind!r} has no graph; use graph")
        return self.config

    def splits(self, sessions: NDArray[np.int32]) -> DataSplits:
        """The parts of bars on these sessions [T]."""
        if isinstance(self.parts, RollingSplits):
            return self.parts.of(sessions)
        return DataSplits.by_shares(sessions, self.shares) if self.parts is None else self.parts

    def settings(self) -> Mapping[str, Json]:
        """Every setting by name, flat and as JSON; a clip of null means infinity."""
        network_settings = {f"network_{name}": value for name, value in list_config_settings(self.config).items()}
        scale: dict[str, Json] = {"scale": self.scale}
        if self.scale == "window":
            normaliser = self.window_normaliser
            # Cards of earlier versions do not name the kind of normaliser, because there was only one.
            if normaliser.kind != WINDOW.name:
                scale["normaliser_kind"] = normaliser.kind
            scale |= {f"normaliser_{name}": value for name, value in normaliser.settings().items()}
        splits: Mapping[str, Json]
        if self.parts is None:
            splits = {f"{SHARE}{name}": value for name, value in asdict(self.shares).items()}
        elif isinstance(self.parts, RollingSplits):
            splits = {f"{ROLLING}{name}": value for name, value in asdict(self.parts).items()}
        else:
            splits = {f"{SPLIT}{part.name}": [part.first, part.last] for part in self.parts.parts}
        return {
            "kind": self.kind,
            "target": self.target.kind.value,
            "horizons": list(self.target.horizons),
            "lag": self.target.lag,
            "quantiles": list(self.quantiles),
            "encoder_length": self.encoder_length,
            "calendar": self.calendar,
            **network_settings,
            **scale,
            **{f"minimum_{name}": value for name, value in asdict(self.minimum).items()},
            **splits,
            **asdict(self.optimisation),
            "clip": self.optimisation.clip if isfinite(self.optimisation.clip) else None,
        }


def recipe_of(kind: str) -> StockRecipe:
    """The default recipe of a network kind.

    Raises:
        ConfigurationError: the kind does not exist.
    """
    network_kind = get_kind(kind)
    # A kind without weights is a scale of the same name.
    # A ranking is known only after its close, so the returns of a model that ranks stocks start one session later.
    return StockRecipe(
        kind=kind,
        config=network_kind.config(),
        target=Target(lag=1 if network_kind.is_panel_model else 0),
        scale=_SCALES.get(kind, StockRecipe().scale),
        optimisation=choose_default_optimisation(kind),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeChanges:
    """Given settings, which override those of a recipe."""

    recipe: ParsedFlags[StockRecipe]
    target: ParsedFlags[Target]
    optimisation: ParsedFlags[Optimisation]
    network: ParsedFlags[NetworkConfig] = field(default_factory=ParsedFlags[NetworkConfig])

    @property
    def kind(self) -> str:
        """Kind of the network."""
        return self.recipe.value("kind", StockRecipe().kind)

    def over(self, recipe: StockRecipe) -> StockRecipe:
        """Apply the changes to a recipe.

        Raises:
            ConfigurationError: settings contradict each other, or the kind of network has no such setting.
        """
        nested = {
            "config": make_config(
                get_kind(recipe.kind), {**list_config_settings(recipe.config), **self.network.values}
            ),
            "target": self.target.over(recipe.target),
            "optimisation": self.optimisation.over(recipe.optimisation),
        }
        return ParsedFlags[StockRecipe]({**self.recipe.values, **nested}).over(recipe)


# Beginnings of the names of settings, by the part of the recipe.
NETWORK: Final = "network_"
NORMALISER: Final = "normaliser_"
MINIMUM: Final = "minimum_"
SHARE: Final = "share_"
SPLIT: Final = "split_"
ROLLING: Final = "rolling_"

ValueT = TypeVar("ValueT", SplitShares, RollingSplits, BarRequirements, Optimisation)


def read_recipe(settings: Json, source: str = "recipe") -> StockRecipe:
    """Parse the result of `StockRecipe.settings()`.

    `source` names the record in errors.

    Raises:
        ConfigurationError: a setting is missing, unknown, of another type or out of its range.
    """
    try:
        record = Record(settings, source)
        kind, text = record.text("kind"), record.text("target")
        choices = [target.value for target in TargetKind]
        if text not in choices:
            raise record.make_error("target", f"is {text!r}, but must be one of {choices}")
        target = Target(kind=TargetKind(text), lag=record.integer("lag"), horizons=record.integers("horizons"))
        scale: Scale = _read_value(record, "scale", Scale) if record.has("scale") else "window"
        normaliser = None
        if scale == "window":
            group = record.group(NORMALISER)
            normaliser = read_normaliser(group, target, group.text("kind") if group.has("kind") else WINDOW.name)
        minimum = BarRequirements()
        if record.has(f"{MINIMUM}values"):
            minimum = _read_values(BarRequirements, record, MINIMUM)
        recipe = StockRecipe(
            kind=kind,
            config=_read_config(kind, record),
            target=target,
            quantiles=record.numbers("quantiles"),
            encoder_length=record.integer("encoder_length"),
            calendar=record.text("calendar"),
            scale=scale,
            normaliser=normaliser,
            minimum=minimum,
            optimisation=_read_values(Optimisation, record, ""),
            **_read_splitting(record),
        )
        record.end()
    except ArtifactError as error:
        raise ConfigurationError(error.message) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error.message}") from error
    return recipe


def read_recipe_file(path: Path) -> StockRecipe:
    """Read a recipe from a JSON file.

    Raises:
        ConfigurationError: the file cannot be read, or see `read_recipe`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"recipe {path} cannot be read: {error.strerror}") from error
    try:
        settings = canonical.from_bytes(data, path.name)
    except ArtifactError as error:
        raise ConfigurationError(error.message) from error
    return read_recipe(settings, path.name)


def _read_config(kind: str, record: Record) -> NetworkConfig:
    names = [name for name in record.keys() if name.startswith(NETWORK)]  # noqa: SIM118 - a Record is not a dict
    settings = {name.removeprefix(NETWORK): record.json(name) for name in names}
    plain = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
    if len(plain) != len(settings):
        raise ConfigurationError(f"network settings {sorted(set(settings) - set(plain))} must be plain values")
    return read_config(get_kind(kind), plain)


def _read_splitting(record: Record) -> dict[str, Any]:
    """The field `parts` or `shares`."""
    if record.has(f"{ROLLING}selection"):
        return {"parts": _read_values(RollingSplits, record, ROLLING)}
    if record.has(f"{SPLIT}{PARTS[0]}"):
        names = PARTS if record.has(f"{SPLIT}{PARTS[-1]}") else PARTS[:-1]
        ranges = {name: record.integers(f"{SPLIT}{name}") for name in names}
        wrong = [name for name, sessions in ranges.items() if len(sessions) != 2]  # noqa: PLR2004 - first and last
        if wrong:
            raise record.make_error(f"{SPLIT}{wrong[0]}", "must be two sessions yyyymmdd, the first and the last")
        return {"parts": DataSplits.by_dates([(sessions[0], sessions[1]) for sessions in ranges.values()])}
    return {"shares": _read_values(SplitShares, record, SHARE)}


def _read_values(kind: type[ValueT], record: Record, prefix: str) -> ValueT:
    """A dataclass of plain settings, one per field."""
    hints = get_type_hints(kind)
    return kind(
        **{field.name: _read_value(record, f"{prefix}{field.name}", hints[field.name]) for field in fields(kind)}
    )


def _read_value(record: Record, key: str, hint: Any) -> Any:
    """One setting of the type in its hint; null means None."""
    if isinstance(hint, UnionType) and type(None) in get_args(hint):
        rest = next(part for part in get_args(hint) if part is not type(None))
        return None if record.json(key) is None else _read_value(record, key, rest)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        text = record.text(key)
        if text not in choices:
            raise record.make_error(key, f"is {text!r}, but must be one of {list(choices)}")
        return text
    return _READERS[hint](record, key)


def _read_limit(record: Record, key: str) -> float:
    return float("inf") if key == "clip" and record.json(key) is None else record.number(key)


_READERS: Mapping[Any, Any] = {int: Record.integer, float: _read_limit, str: Record.text, bool: Record.flag}
