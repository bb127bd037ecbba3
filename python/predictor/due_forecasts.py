"""Labels and scores of a ledger's forecasts that fell due, from its bars."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.bars.suspects import SuspectBars, SuspectKind, find_suspects, may_be_suspect, remove_suspects
from predictor.errors import format_date
from predictor.ledger import ForecastRecord, Label, LabelStatus, Ledger, LedgerEvent, Score
from predictor.networks import Target, TargetKind

PATIENCE: Final = 5
"""Sessions that a missing bar is waited for."""
REVISED_BARS: Final = "revised bars"
"""Kind of the event of a revision that needs a look."""
_SAME_OUTCOME: Final = 1e-9
"""Largest change by rounding, where a dividend rebased the adjusted closes."""
_LARGE_REVISION: Final = 0.0025


@dataclass(frozen=True, slots=True, kw_only=True)
class DueForecasts:
    """Counts of labels that were recorded."""

    scored: int = 0
    unscorable: int = 0
    revised: int = 0
    """Labels that follow revised bars; the evidence keeps the first ones."""
    first_open: int = 0
    """Number of the first forecast that waits for an outcome; the next call may begin there."""

    @property
    def rows(self) -> int:
        """All labels."""
        return self.scored + self.unscorable + self.revised


@dataclass(frozen=True, slots=True)
class _DueLabel:
    """One horizon of a forecast whose session has a bar of some symbol after or on it."""

    forecast: ForecastRecord
    horizon: int
    session: int

    def contains(self, suspect: SuspectBars) -> bool:
        """Whether a suspect bar lies between the base and this session, both included."""
        first, last = self.forecast.base_session, self.session
        return suspect.symbol == self.forecast.symbol and any(first <= day <= last for day in suspect.sessions)

    def crosses(self, suspect: SuspectBars) -> bool:
        """Whether the level of the prices changes after the base and up to this session."""
        is_level = suspect.kind is not SuspectKind.BAR
        return is_level and self.contains(suspect) and max(suspect.sessions) > self.forecast.base_session


def score_due_forecasts(ledger: Ledger, *, patience: int = PATIENCE, first_open: int = 0) -> DueForecasts:
    """Label and score every forecast whose target session is in the ledger; a second run adds nothing.

    Splits and dividends after a forecast do not change its score. A symbol without the bars is waited for, then it is
    unscorable. So is an outcome from bars that contradict the history of their symbol, such as a bad tick. An outcome
    that was revised by more than 25 basis points is recorded as an event.

    Args:
        ledger: with the forecasts and bars.
        patience: sessions that a missing bar is waited for.
        first_open: of the last result, to look only at forecasts that were open then and later ones.
    """
    waiting = _list_waiting(ledger, first_open)
    last = ledger.last_session
    due = [due_label for due_label in waiting if due_label.session <= last]
    revised = list(_list_revised_labels(ledger))
    dues = [*due, *(_DueLabel(forecast, label.horizon, label.session) for forecast, label in revised)]
    if not dues:
        return DueForecasts(first_open=_find_first_open(ledger, waiting, ()))
    batch = ledger.receipt.batch
    panel = ledger.panel(first=min(due_label.forecast.base_session for due_label in dues), batch=batch)
    suspects = _find_impossible_bars(ledger, panel, batch)
    values = _compute_outcomes(remove_suspects(panel, suspects), dues)
    for k, due_label in enumerate(dues):
        if any(due_label.crosses(suspect) for suspect in suspects):
            values[k] = np.nan
    labels = [
        label
        for due_label, value in zip(due, values[: len(due)], strict=True)
        if (label := _label(due_label, value, panel, batch, suspects, patience)) is not None
    ]
    forecasts = {due_label.forecast.number: due_label.forecast for due_label in dues}
    changed = list(_list_revisions(revised, values[len(due) :], batch))
    events = _report_large_revisions(changed, forecasts, batch)
    everything = [*labels, *(label for _, label in changed)]
    ledger.append([*everything, *_compute_scores(everything, forecasts), *events])
    scored_count = sum(label.status is LabelStatus.SCORED for label in labels)
    return DueForecasts(
        scored=scored_count,
        unscorable=len(labels) - scored_count,
        revised=len(changed),
        first_open=_find_first_open(ledger, waiting, labels),
    )


def _list_waiting(ledger: Ledger, first: int) -> list[_DueLabel]:
    """The horizons without a label of the forecasts from this number on."""
    open_forecasts = ledger.records(
        ForecastRecord,
        "id >= ? and length(target_sessions) / 10 > "  # as many as horizons
        "(select count(*) from label where label.forecast = forecast.id and revision = 0)",
        (first,),
    )
    numbers = [forecast.number for forecast in open_forecasts]
    first = min(numbers, default=0)
    labelled_horizons = {
        (row["forecast"], row["horizon"])
        for row in ledger.query("select forecast, horizon from label where forecast >= ? and revision = 0", (first,))
    }
    return [
        _DueLabel(forecast, horizon, session)
        for forecast in open_forecasts
        for horizon, session in zip(forecast.horizons, forecast.target_sessions, strict=True)
        if (forecast.number, horizon) not in labelled_horizons
    ]


def _find_first_open(ledger: Ledger, waiting: Iterable[_DueLabel], labels: Iterable[Label]) -> int:
    """The number of the first forecast that still waits after these labels, or of the next one."""
    labelled = {(label.forecast, label.horizon) for label in labels}
    still = (
        due_label.forecast.number
        for due_label in waiting
        if (due_label.forecast.number, due_label.horizon) not in labelled
    )
    newest = ledger.query("select max(id) as newest from forecast")[0]["newest"] or 0
    return next(still, newest + 1)


def _list_revised_labels(ledger: Ledger) -> Iterator[tuple[ForecastRecord, Label]]:
    """The newest label of each horizon whose bars have changed since all labels were made."""
    known = ledger.query(
        "select (select bars_batch from label order by id desc limit 1) as batch, "
        "(select max(session) from label) as session"
    )[0]
    blocks = ledger.query(
        "select symbol, min(first_session) as first, max(last_session) as last from bar "
        "where batch > ? and first_session <= ? group by symbol",
        (known["batch"] or 0, known["session"] or 0),
    )
    for block in blocks:
        forecasts = ledger.records(ForecastRecord, "symbol = ? and as_of <= ?", (block["symbol"], block["last"]))
        for forecast in forecasts:
            labels = ledger.records(Label, "forecast = ? and session >= ?", (forecast.number, block["first"]))
            yield from ((forecast, label) for label in {label.horizon: label for label in labels}.values())


def _find_impossible_bars(ledger: Ledger, panel: BarPanel, batch: int) -> list[SuspectBars]:
    """Bars of the panel from which no forecast would be made, judged by the whole history of their symbols."""
    adjusted, _ = panel.adjusted_each()
    candidates = may_be_suspect(adjusted.high, adjusted.low, adjusted.close, panel.volume)
    if not candidates.any():
        return []
    suspects = find_suspects(ledger.panel([panel.symbols[row] for row in np.flatnonzero(candidates)], batch=batch))
    first = int(panel.sessions[0])
    recent = [replace(suspect, sessions=tuple(day for day in suspect.sessions if day >= first)) for suspect in suspects]
    return [
        suspect for suspect in recent if suspect.sessions and (suspect.is_refused or suspect.kind is SuspectKind.BAR)
    ]


def _compute_outcomes(panel: BarPanel, dues: Sequence[_DueLabel]) -> FloatArray:
    """[N] the target's values; NaN if a bar is missing."""
    values, groups = np.full(len(dues), np.nan), dict[tuple[int, int, str], list[int]]()
    for k, due_label in enumerate(dues):
        groups.setdefault(
            (due_label.forecast.base_session, due_label.session, due_label.forecast.target_kind), []
        ).append(k)
    rows = {symbol: row for row, symbol in enumerate(panel.symbols)}
    known = set(panel.sessions.tolist())
    for (base, session, kind), places in groups.items():
        if base in known and session in known:
            symbol_rows = sorted({rows[dues[k].forecast.symbol] for k in places if dues[k].forecast.symbol in rows})
            bars = panel.between(base, session).rows(symbol_rows)
            target = Target(kind=TargetKind(kind), lag=0, horizons=(len(bars.sessions) - 1,))
            labels = target.labels(bars.adjusted_each()[0])[:, 0, 0]
            by_symbol = dict(zip(bars.symbols, labels.tolist(), strict=True))
            values[places] = [by_symbol.get(dues[k].forecast.symbol, np.nan) for k in places]
    return values


def _label(
    due_label: _DueLabel, value: float, panel: BarPanel, batch: int, suspects: Sequence[SuspectBars], patience: int
) -> Label | None:
    """The label; None while a missing bar, or the correction of an impossible one, is waited for."""
    label = Label(
        forecast=due_label.forecast.number,
        horizon=due_label.horizon,
        session=due_label.session,
        value=None,
        bars_batch=batch,
    )
    if np.isfinite(value):
        return replace(label, value=float(value))
    if int((panel.sessions > due_label.session).sum()) < patience:
        return None
    return replace(label, status=LabelStatus.UNSCORABLE, reason=_explain_missing(due_label, panel, suspects))


def _explain_missing(due_label: _DueLabel, panel: BarPanel, suspects: Sequence[SuspectBars]) -> str:
    if due_label.forecast.symbol not in panel.symbols:
        return "no bars"
    present = panel.sessions[panel.present[panel.symbols.index(due_label.forecast.symbol)]]
    if due_label.session in present:
        for suspect in filter(due_label.contains, suspects):
            return str(suspect)
        base = format_date(due_label.forecast.base_session)
        return f"bars are missing between {base} and {format_date(due_label.session)}"
    if (present > due_label.session).any():
        return f"halted on {format_date(due_label.session)}"
    return f"no bar since {format_date(int(present[-1]))}"


def _list_revisions(
    revised: Sequence[tuple[ForecastRecord, Label]], values: FloatArray, batch: int
) -> Iterator[tuple[float, Label]]:
    """Labels whose value differs from the one before, with the difference; a lost value keeps the old label."""
    for (_, label), value in zip(revised, values, strict=True):
        change = abs(value - label.value) if label.value is not None else 0.0
        if np.isfinite(value) and (label.value is None or change > _SAME_OUTCOME):
            status = LabelStatus.SCORED
            number = label.revision + 1
            new = replace(label, revision=number, value=float(value), status=status, reason="", bars_batch=batch)
            yield change, new


def _report_large_revisions(
    changed: Iterable[tuple[float, Label]], forecasts: dict[int, ForecastRecord], batch: int
) -> Iterator[LedgerEvent]:
    """One event per symbol, with its largest change."""
    largest: dict[str, tuple[float, int]] = {}
    for change, label in changed:
        symbol = forecasts[label.forecast].symbol
        largest[symbol] = max(largest.get(symbol, (0.0, 0)), (change, label.session))
    for symbol, (change, session) in largest.items():
        if change > _LARGE_REVISION:
            reason = f"{symbol}: its outcome of {format_date(session)} changed by {10000 * change:.0f} basis points"
            yield LedgerEvent(kind=REVISED_BARS, session=session, reason=reason, key=f"{REVISED_BARS} {batch} {symbol}")


def _compute_scores(labels: Iterable[Label], forecasts: dict[int, ForecastRecord]) -> Iterator[Score]:
    for label in labels:
        if label.value is not None:
            forecast = forecasts[label.forecast]
            values = forecast.values[forecast.horizons.index(label.horizon)]
            score = score_outcome(label.value, values, np.array(forecast.quantiles))
            yield replace(score, forecast=label.forecast, horizon=label.horizon, revision=label.revision)


def score_outcome(outcome: float, values: FloatArray, levels: FloatArray) -> Score:
    """Score the quantiles [Q] of one horizon at levels [Q]."""
    error = outcome - values
    is_below = outcome <= values
    ends = (levels[0] / 2, (1 + levels[-1]) / 2)
    return Score(
        forecast=0,
        horizon=0,
        pinball=float(np.maximum(levels * error, (levels - 1) * error).mean()),
        below="".join(map(str, is_below.astype(int).tolist())),
        is_inside=bool(values[0] <= outcome <= values[-1]),
        pit=float(np.interp(outcome, values, levels, left=ends[0], right=ends[1])),
    )
