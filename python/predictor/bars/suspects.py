"""Bars that cannot be true, judged by the history of their own symbol.

A move is impossible if it exceeds a factor of 5 in one session and 20 robust standard deviations (median and MAD) of
the symbol's log returns. The second bound is needed because the volatility of tickers differs by a factor of 20. Prices
are judged after adjustment, so recorded splits and dividends are not moves.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import BoolArray, FloatArray
from predictor.bars.adjustment import adjust_each, close_before
from predictor.bars.jumps import COMMON_SPLITS, PriceJumps
from predictor.bars.panel import JUDGED_AT_ONCE, BarPanel
from predictor.dates import to_days
from predictor.errors import BarSuspectError, format_count, format_date, format_names

MAX_MOVE: Final = math.log(5)
"""Log returns up to this size are possible for any symbol."""
DEVIATIONS: Final = 20.0
"""Robust standard deviations beyond which a log return is impossible."""
MIN_DEVIATION: Final = 0.002
"""Smallest standard deviation of daily log returns that a symbol is assumed to have."""
FEW_RETURNS: Final = 20
"""With fewer returns the deviation is not reliable, and `DEVIATION_OF_FEW` is its least value."""
DEVIATION_OF_FEW: Final = 0.05
IMPOSSIBLE_LEVEL: Final = math.log(100)
"""No event changes a level by more in one session."""
MAX_VOLUME_MOVE: Final = math.log(1000)
"""Volumes within this factor of their median are possible for any symbol."""
UNUSUAL_MOVE: Final = math.log(1.5)
"""A move of the last bar above this and below `MAX_MOVE` is accepted with a warning."""
MAX_NAMED: Final = 3
"""Changes that the error of one symbol names; the others are counted."""
LONG_GAP: Final = 20
"""Weekdays without a bar after which another company may trade under the ticker."""
COMPANY_MOVE: Final = math.log(2)
COMPANY_DEVIATIONS: Final = 6.0
"""Deviations, scaled by the root of the gap, beyond which a level after a long gap suggests another company."""
MAD_TO_DEVIATION: Final = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""
OFTEN_UNTRADED: Final = 0.05
"""Share of days without a trade above which a note says so."""
MAX_LOG: Final = 700.0
SAMPLED_DAYS: Final = 8
"""One of so many days is in the sample of volumes."""
FACTOR_TOLERANCE: Final = 0.1
"""Log distance within which a factor is named as a power of ten or as a split."""


class SuspectKind(StrEnum):
    """The likely cause of suspect bars."""

    BAR = "bar"
    """One bar is off, and the next is back at the old level; or the last bar is off."""
    UNIT = "unit"
    """The level changes by a power of ten for good or for a stretch: another unit of the currency."""
    SPLIT = "split"
    """The level changes by the factor of a split that the adjustment lacks."""
    LEVEL = "level"
    """The level changes by another factor."""
    COMPANY = "company"
    """The level changes during a long gap."""
    VOLUME = "volume"
    """The volumes of some days are off."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SuspectBars:
    """One bar, or the edges of a stretch of bars, that contradict the history of their symbol.

    Attributes:
        kind: The likely cause.
        symbol: The symbol.
        sessions: yyyymmdd: the bar, the first session at each new level, or all days whose volume is off.
        field: What is off: open, high, low, close or volume.
        value: Its value as given.
        low: Lowest value that the history allows there.
        high: Highest value that it allows.
        factor: The value divided by what was expected.
        gap: Weekdays without a bar before it.
        is_last: Whether it is the symbol's last bar.
        is_adjustment: Whether only the adjusted price is off.
    """

    kind: SuspectKind
    symbol: str
    sessions: tuple[int, ...]
    field: str
    value: float
    low: float
    high: float
    factor: float
    gap: int = 0
    is_last: bool = False
    is_adjustment: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether a forecast from these bars is refused; a single bar in the middle is left out instead."""
        if self.kind is SuspectKind.LEVEL:
            return abs(math.log(self.factor)) > IMPOSSIBLE_LEVEL
        return self.kind in {SuspectKind.UNIT, SuspectKind.SPLIT} or (self.kind is SuspectKind.BAR and self.is_last)

    def __str__(self) -> str:
        """The finding in one sentence, as a question where only a person can answer it."""
        factor = _name_factor(self.factor)
        if self.kind is SuspectKind.VOLUME:
            first, *others = self.sessions
            more = f", and {format_count(len(others), 'more day')}" if others else ""
            return (
                f"{self.symbol} {format_date(first)}{more}: volume is {self.value:.10g}, but its other bars "
                f"suggest {self.low:.4g} to {self.high:.4g}; a factor of {factor}: a wrong unit?"
            )
        days = " and ".join(format_date(day) for day in self.sessions)
        if self.is_adjustment:
            return (
                f"{self.symbol}: the adjusted close changes by a factor of {factor} on {days}, the close does not: a "
                "wrong adjusted close, split or dividend?"
            )
        if self.kind is SuspectKind.BAR:
            return (
                f"{self.symbol} {days}: {self.field} is {self.value:g}, but its other bars suggest {self.low:.4g} to "
                f"{self.high:.4g}; a factor of {factor}: a wrong unit or a bad tick?"
            )
        if self.kind is SuspectKind.COMPANY:
            return (
                f"{self.symbol}: a gap of {self.gap} weekdays before {days} and a change of the level by a factor of "
                f"{factor}: another company?"
            )
        questions = {SuspectKind.UNIT: "currency unit?", SuspectKind.SPLIT: f"an unadjusted split of {factor}?"}
        question = questions.get(self.kind, "wrong bars?" if self.is_refused else "a real move, or a wrong bar?")
        if self.kind is SuspectKind.LEVEL:
            factor = _round(self.factor)
        return f"{self.symbol}: prices change by a factor of {factor} on {days}: {question}"


def _name_factor(factor: float) -> str:
    """A factor above 1, rounded to a power of ten or to a split's factor if it is near one."""
    size = abs(math.log(factor))
    for exact in (*(10.0**k for k in range(1, 7)), *(new / old for new, old in COMMON_SPLITS)):
        if abs(size - math.log(exact)) < FACTOR_TOLERANCE:
            return f"{exact:g}"
    return _round(factor)


def _round(factor: float) -> str:
    return f"{max(factor, 1 / factor):.3g}"


def make_suspect_error(suspects: Iterable[SuspectBars]) -> BarSuspectError:
    """The error for a symbol that is refused because of these bars."""
    first, *others = suspects
    listed = "".join(f" {other}" for other in others[: MAX_NAMED - 1])
    rest = f" {format_count(len(others) - MAX_NAMED + 1, 'more such change')}." if len(others) >= MAX_NAMED else ""
    return BarSuspectError(
        f"{first}{listed}{rest} Correct the bars, or set accept_suspect_bars (--accept-suspect-bars)",
        metadata={
            "symbol": first.symbol,
            "date": format_date(first.sessions[0]),
            "field": first.field,
            "value": repr(first.value),
            "low": repr(first.low),
            "high": repr(first.high),
        },
    )


def may_be_suspect(high: FloatArray, low: FloatArray, close: FloatArray, volume: FloatArray) -> BoolArray:
    """[S] which symbols may have suspect bars: a cheap test of adjusted prices and raw volumes [S, T].

    A symbol with False has none. A move across a gap counts from the close before the gap.
    """
    with np.errstate(all="ignore"):
        ranges = np.fmax.reduce(high / low, axis=1) > math.exp(MAX_MOVE)
        before, after = close[:, :-1], close[:, 1:]
        if np.isnan(close).any():
            before = close_before(close)[:, 1:]
        moves = np.fmax(after / before, before / after)
        largest_moves = np.fmax.reduce(moves, axis=1, initial=1.0)
        return ranges | (largest_moves > math.exp(UNUSUAL_MOVE)) | _may_have_wrong_volume(volume)


def _may_have_wrong_volume(volume: FloatArray) -> BoolArray:
    """[S] whether the highest or the last volume is far from the median of a sample of days."""
    traded = np.where(volume > 0, volume, np.nan)
    sample = np.sort(traded[:, ::SAMPLED_DAYS], axis=1)  # NaN comes last
    count = np.isfinite(sample).sum(axis=1)
    middle = sample[np.arange(len(sample)), count // 2]
    far = math.exp(MAX_VOLUME_MOVE) / 2  # the median of all days differs
    last = volume.shape[1] - 1 - np.argmax(volume[:, ::-1] > 0, axis=1)
    return (np.fmax.reduce(traded, axis=1) > middle * far) | (traded[np.arange(len(traded)), last] * far < middle)


def find_suspects(bars: BarPanel) -> tuple[SuspectBars, ...]:
    """All bars that contradict the history of their symbol, by symbol and date.

    A symbol whose bars cannot be adjusted has no suspects; `BarPanel.adjusted` refuses it.
    """
    return tuple(suspect for _, block in bars.blocks(JUDGED_AT_ONCE) for suspect in _find_suspects(block))


def _find_suspects(bars: BarPanel) -> list[SuspectBars]:
    adjusted, _ = adjust_each(bars)
    candidates = may_be_suspect(adjusted.high, adjusted.low, adjusted.close, bars.volume)
    suspects: list[SuspectBars] = []
    for row in np.flatnonzero(candidates):
        present = np.flatnonzero(np.isfinite(adjusted.close[row]))
        prices = {name: getattr(adjusted, name)[row, present] for name in ("open", "high", "low", "close")}
        raw = {name: getattr(bars, name)[row, present] for name in (*prices, "volume")}
        suspects += _SuspectFinder(bars.symbols[row], bars.sessions[present], prices, raw).find_suspects()
    return suspects


def mark_suspect_cells(bars: BarPanel, suspects: Iterable[SuspectBars], kind: SuspectKind) -> BoolArray:
    """[S, T] the days of the suspects of one kind."""
    cells = np.zeros(bars.close.shape, np.bool_)
    rows = {symbol: row for row, symbol in enumerate(bars.symbols)}
    for suspect in suspects:
        if suspect.kind is kind:
            cells[rows[suspect.symbol], np.searchsorted(bars.sessions, suspect.sessions)] = True
    return cells


def remove_suspects(bars: BarPanel, suspects: Sequence[SuspectBars]) -> BarPanel:
    """The panel without the single suspect bars, and with unknown volumes where these are suspect.

    A change of the level stays, because no single bar is wrong.
    """
    volumes = mark_suspect_cells(bars, suspects, SuspectKind.VOLUME)
    return bars.without_volumes(volumes).without_cells(mark_suspect_cells(bars, suspects, SuspectKind.BAR))


def find_untraded_cells(bars: BarPanel) -> BoolArray:
    """[S, T] bars of days on which the symbol did not trade: all prices equal the close before and the volume is 0.

    Vendors repeat the last close before the open and on days without a trade.
    """
    return np.concatenate([_find_untraded_cells(block) for _, block in bars.blocks(JUDGED_AT_ONCE)])


def _find_untraded_cells(bars: BarPanel) -> BoolArray:
    if (bars.volume[bars.present] > 0).all():
        return np.zeros(bars.close.shape, np.bool_)
    before = close_before(bars.close)
    same = np.logical_and.reduce([getattr(bars, name) == before for name in ("open", "high", "low", "close")])
    return same & (bars.volume == 0)


def find_unexplained_splits(bars: BarPanel) -> PriceJumps:
    """Jumps that look like unrecorded splits or wrong closes, without those of suspect bars."""
    jumps = bars.suspicious_jumps()
    if not jumps.count:
        return jumps
    suspects = find_suspects(bars)
    explained = {(suspect.symbol, session) for suspect in suspects for session in suspect.sessions}
    return remove_suspects(bars, suspects).suspicious_jumps(explained)


def find_sessions_with_changes(bars: BarPanel) -> NDArray[np.int32]:
    """The sessions on which a bar differs from the one before; vendors repeat bars on holidays."""
    fields = ("open", "high", "low", "close")
    same = np.logical_and.reduce([getattr(bars, name) == close_before(getattr(bars, name)) for name in fields])
    return bars.sessions[(bars.present & ~same & ~find_untraded_cells(bars)).any(axis=0)]


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TradedBars:
    """A panel without the bars of days on which a symbol did not trade.

    Attributes:
        bars: The panel. It ends with the last session on which any symbol traded.
        warnings: Notes on what was left out.
        idle: Symbols that did not trade on the last session, though others did.
    """

    bars: BarPanel
    warnings: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


def select_traded_bars(bars: BarPanel) -> TradedBars:
    """Leave out the bars of days without a trade, so that a forecast starts from the last traded session."""
    if np.minimum.reduce(bars.volume, axis=None) > 0 or not (cells := find_untraded_cells(bars)).any():
        return TradedBars(bars=bars)
    traded, notes = bars.without_cells(cells), list[str]()
    end = int(np.flatnonzero(traded.present.any(axis=0))[-1])
    if end < len(bars.sessions) - 1:
        last = int(bars.sessions[end])
        traded = traded.until(last)
        notes.append(
            f"{format_names(bars.symbols)}: no trade after {format_date(last)}: the later bars repeat the close "
            "with a volume of 0 and are left out"
        )
    for row in np.flatnonzero(cells.mean(axis=1) > OFTEN_UNTRADED):
        notes.append(
            f"{bars.symbols[row]}: no trade on {cells[row].sum()} of {len(bars.sessions)} days, which count as days "
            "without a bar"
        )
    idle = np.flatnonzero(cells[:, end])
    return TradedBars(bars=traded, warnings=tuple(notes), idle=tuple(bars.symbols[row] for row in idle))


def select_usable_bars(bars: BarPanel) -> BarPanel:
    """The panel without suspects and without days on which a symbol did not trade, on the same sessions.

    Features and targets are computed from it.
    """
    return remove_suspects(bars, find_suspects(bars)).without_cells(find_untraded_cells(bars))


def describe_suspects(bars: BarPanel) -> Iterator[str]:
    """Warnings for a training run or an evaluation: each finding, and the number of bars that are left out."""
    suspects = find_suspects(bars)
    yield from map(str, suspects)
    for cells, why in (
        (mark_suspect_cells(bars, suspects, SuspectKind.BAR), "each contradicts the history of its symbol"),
        (find_untraded_cells(bars), "the symbol did not trade: prices repeat the close before, and the volume is 0"),
    ):
        if cells.any():
            symbols = [bars.symbols[row] for row in np.flatnonzero(cells.any(axis=1))]
            yield f"{format_names(symbols)}: bars left out of windows and targets: {cells.sum()}; {why}"


@final
class _SuspectFinder:
    """Finds the suspect bars of one symbol."""

    def __init__(
        self,
        symbol: str,
        sessions: NDArray[np.int32],
        prices: Mapping[str, FloatArray],
        raw: Mapping[str, FloatArray],
    ) -> None:
        """Take the symbol's N bars: their sessions, adjusted prices and raw ones."""
        days = to_days(sessions)
        self._symbol = symbol
        self._sessions = sessions
        self._gaps = np.maximum(np.busday_count(days[:-1], days[1:]) - 1, 0)
        self._prices = prices
        self._raw = raw
        self._log_closes = np.log(prices["close"])
        self._returns = np.diff(self._log_closes)
        self._center, self._deviation = _estimate_robustly(self._returns)

    def find_suspects(self) -> list[SuspectBars]:
        """All suspect bars, by date."""
        suspects = [*self._find_moves(), *self._find_ranges(), *self._find_volumes()]
        closes = {bar.sessions[0] for bar in suspects if bar.kind is SuspectKind.BAR and bar.field == "close"}
        once = (bar for bar in suspects if bar.field in {"close", "volume"} or bar.sessions[0] not in closes)
        return sorted(once, key=lambda bar: bar.sessions)

    def _find_moves(self) -> Iterator[SuspectBars]:
        """Suspects by the returns from close to close."""
        limit = max(MAX_MOVE, DEVIATIONS * self._deviation)
        moves = self._returns - self._center
        large = np.flatnonzero(np.abs(moves) > limit)
        k = 0
        while k < len(large):
            start = int(large[k])
            # the large return that takes back the one at `start`, unless the new level stays
            later = large[k + 1 :]
            distances = np.abs(self._log_closes[later + 1] - self._log_closes[start])
            back = np.flatnonzero(distances < np.maximum(0.5, 3 * self._deviation * np.sqrt(later - start)))
            end = int(later[back[0]]) if back.size else None
            if end is None:
                yield self._make_level_suspect(start + 1, None)
                k += 1
            elif end == start + 1:
                yield self._make_bar_suspect(start + 1, "close", float(moves[start]))
                k += 2
            else:
                yield self._make_level_suspect(start + 1, end + 1)
                k = int(np.searchsorted(large, end)) + 1
        unusual = max(UNUSUAL_MOVE, DEVIATIONS * self._deviation)
        if moves.size and unusual < abs(moves[-1]) <= limit and self._gaps[-1] < LONG_GAP:
            last = len(self._sessions) - 1
            yield self._build_suspect(SuspectKind.LEVEL, last, "close", float(moves[-1]), (int(self._sessions[-1]),))
        for start in np.flatnonzero(self._gaps >= LONG_GAP):
            min_move = max(COMPANY_MOVE, COMPANY_DEVIATIONS * self._deviation * math.sqrt(float(self._gaps[start])))
            if min_move < abs(moves[start]) <= limit:
                yield self._make_company_suspect(int(start) + 1)

    def _make_level_suspect(self, bar: int, back: int | None) -> SuspectBars:
        size = float(self._returns[bar - 1])
        if back is None and bar == len(self._sessions) - 1:
            return self._make_bar_suspect(bar, "close", size)
        if back is None and bar == 1:
            return self._make_bar_suspect(0, "close", -size)
        if back is None and self._gaps[bar - 1] >= LONG_GAP:
            return self._make_company_suspect(bar)
        kind = SuspectKind.LEVEL
        if _is_near(size, (10.0**k for k in range(1, 7))):
            kind = SuspectKind.UNIT
        elif _is_near(size, (new / old for new, old in COMMON_SPLITS)):
            kind = SuspectKind.SPLIT
        sessions = [bar] if back is None else [bar, back]
        return self._build_suspect(kind, bar, "close", size, tuple(int(self._sessions[k]) for k in sessions))

    def _make_company_suspect(self, bar: int) -> SuspectBars:
        size = float(self._returns[bar - 1])
        return self._build_suspect(SuspectKind.COMPANY, bar, "close", size, (int(self._sessions[bar]),))

    def _find_ranges(self) -> Iterator[SuspectBars]:
        """Suspects by a high and a low that are too far apart."""
        with np.errstate(over="ignore"):  # infinity, far above any other range
            ranges = np.log(self._prices["high"] / self._prices["low"])
        center, deviation = _estimate_robustly(ranges)
        for bar in np.flatnonzero(ranges - center > max(MAX_MOVE, DEVIATIONS * deviation)):
            # raw prices: an adjustment that lacks the error would move the correct ones
            near = math.log(self._raw["close"][bar - 1 if bar else 1])
            high_move = math.log(self._raw["high"][bar]) - near
            low_move = math.log(self._raw["low"][bar]) - near
            yield (
                self._make_bar_suspect(int(bar), "high", high_move)
                if high_move > -low_move
                else self._make_bar_suspect(int(bar), "low", low_move)
            )

    def _find_volumes(self) -> Iterator[SuspectBars]:
        """All days whose volume is off, as one suspect: those far above the median, and the last ones far below it."""
        volume = self._raw["volume"]
        traded = np.flatnonzero(volume > 0)
        log_volumes = np.log(volume[traded])
        center, deviation = _estimate_robustly(log_volumes)
        limit = max(MAX_VOLUME_MOVE, DEVIATIONS * deviation)
        is_last_and_low = np.logical_and.accumulate(log_volumes[::-1] < center - limit)[::-1]
        wrong = np.flatnonzero((log_volumes > center + limit) | is_last_and_low)
        if wrong.size:
            size = float(log_volumes[wrong[0]] - center)
            value = float(volume[traded[wrong[0]]])
            yield SuspectBars(
                kind=SuspectKind.VOLUME,
                symbol=self._symbol,
                sessions=tuple(self._sessions[traded[wrong]].tolist()),
                field="volume",
                value=value,
                low=_compute_bounded_exp(math.log(value) - size - limit),
                high=_compute_bounded_exp(math.log(value) - size + limit),
                factor=_compute_bounded_exp(size),
            )

    def _is_adjustment(self, bar: int) -> bool:
        """Whether the close of a bar is near the close before it, or for the first bar, the one after it."""
        close = self._raw["close"]
        move = math.log(close[bar]) - math.log(close[bar - 1 if bar else 1])
        return abs(move - self._center) <= max(UNUSUAL_MOVE, DEVIATIONS * self._deviation)

    def _make_bar_suspect(self, bar: int, field: str, size: float) -> SuspectBars:
        return self._build_suspect(SuspectKind.BAR, bar, field, size, (int(self._sessions[bar]),))

    def _build_suspect(
        self, kind: SuspectKind, bar: int, field: str, size: float, sessions: tuple[int, ...]
    ) -> SuspectBars:
        value = float(self._raw[field][bar])
        expected, width = math.log(value) - size, DEVIATIONS * self._deviation
        return SuspectBars(
            kind=kind,
            symbol=self._symbol,
            sessions=sessions,
            field=field,
            value=value,
            low=_compute_bounded_exp(expected - width),
            high=_compute_bounded_exp(expected + width),
            factor=_compute_bounded_exp(size),
            gap=int(self._gaps[bar - 1]) if bar else 0,
            is_last=bar == len(self._sessions) - 1,
            is_adjustment=field == "close" and self._is_adjustment(bar),
        )


def _estimate_robustly(values: FloatArray) -> tuple[float, float]:
    """Median of values [N], and the standard deviation that their MAD gives."""
    if not values.size:
        return 0.0, DEVIATION_OF_FEW
    center = float(np.median(values))
    deviation = MAD_TO_DEVIATION * float(np.median(np.abs(values - center)))
    return center, max(deviation, MIN_DEVIATION if values.size >= FEW_RETURNS else DEVIATION_OF_FEW)


def _compute_bounded_exp(value: float) -> float:
    """exp(value) within what a double can hold."""
    return math.exp(min(max(value, -MAX_LOG), MAX_LOG))


def _is_near(size: float, factors: Iterable[float]) -> bool:
    return any(abs(abs(size) - math.log(factor)) < FACTOR_TOLERANCE for factor in factors)
