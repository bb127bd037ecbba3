"""One forecast of the parts of a panel that was split, and what is said where one of them failed."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from predictor.arrays import FloatArray
from predictor.client.parts import PanelPart
from predictor.errors import NoUsableSymbolError, QuantraError, TooFewBarsError, listed
from predictor.forecast import Forecast, Outcome

UNUSABLE = (NoUsableSymbolError, TooFewBarsError)
"""Errors of a panel none of whose symbols can be forecast, which is nothing that stops the others."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartResponse:
    """What a server said of one part."""

    part: PanelPart
    symbols: tuple[str, ...]
    """Of the part."""
    outcome: Outcome


def joined(parts: Sequence[PartResponse]) -> Outcome:
    """The forecast of an instance from those of its parts, all by one version of a model.

    Every symbol has the numbers, or the reason, that its part gave it. `forecast_id` is a hash of the parts' own ids.

    Args:
        parts: in the order of the instance; parts without any usable symbol only if no part has one.

    Returns:
        The forecast; or the error of the first part that failed, which names its symbols where others have none such.
    """
    if len(parts) == 1:
        return parts[0].outcome
    failures = [(told, told.outcome) for told in parts if isinstance(told.outcome, QuantraError)]
    if not failures:
        return _joined([told.outcome for told in parts if isinstance(told.outcome, Forecast)])
    for told, failure in failures:
        if not isinstance(failure, UNUSABLE):
            return named(failure, told.symbols)
    return _nothing_usable([failure for _, failure in failures])


def named(error: QuantraError, symbols: Sequence[str]) -> QuantraError:
    """The same error, with the symbols of the call that it ended."""
    return type(error)(
        f"of the part with {listed(symbols)}: {error.message}",
        metadata={"first_symbol": symbols[0], "last_symbol": symbols[-1], **error.metadata},
    )


def _nothing_usable(failures: Sequence[QuantraError]) -> QuantraError:
    """The error of a panel no part of which has a usable symbol, of the kind that one call would give."""
    return next((one for one in failures if isinstance(one, NoUsableSymbolError)), failures[0])


def _joined(forecasts: Sequence[Forecast]) -> Forecast:
    first = forecasts[0]
    ids = "|".join(one.forecast_id for one in forecasts)
    return replace(
        first,
        symbols=tuple(symbol for one in forecasts for symbol in one.symbols),
        values=np.concatenate([one.values for one in forecasts]),
        returns=_stacked(forecasts, lambda one: one.returns),
        prices=_stacked(forecasts, lambda one: one.prices),
        anchor_price=_stacked(forecasts, lambda one: one.anchor_price),
        warnings=tuple(dict.fromkeys(warning for one in forecasts for warning in one.warnings)),
        refusals={symbol: why for one in forecasts for symbol, why in one.refusals.items()},
        forecast_id=hashlib.sha256(ids.encode()).hexdigest()[:16],
    )


def _stacked(forecasts: Sequence[Forecast], of: Callable[[Forecast], FloatArray | None]) -> FloatArray | None:
    """The rows of all parts; None where they have none."""
    rows = [values for values in map(of, forecasts) if values is not None]
    return np.concatenate(rows) if len(rows) == len(forecasts) else None


def without_last(forecast: Forecast) -> Forecast:
    """The forecast without its last symbol, which was beside the others so that each has a reason of its own."""
    last = forecast.symbols[-1]

    def cut(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[:-1]

    return replace(
        forecast,
        symbols=forecast.symbols[:-1],
        values=forecast.values[:-1],
        returns=cut(forecast.returns),
        prices=cut(forecast.prices),
        anchor_price=cut(forecast.anchor_price),
        refusals={symbol: why for symbol, why in forecast.refusals.items() if symbol != last},
    )
