"""Recorded forecasts with their outcomes, read in parts of bounded size."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from predictor.dates import LATEST
from predictor.ledger.ledger import Ledger
from predictor.ledger.records import ForecastRecord, ForecastRole, Label, Score

PART: Final = 200
"""Most forecasts of a part."""
_WINDOW: Final = 5_000
"""Most rows that are searched for one part, so that other readers and writers need not wait long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFilter:
    """Which forecasts to list; empty fields do not restrict."""

    forecast_id: str = ""
    model: str = ""
    version: int = 0
    symbol: str = ""
    first_session: int = 0
    """First session of the last bar, yyyymmdd."""
    last_session: int = 0
    roles: tuple[ForecastRole, ...] = ()
    newest: int = 0
    """Only the last ones that were recorded."""

    @property
    def condition(self) -> tuple[str, list[str | int | list[str]]]:
        """A SQL condition on the table `forecast`, and its values."""
        conditions: dict[str, str | int | list[str]] = {
            "forecast_id = ?": self.forecast_id,
            "model = ?": self.model,
            "version = ?": self.version,
            "symbol = ?": self.symbol,
            "as_of >= ?": self.first_session,
            "as_of <= ?": self.last_session,
            "role = any(?)": [str(role) for role in self.roles],
        }
        filters = {condition: value for condition, value in conditions.items() if value}
        return " and ".join(filters) or "true", list(filters.values())


class RecordedOutcome(NamedTuple):
    """What happened after one horizon of a forecast."""

    label: Label
    score: Score | None
    """None if the label is unscorable."""


class RecordedForecast(NamedTuple):
    """A forecast with the outcomes that are known so far, ordered by horizon and revision."""

    forecast: ForecastRecord
    outcomes: tuple[RecordedOutcome, ...]


def read_outcomes(ledger: Ledger, forecasts: Sequence[ForecastRecord]) -> list[RecordedForecast]:
    """Read the outcomes of forecasts, in the same order."""
    condition, numbers = "forecast = any(?)", [forecast.number for forecast in forecasts]
    labels = ledger.records(Label, condition, (numbers,))  # first, so that each one's score is there, too
    scores = {
        (score.forecast, score.horizon, score.revision): score for score in ledger.records(Score, condition, (numbers,))
    }
    outcomes: defaultdict[int, list[RecordedOutcome]] = defaultdict(list)
    for label in sorted(labels, key=lambda label: (label.horizon, label.revision)):
        score = scores.get((label.forecast, label.horizon, label.revision))
        outcomes[label.forecast].append(RecordedOutcome(label, score))
    return [RecordedForecast(forecast, tuple(outcomes[forecast.number])) for forecast in forecasts]


@final
class ForecastListing:
    """The forecasts of a filter that are recorded now, oldest first."""

    def __init__(self, ledger: Ledger, selection: ForecastFilter) -> None:
        self._ledger = ledger
        self._condition, self._values = selection.condition
        days = (selection.first_session, selection.last_session or LATEST)
        span = "select min(id) as first, max(id) as last from forecast where as_of between ? and ?"
        bounds = ledger.query(span, days)[0]
        self._first, self._last = (bounds["first"] or 1) - 1, bounds["last"] or 0
        self._missing_count = selection.newest
        """Forecasts whose number is still searched for, backwards from the last one."""
        self._position = self._last if selection.newest else self._first
        """The number of the row before the next one."""

    @property
    def is_done(self) -> bool:
        """Whether all parts were read."""
        return not self._missing_count and self._position >= self._last

    def read_part(self) -> list[RecordedForecast]:
        """Read the next part; empty if the searched rows hold no such forecast."""
        if self._missing_count:
            begin = max(self._first, self._position - _WINDOW)
            rows = self._ledger.query(
                f"select id from forecast where id > ? and id <= ? and {self._condition} order by id desc limit ?",  # noqa: S608 - as above
                (begin, self._position, *self._values, self._missing_count),
            )
            self._missing_count -= len(rows)
            self._position = begin if self._missing_count else rows[-1]["id"] - 1
            if self._position == self._first:
                self._missing_count = 0
            return []
        end = min(self._last, self._position + _WINDOW)
        forecasts = self._ledger.records(
            ForecastRecord,
            f"id in (select id from forecast where id > ? and id <= ? and {self._condition} order by id limit ?)",  # noqa: S608 - no value is in the text
            (self._position, end, *self._values, PART),
        )
        self._position = forecasts[-1].number if len(forecasts) == PART else end
        return read_outcomes(self._ledger, forecasts)
