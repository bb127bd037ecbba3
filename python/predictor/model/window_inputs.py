"""Network inputs from the feature windows of callers, checked and copied in batches."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.bars.checks import check_symbols
from predictor.dates import to_date, to_dates, to_optional_date_number
from predictor.errors import (
    FeatureMismatchError,
    InvalidInputError,
    QuantraError,
    UnknownFeatureError,
    WindowShapeError,
)
from predictor.instance import FeatureWindow
from predictor.model.prepared_instance import MAX_PRICE, MAX_SCALE, PreparedInstance, can_anchor
from predictor.networks import Inputs
from predictor.windows import Pipeline

WINDOW_TYPES: Mapping[str, type[np.generic]] = {
    "observed": np.float32,
    "known": np.float32,
    "static": np.float32,
    "mask": np.bool_,
    "location": np.float64,
    "scale": np.float64,
}
"""Groups of a feature window, in `Inputs` order."""

MAX_VALUES: Mapping[str, float] = {
    "observed": 1e6,
    "known": 1e6,
    "static": 1e6,
    "location": 100.0,
    "scale": MAX_SCALE,
}
"""Bounds for callers' windows: far above real feature values, and far below values that overflow prices."""

MAX_CACHED: Final = 256
"""Most forms, and most sessions, that a reader remembers."""

_NO_SESSIONS: Final = np.zeros(0, np.int32)


class WindowInputs(NamedTuple):
    """Rows [N, ...] of several windows, with levels for every horizon."""

    observed: NDArray[np.float32]
    known: NDArray[np.float32]
    static: NDArray[np.float32]
    mask: BoolArray
    location: FloatArray
    scale: FloatArray


def check_form(pipeline: Pipeline, window: FeatureWindow) -> None:
    """Check the form of a caller's windows, but not the numbers in them.

    Raises:
        UnknownFeatureError: the model does not have one of the features.
        FeatureMismatchError: the windows follow another feature schema.
        WindowShapeError: a group has the wrong shape or type.
        InvalidInputError: a symbol, price or date is invalid.
    """
    if window.features:
        _check_features(window.features, pipeline.features.features.names)
    ours = pipeline.features.schema_hash
    if window.schema_hash != ours:
        names = [f.name for f in pipeline.features.features.observed]
        raise FeatureMismatchError(
            f"the windows were made with schema {window.schema_hash[:80]!r}, the model's is {ours!r} with "
            f"features {names}; GetModel returns the expressions",
            metadata={"expected": ours},
        )
    check_symbols(window.symbols)
    for name, shape in _compute_shapes(pipeline, window).items():
        _check_shape(name, getattr(window, name), shape)
    if window.anchor_price is not None:
        symbols = len(window.symbols)
        if window.anchor_price.shape != (symbols,):
            raise WindowShapeError(f"anchor_price must hold one price for each of {symbols} symbols")
        if not can_anchor(window.anchor_price).all():
            raise _make_anchor_error()
    as_of = to_optional_date_number(window.as_of_session)
    if as_of and not pipeline.calendar.is_session(as_of):
        raise InvalidInputError(
            f"as_of_session {as_of} is not a session of {pipeline.calendar.name}; "
            "send the session of the last row, yyyymmdd, or 0 if it is unknown"
        )


class WindowDates(NamedTuple):
    """Dates that follow from a window's last session."""

    target_sessions: tuple[date, ...]
    base_session: date | None

    @classmethod
    def of(cls, pipeline: Pipeline, as_of: int) -> Self:
        """Compute the dates of a session; raises CalendarEndedError."""
        if not as_of:
            return cls((), None)
        return cls(to_dates(pipeline.target_sessions(as_of)), to_date(pipeline.base_session(as_of)))


@final
class WindowReader:
    """Checks feature windows and stacks them to inputs, for one pipeline. Thread-safe.

    It remembers valid forms and the dates of sessions, because the windows sent to a model share few of them.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._forms: set[Hashable] = set()
        self._dates: dict[int, WindowDates] = {}

    def check(self, window: FeatureWindow) -> None:
        """Check a window's form and dates, but not its numbers and prices; raises as `check_form`."""
        observed, known, static, mask = window.observed, window.known, window.static, window.mask
        location, scale, prices = window.location, window.scale, window.anchor_price
        as_of = to_optional_date_number(window.as_of_session)
        form = (  # what `check_form` depends on, besides symbols, prices and dates
            *(window.features, window.schema_hash, len(window.symbols), None if prices is None else prices.shape),
            *(observed.shape, known.shape, static.shape, mask.shape, location.shape, scale.shape),
            *(observed.dtype, known.dtype, static.dtype, mask.dtype, location.dtype, scale.dtype),
        )
        if form in self._forms and as_of in self._dates:
            check_symbols(window.symbols)
            return
        check_form(self._pipeline, window)
        dates = WindowDates.of(self._pipeline, as_of)
        for remembered in (self._forms, self._dates):
            if len(remembered) >= MAX_CACHED:
                remembered.clear()
        self._forms.add(form)
        self._dates[as_of] = dates

    def prepare(self, windows: Sequence[FeatureWindow]) -> list[PreparedInstance | QuantraError]:
        """Prepare checked windows; one with an impossible number gets an InvalidInputError."""
        groups = _concatenate(self._pipeline, windows)
        fault = _find_fault(groups, windows)
        if fault is None:
            return self._build(windows, Inputs(*map(torch.from_numpy, groups)))
        return [fault] if len(windows) == 1 else [result for window in windows for result in self.prepare([window])]

    def _build(self, windows: Sequence[FeatureWindow], batch: Inputs) -> list[PreparedInstance | QuantraError]:
        usable, end = np.ones(len(batch.location), np.bool_), 0
        prepared: list[PreparedInstance | QuantraError] = []
        for window in windows:
            first, end = end, end + len(window.symbols)
            as_of = to_optional_date_number(window.as_of_session)
            dates = self._dates.get(as_of) or WindowDates.of(self._pipeline, as_of)
            prepared.append(
                PreparedInstance(
                    symbols=window.symbols,
                    usable=usable[first:end],
                    batch=batch,
                    rows=slice(first, end),
                    sessions=_NO_SESSIONS,
                    as_of=as_of,
                    target_sessions=dates.target_sessions,
                    base_session=dates.base_session,
                    anchor=window.anchor_price,
                    warnings=(),
                )
            )
        return prepared


def _concatenate(pipeline: Pipeline, windows: Sequence[FeatureWindow]) -> WindowInputs:
    """Concatenate all windows in one step.

    It copies, because the caller may change its arrays. One large copy releases the interpreter lock once, instead of
    once per instance.
    """
    horizons = len(pipeline.target.horizons)
    return WindowInputs(
        observed=_stack(windows, "observed"),
        known=_stack(windows, "known"),
        static=_stack(windows, "static"),
        mask=_stack(windows, "mask"),
        location=_repeat_levels(_stack(windows, "location"), horizons),
        scale=_repeat_levels(_stack(windows, "scale"), horizons),
    )


def _stack(windows: Sequence[FeatureWindow], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(window, name) for window in windows])


def _repeat_levels(levels: FloatArray, horizons: int) -> FloatArray:
    """Return one level per horizon."""
    columns = levels.reshape(len(levels), -1)
    return columns if columns.shape[1] == horizons else np.repeat(columns, horizons, axis=1)


def _find_fault(groups: WindowInputs, windows: Sequence[FeatureWindow]) -> InvalidInputError | None:
    """Return the error of the first impossible price or number; passes over the numbers as rarely as possible."""
    prices = [window.anchor_price for window in windows if window.anchor_price is not None]
    if prices and not can_anchor(np.concatenate(prices)).all():
        return _make_anchor_error()
    for name, largest in MAX_VALUES.items():
        if not _is_within(getattr(groups, name), largest):
            return InvalidInputError(f"{name} holds a value that is not finite, or beyond {largest:g}")
    if not np.logical_and.reduce(groups.mask, axis=None):
        if groups.observed[~groups.mask].any():
            return InvalidInputError("observed holds a value in a cell that mask marks as unknown; it must be 0")
        unknown = np.flatnonzero(~groups.mask.any(axis=(1, 2)))
        if unknown.size:
            symbols = [symbol for window in windows for symbol in window.symbols]
            return InvalidInputError(
                f"mask marks every cell of {symbols[int(unknown[0])]} as unknown, which leaves nothing to "
                "forecast from; leave the symbol out"
            )
    if not np.minimum.reduce(groups.scale, axis=None) > 0:
        return InvalidInputError("scale holds a value that is not positive")
    return None


def _is_within(values: NDArray[np.floating], largest: float) -> bool:
    """Whether no value is NaN or beyond `largest`."""
    return not values.size or bool(
        np.maximum.reduce(values, axis=None) <= largest and np.minimum.reduce(values, axis=None) >= -largest
    )


def _check_features(names: tuple[str, ...], ours: tuple[str, ...]) -> None:
    """Check that the caller's feature names match the model's."""
    known_names, sent_names = frozenset(ours), frozenset(names)
    unknown = [name for name in names if name not in known_names]
    if unknown:
        raise UnknownFeatureError(
            f"features {unknown[:5]} are not the model's; it reads {list(ours)}",
            metadata={"unknown": ",".join(unknown[:5])},
        )
    if names != ours:
        missing = [name for name in ours if name not in sent_names]
        raise FeatureMismatchError(
            f"the features are in another order than the model's, or some are missing: missing {missing}; "
            f"it reads {list(ours)}",
            metadata={"missing": ",".join(missing)},
        )


def _compute_shapes(pipeline: Pipeline, window: FeatureWindow) -> dict[str, tuple[int, ...]]:
    sizes, symbols, horizons = pipeline.sizes, len(window.symbols), len(pipeline.target.horizons)
    rows = (symbols, sizes.encoder_length)
    flat = not pipeline.normaliser.is_per_horizon or (horizons == 1 and window.location.ndim == 1)
    levels = (symbols,) if flat else (symbols, horizons)
    return {
        "observed": (*rows, sizes.observed),
        "known": (symbols, sizes.encoder_length + sizes.future_length, sizes.known),
        "static": (symbols, sizes.static),
        "mask": (*rows, sizes.observed),
        "location": levels,
        "scale": levels,
    }


def _check_shape(name: str, group: NDArray[np.generic], shape: tuple[int, ...]) -> None:
    dtype = np.dtype(WINDOW_TYPES[name])
    if group.shape != shape or group.dtype != dtype:
        raise WindowShapeError(
            f"{name} is {group.dtype} of shape {list(group.shape)}, the model reads {dtype} of shape {list(shape)}"
        )


def _make_anchor_error() -> InvalidInputError:
    return InvalidInputError(f"anchor_price holds a value that is not above 0 and at most {MAX_PRICE:g}")
