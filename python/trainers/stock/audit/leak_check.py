"""Leak check: replacing or deleting later bars must not change a forecast."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.audit_record import AuditVerdict, FutureCheck
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import format_date
from predictor.model import Model
from trainers.progress import StepProgress, no_progress
from trainers.stock.data import History, TrainingWindows
from trainers.stock.network_forecasts import forecast_values

Stages = Mapping[str, NDArray[Any]]
"""Arrays by name."""

FORECAST: Final = "forecast"

NOISE = 0.5
"""Standard deviation of the log noise on prices and volumes."""

ABSENT = 0.05
"""Share of later bars that are removed."""

SCALING = "fitted numbers"

DELETION_TOLERANCE = 1e-4
"""Relative tolerance after deletion, because sums over shorter arrays may be ordered differently."""


Staging = Callable[[BarPanel], Callable[[int], Stages]]
"""Processes a whole history of bars at once, as training and evaluation do.

It returns a function of a session's position: the arrays computed for that session, including `FORECAST`.
"""


@final
class ModelStages:
    """Inputs and forecasts of a model over the whole history."""

    def __init__(self, model: Model, covariates: CovariateSource, bars: BarPanel) -> None:
        self._model = model
        self._history = History(bars, model.pipeline, covariates)
        self._usable = self._history.forecastable

    def __call__(self, position: int) -> Stages:
        """Inputs [S, ...] and forecasts [S, H, Q] of the S stocks with a forecast."""
        symbols = np.flatnonzero(self._usable[:, position])
        windows = TrainingWindows(symbols=symbols, positions=np.full(len(symbols), position))
        inputs = self._history.gather(windows).inputs
        forecast = forecast_values(self._model.engine, self._history, windows, self._model.manifest.universe)
        return {name: group.numpy() for name, group in inputs._asdict().items()} | {FORECAST: forecast}


def find_differences(before: Stages, after: Stages) -> tuple[str, ...]:
    """Names of the arrays whose shape, type or any bit differs."""

    def differs(old: NDArray[Any], new: NDArray[Any]) -> bool:
        return old.shape != new.shape or old.dtype != new.dtype or old.tobytes() != new.tobytes()

    return tuple(name for name, array in before.items() if differs(array, after[name]))


def forecast_gap(before: Stages, after: Stages) -> float | None:
    """Largest difference of two forecasts [S, H, Q], relative to the largest value; None if their stocks differ."""
    mine, theirs = before[FORECAST], after[FORECAST]
    if mine.shape != theirs.shape:
        return None
    return float(np.abs(mine - theirs).max(initial=0.0) / np.abs(mine).max(initial=np.finfo(np.float64).tiny))


def adjust_panel(bars: BarPanel) -> BarPanel:
    """The adjusted bars as unadjusted prices.

    A future split or dividend scales all earlier adjusted prices. Ratios cancel the factor except for the last bit, so
    bits are comparable only without adjustments.
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
    """Change prices and volumes after a position of the date axis, and remove some bars there.

    The position is that of the last unchanged session, and the seed of the noise. The bars have no adjustments.
    """
    random = np.random.default_rng(position)
    shape = (len(bars.symbols), len(bars.sessions) - position - 1)
    presence = np.where(random.random(shape) < ABSENT, np.nan, 1.0)
    price, volume = (presence * np.exp(NOISE * random.standard_normal(shape)) for _ in range(2))

    def change_after(values: FloatArray, factor: FloatArray) -> FloatArray:
        column = values.copy()
        column[:, position + 1 :] *= factor
        return column

    return replace(
        bars,
        open=change_after(bars.open, price),
        high=change_after(bars.high, price),
        low=change_after(bars.low, price),
        close=change_after(bars.close, price),
        volume=change_after(bars.volume, volume),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedNumbers:
    """Numbers that are fitted on bars, such as the features' scaling."""

    fit: Callable[[BarPanel], bytes]
    last: int
    """Position of the last session of the fit."""


def check_future(
    bars: BarPanel,
    staging: Staging,
    positions: Sequence[int],
    fitting: FittedNumbers,
    track_steps: StepProgress = no_progress,
) -> FutureCheck:
    """Compare all stages at some sessions, bit by bit, with and without noise after them.

    At least one bar follows each of the positions on the date axis.
    """
    plain = adjust_panel(bars)
    base = staging(plain)
    changed: dict[str, int] = {}
    gaps: list[float | None] = []
    for position in track_steps(
        positions, title="noise", tell=lambda at: f"after {format_date(int(bars.sessions[at]))}"
    ):
        session, before = int(bars.sessions[position]), base(position)
        names = find_differences(before, staging(with_noise(plain, position))(position))
        changed = dict.fromkeys(names, session) | changed
        gaps.append(forecast_gap(before, staging(plain.until(session))(position)))
    if fitting.fit(plain) != fitting.fit(with_noise(plain, fitting.last)):
        changed[SCALING] = int(bars.sessions[fitting.last])
    gap = None if None in gaps else max((gap for gap in gaps if gap is not None), default=0.0)
    is_sound = not changed and gap is not None and gap <= DELETION_TOLERANCE
    return FutureCheck(
        verdict=AuditVerdict.PASS if is_sound else AuditVerdict.FAIL,
        sessions=tuple(int(bars.sessions[position]) for position in positions),
        stages=(*base(positions[0]), SCALING),
        changed=tuple(sorted(changed)),
        first_changed=min(changed.values()) if changed else None,
        deletion_gap=gap,
    )
