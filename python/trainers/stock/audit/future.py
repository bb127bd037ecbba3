"""Whether a forecast knows the future: later bars are replaced by noise, then deleted, and nothing may change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.audit_record import AuditVerdict, FutureCheck
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import shown_date
from predictor.model import Model
from trainers.progress import Stepwise, unwatched
from trainers.stock.data import History, Windows
from trainers.stock.forecasting import forecast_values

Stages = Mapping[str, NDArray[Any]]
"""Arrays by name."""

FORECAST: Final = "forecast"

NOISE = 0.5
"""Standard deviation of the logarithm by which noise moves a price or a volume."""

ABSENT = 0.05
"""Share of later bars that are missing under noise."""

SCALING = "fitted numbers"

DELETION_TOLERANCE = 1e-4
"""Relative. Without later bars arrays are shorter, and sums may be ordered otherwise; nothing else may change."""


class StagedHistory(Protocol):
    """A history of bars on its way to forecasts."""

    def at(self, position: int) -> Stages:
        """What is computed for the session at this position of the date axis, each array with its own shape.

        `FORECAST` is among it.
        """
        ...


Staging = Callable[[BarPanel], StagedHistory]
"""What takes a whole history of bars, every session's future included, as training and evaluation do."""


@final
class ModelStages:
    """The way of bars through a model, over the whole history at once.

    Args:
        model: of one network.
        covariates: files of covariates.
        bars: the history.
    """

    def __init__(self, model: Model, covariates: CovariateSource, bars: BarPanel) -> None:
        self._model = model
        self._history = History(bars, model.pipeline, covariates)
        self._usable = self._history.forecastable

    def at(self, position: int) -> Stages:
        """Inputs [S, ...] and forecasts [S, H, Q] of the S stocks that can be forecast then."""
        symbols = np.flatnonzero(self._usable[:, position])
        windows = Windows(symbols=symbols, positions=np.full(len(symbols), position))
        inputs = self._history.gather(windows).inputs
        forecast = forecast_values(self._model.engine, self._history, windows, self._model.manifest.universe)
        return {name: group.numpy() for name, group in inputs._asdict().items()} | {FORECAST: forecast}


def different(before: Stages, after: Stages) -> tuple[str, ...]:
    """Names of the arrays whose shape, type or any bit is not the same."""
    return tuple(name for name, array in before.items() if not _same_bits(array, after[name]))


def forecast_gap(before: Stages, after: Stages) -> float | None:
    """Largest difference of two forecasts [S, H, Q] relative to the largest forecast; None if their stocks differ."""
    mine, theirs = before[FORECAST], after[FORECAST]
    if mine.shape != theirs.shape:
        return None
    return float(np.abs(mine - theirs).max(initial=0.0) / np.abs(mine).max(initial=np.finfo(np.float64).tiny))


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def adjusted_panel(bars: BarPanel) -> BarPanel:
    """The adjusted bars as if they had been traded so.

    A split or dividend of the future moves all earlier adjusted prices by a common factor. Ratios of prices forget
    it, but not in their last bit, so bits can be compared only where nothing is left to adjust.
    """
    adjusted = bars.adjusted()
    return replace(
        bars,
        open=adjusted.open,
        high=adjusted.high,
        low=adjusted.low,
        close=adjusted.close,
        volume=adjusted.volume,
        adj_close=None,
        split_ratio=None,
        cash_dividend=None,
    )


def with_noise(bars: BarPanel, position: int) -> BarPanel:
    """The same bars up to a position of the date axis; after it other prices, other volumes, and some bars gone.

    Args:
        bars: without adjustments.
        position: the last that stays; it also seeds the noise.
    """
    random = np.random.default_rng(position)
    shape = (len(bars.symbols), len(bars.sessions) - position - 1)
    gone = np.where(random.random(shape) < ABSENT, np.nan, 1.0)
    price, volume = (gone * np.exp(NOISE * random.standard_normal(shape)) for _ in range(2))

    def moved(values: FloatArray, factor: FloatArray) -> FloatArray:
        column = values.copy()
        column[:, position + 1 :] *= factor
        return column

    return replace(
        bars,
        open=moved(bars.open, price),
        high=moved(bars.high, price),
        low=moved(bars.low, price),
        close=moved(bars.close, price),
        volume=moved(bars.volume, volume),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The numbers that training fits on bars, such as the features' scaling."""

    fit: Callable[[BarPanel], bytes]
    last: int
    """Position of the last session that they may be fitted on."""


def check_future(
    bars: BarPanel, staging: Staging, positions: Sequence[int], fitting: Fitting, stepwise: Stepwise = unwatched
) -> FutureCheck:
    """Compare everything at some sessions, bit for bit, with and without noise after them.

    Args:
        bars: a long history.
        staging: what is audited.
        positions: of the sessions on the date axis; at least one bar follows each.
        fitting: what is fitted.
        stepwise: shows at which session it is.
    """
    plain = adjusted_panel(bars)
    base = staging(plain)
    changed: dict[str, int] = {}
    gaps: list[float | None] = []
    for position in stepwise(positions, title="noise", tell=lambda at: f"after {shown_date(int(bars.sessions[at]))}"):
        session, before = int(bars.sessions[position]), base.at(position)
        names = different(before, staging(with_noise(plain, position)).at(position))
        changed = dict.fromkeys(names, session) | changed
        gaps.append(forecast_gap(before, staging(plain.until(session)).at(position)))
    if fitting.fit(plain) != fitting.fit(with_noise(plain, fitting.last)):
        changed[SCALING] = int(bars.sessions[fitting.last])
    gap = None if None in gaps else max((known for known in gaps if known is not None), default=0.0)
    sound = not changed and gap is not None and gap <= DELETION_TOLERANCE
    return FutureCheck(
        verdict=AuditVerdict.PASS if sound else AuditVerdict.FAIL,
        sessions=tuple(int(bars.sessions[position]) for position in positions),
        stages=(*base.at(positions[0]), SCALING),
        changed=tuple(sorted(changed)),
        first_changed=min(changed.values()) if changed else None,
        deletion_gap=gap,
    )
