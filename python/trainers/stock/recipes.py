"""Reading a recipe back: from the record in an artifact's card, or from a file of the same settings.

Cards of earlier versions name neither a scale, which then is `window`, nor what a symbol must have. The kind of
normaliser is named only if it is not `window`.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from predictor import canonical
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.networks import (
    WINDOW,
    NetworkConfig,
    Normaliser,
    Target,
    TargetKind,
    kind_named,
    read_config,
    read_normaliser,
)
from predictor.windows import BarRequirements
from trainers.stock.recipe import Optimisation, Scale, StockRecipe
from trainers.stock.splits import PARTS, DataSplits, SplitPart, SplitShares

NETWORK: Final = "network_"
NORMALISER: Final = "normaliser_"
MINIMUM: Final = "minimum_"
SHARE: Final = "share_"
SPLIT: Final = "split_"
ValueT = TypeVar("ValueT", SplitShares, BarRequirements, Optimisation)


def read_recipe(settings: Json, source: str = "recipe") -> StockRecipe:
    """The recipe whose `settings()` these are: each must be named, known and of its own type.

    Args:
        settings: as the card's "recipe" record has them.
        source: names them in errors.

    Raises:
        ConfigurationError: a setting is missing, unknown, of another type or out of its range.
    """
    try:
        record = Record(settings, source)
        recipe = _recipe(record)
        record.end()
    except ArtifactError as error:
        raise ConfigurationError(error.message) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error.message}") from error
    return recipe


def read_recipe_file(path: Path) -> StockRecipe:
    """The recipe that a JSON file holds.

    Raises:
        ConfigurationError: the file cannot be read, or as `read_recipe`.
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


def _recipe(record: Record) -> StockRecipe:
    kind = record.text("kind")
    scale: Scale = _value(record, "scale", Scale) if record.has("scale") else "window"
    by_dates = record.has(f"{SPLIT}{PARTS[0]}")
    shares = {} if by_dates else {"shares": _values(SplitShares, record, SHARE)}
    return StockRecipe(
        kind=kind,
        config=_config(kind, record),
        target=_target(record),
        quantiles=record.numbers("quantiles"),
        encoder_length=record.integer("encoder_length"),
        calendar=record.text("calendar"),
        scale=scale,
        normaliser=_normaliser(record.group(NORMALISER), _target(record)) if scale == "window" else None,
        minimum=_values(BarRequirements, record, MINIMUM) if record.has(f"{MINIMUM}values") else BarRequirements(),
        parts=_parts(record) if by_dates else None,
        optimisation=_values(Optimisation, record, ""),
        **shares,
    )


def _config(kind: str, record: Record) -> NetworkConfig:
    names = [name for name in record.keys() if name.startswith(NETWORK)]  # noqa: SIM118 - a Record is no dict
    settings = {name.removeprefix(NETWORK): record.json(name) for name in names}
    plain = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
    if len(plain) != len(settings):
        raise ConfigurationError(f"network settings {sorted(set(settings) - set(plain))} must be plain values")
    return read_config(kind_named(kind), plain)


def _target(record: Record) -> Target:
    text = record.text("target")
    if text not in [kind.value for kind in TargetKind]:
        raise record.refusal("target", f"is {text!r}, but must be one of {[kind.value for kind in TargetKind]}")
    return Target(kind=TargetKind(text), lag=record.integer("lag"), horizons=record.integers("horizons"))


def _normaliser(record: Record, target: Target) -> Normaliser:
    return read_normaliser(record, target, record.text("kind") if record.has("kind") else WINDOW.name)


def _parts(record: Record) -> DataSplits:
    ranges = {name: record.integers(f"{SPLIT}{name}") for name in PARTS}
    wrong = [name for name, sessions in ranges.items() if len(sessions) != 2]  # noqa: PLR2004 - first and last
    if wrong:
        raise record.refusal(f"{SPLIT}{wrong[0]}", "must be two sessions yyyymmdd, the first and the last")
    train, selection, calibration, test = (SplitPart(name, *sessions) for name, sessions in ranges.items())
    return DataSplits(train=train, selection=selection, calibration=calibration, test=test)


def _values(kind: type[ValueT], record: Record, prefix: str) -> ValueT:
    """A value of plain settings, one per field, each of the field's own type."""
    hints = get_type_hints(kind)
    return kind(**{field.name: _value(record, f"{prefix}{field.name}", hints[field.name]) for field in fields(kind)})


def _value(record: Record, key: str, hint: Any) -> Any:
    """One setting as its type hint says; null means no limit, as `StockRecipe.settings` writes it."""
    if isinstance(hint, UnionType) and type(None) in get_args(hint):
        rest = next(part for part in get_args(hint) if part is not type(None))
        return None if record.json(key) is None else _value(record, key, rest)
    if get_origin(hint) is Literal:
        return _choice(record, key, get_args(hint))
    return _READERS[hint](record, key)


def _choice(record: Record, key: str, choices: tuple[str, ...]) -> str:
    text = record.text(key)
    if text not in choices:
        raise record.refusal(key, f"is {text!r}, but must be one of {list(choices)}")
    return text


def _limit(record: Record, key: str) -> float:
    return float("inf") if key == "clip" and record.json(key) is None else record.number(key)


_READERS: Mapping[Any, Any] = {int: Record.integer, float: _limit, str: Record.text, bool: Record.flag}
