"""From feature windows that a caller made to a network's inputs."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from predictor.bars.checks import check_symbols
from predictor.errors import FeatureMismatchError, InvalidInputError, UnknownFeatureError, WindowShapeError
from predictor.instance import FeatureWindow
from predictor.model.prepared import LARGEST_PRICE, LARGEST_SCALE, FloatArray, Prepared, can_anchor
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
"""Groups of a feature window, in the order of `Inputs`."""

LARGEST: Mapping[str, float] = {
    "observed": 1e6,
    "known": 1e6,
    "static": 1e6,
    "location": 100.0,
    "scale": LARGEST_SCALE,
}
"""In windows of callers: far beyond what features come to, and far below what overflows on the way to prices."""


def prepare_window(pipeline: Pipeline, window: FeatureWindow) -> Prepared:
    """Check windows that a caller made.

    Raises:
        UnknownFeatureError: a feature is named that the model does not read.
        FeatureMismatchError: they were made with another schema.
        WindowShapeError: a group has another shape or type than the model reads.
        InvalidInputError: a number in them cannot be.
    """
    _check_window(pipeline, window)
    as_of, unknown = window.as_of_session, np.zeros(0, np.int32)
    return Prepared(
        symbols=window.symbols,
        usable=np.ones(len(window.symbols), np.bool_),
        inputs=_inputs(pipeline, window),
        sessions=unknown,
        as_of=as_of,
        target_sessions=pipeline.target_sessions(as_of) if as_of else unknown,
        base_session=pipeline.base_session(as_of) if as_of else 0,
        anchor=window.anchor_price,
        warnings=(),
    )


def _inputs(pipeline: Pipeline, window: FeatureWindow) -> Inputs:
    """The groups as the network reads them: with levels of their own for every horizon, one or many as were sent."""
    given = Inputs(*(torch.from_numpy(np.array(getattr(window, name))) for name in WINDOW_TYPES))
    shape = (len(window.symbols), len(pipeline.target.horizons))
    location, scale = (part.reshape(len(part), -1).expand(shape).contiguous() for part in (given.location, given.scale))
    return given._replace(location=location, scale=scale)


def _check_window(pipeline: Pipeline, window: FeatureWindow) -> None:
    _check_features(window.features, pipeline.features.features.names)
    ours = pipeline.features.schema_hash
    if window.schema_hash != ours:
        names = [f.name for f in pipeline.features.features.observed]
        raise FeatureMismatchError(
            f"the windows were made with schema {window.schema_hash[:80]!r}, the model's is {ours!r} with "
            f"features {names}; ask GetModel for the expressions",
            metadata={"expected": ours},
        )
    check_symbols(window.symbols)
    for name, want in _window_shapes(pipeline, window).items():
        _check_group(name, getattr(window, name), want)
    if window.observed[~window.mask].any():
        raise InvalidInputError("observed holds a value where mask says that the cell is unknown; it must be 0")
    unknown = np.flatnonzero(~window.mask.any(axis=(1, 2)))
    if unknown.size:
        raise InvalidInputError(
            f"mask says that nothing is known of {window.symbols[int(unknown[0])]}, which leaves nothing to forecast "
            "from; leave the symbol out"
        )
    if not (window.scale > 0).all():
        raise InvalidInputError("scale holds a value that is not positive")
    if window.anchor_price is not None:
        _check_anchor(window.anchor_price, len(window.symbols))
    if window.as_of_session and not pipeline.calendar.is_session(window.as_of_session):
        raise InvalidInputError(
            f"as_of_session {window.as_of_session} is no session of {pipeline.calendar.name}; "
            "send the session of the last row, yyyymmdd, or 0 if it is unknown"
        )


def _check_features(given: tuple[str, ...], ours: tuple[str, ...]) -> None:
    """The caller's feature names, if it sent any, against the model's."""
    known, sent = frozenset(ours), frozenset(given)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UnknownFeatureError(
            f"features {unknown[:5]} are not the model's; it reads {list(ours)}",
            metadata={"unknown": ",".join(unknown[:5])},
        )
    if given and given != ours:
        missing = [name for name in ours if name not in sent]
        raise FeatureMismatchError(
            f"the features are in another order than the model's, or some are missing: missing {missing}; "
            f"it reads {list(ours)}",
            metadata={"missing": ",".join(missing)},
        )


def _window_shapes(pipeline: Pipeline, window: FeatureWindow) -> dict[str, tuple[int, ...]]:
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


def _check_group(name: str, group: NDArray[np.generic], shape: tuple[int, ...]) -> None:
    """One group of a caller's window: its shape, its type, and numbers that a network can take."""
    want = np.dtype(WINDOW_TYPES[name])
    if group.shape != shape or group.dtype != want:
        raise WindowShapeError(
            f"{name} is {group.dtype} of shape {list(group.shape)}, the model reads {want} of shape {list(shape)}"
        )
    if name in LARGEST and not (np.abs(group) <= LARGEST[name]).all():
        raise InvalidInputError(f"{name} holds a value that is not finite, or beyond {LARGEST[name]:g}")


def _check_anchor(prices: FloatArray, symbols: int) -> None:
    if prices.shape != (symbols,):
        raise WindowShapeError(f"anchor_price must hold one price for each of {symbols} symbols")
    if not can_anchor(prices).all():
        raise InvalidInputError(f"anchor_price holds a value that is not a price above 0 and up to {LARGEST_PRICE:g}")
