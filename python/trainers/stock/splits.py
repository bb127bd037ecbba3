"""Splits of history: train, selection (early stopping), calibration (conformal), and perhaps test.

A decision after session t belongs to a part only if its whole target interval, t + lag + 1 to t + lag + longest
horizon, is inside the part. So target intervals of two parts never overlap. Encoder windows may cross a boundary: their
bars are known at t.

An artifact may be evaluated only on days after the sessions that it has seen.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from predictor.canonical import Json, Record
from predictor.card import SOURCE, read_adoption, read_ancestors
from predictor.errors import ConfigurationError, InSampleError, format_date, format_names
from predictor.networks import Target
from predictor.sessions import SessionCalendar

PARTS = ("train", "selection", "calibration", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitShares:
    """Share of history of each part, oldest first; the shares add up to 1."""

    train: float = 0.60
    selection: float = 0.12
    calibration: float = 0.14
    test: float = 0.14

    def __post_init__(self) -> None:
        shares = (self.train, self.selection, self.calibration, self.test)
        if not (min(shares) > 0 and abs(sum(shares) - 1) < 1e-9):  # noqa: PLR2004 - rounding of decimals
            raise ConfigurationError(f"split shares are {shares}, but must be positive and add up to 1")


@dataclass(frozen=True, slots=True)
class SplitPart:
    """First and last session of one part's targets, yyyymmdd, both included."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSplits:
    """Three or four parts in time order that do not overlap."""

    train: SplitPart
    selection: SplitPart
    calibration: SplitPart
    test: SplitPart | None = None
    """None if every session serves the training, so that no day is left for a score."""

    def __post_init__(self) -> None:
        for part in self.parts:
            if part.first > part.last:
                raise ConfigurationError(f"split {part.name} ends {part.last}, before it begins {part.first}")
        for before, after in pairwise(self.parts):
            if before.last >= after.first:
                raise ConfigurationError(
                    f"target intervals of {before.name} and {after.name} meet: {before.name} ends {before.last}, "
                    f"{after.name} begins {after.first}; the model would be scored on labels seen in training"
                )

    @property
    def parts(self) -> tuple[SplitPart, ...]:
        """Oldest first."""
        training = (self.train, self.selection, self.calibration)
        return training if self.test is None else (*training, self.test)

    def require_test(self) -> SplitPart:
        """Return the test part.

        Raises:
            ConfigurationError: the splits are rolling, without a test part.
        """
        if self.test is None:
            raise ConfigurationError(
                f"the training has seen every session up to {format_date(self.calibration.last)} (--splits "
                "rolling), so no day is left for a score; train with a test split"
            )
        return self.test

    @classmethod
    def from_text(cls, text: str) -> "DataSplits":
        """Parse comma-separated ranges of ISO dates: 2000-01-03/2007-12-31,…; the fourth, the test, may be left out.

        Raises:
            ConfigurationError: the text is malformed, or the ranges overlap or are out of order.
        """
        try:
            ranges = [
                (read_day(first), read_day(last)) for first, last in (part.split("/") for part in text.split(","))
            ]
        except ValueError as error:
            raise ConfigurationError(
                f"splits is {text!r}, but must be three or four ranges of dates with commas, such as "
                "2000-01-03/2007-12-31,…, or rolling"
            ) from error
        return cls.by_dates(ranges)

    @classmethod
    def by_dates(cls, ranges: Sequence[tuple[int, int]]) -> "DataSplits":
        """Parts by their first and last session, yyyymmdd, oldest first.

        Raises:
            ConfigurationError: there are not three or four, one ends before it begins, or two overlap.
        """
        if len(ranges) not in {len(PARTS) - 1, len(PARTS)}:
            raise ConfigurationError(
                f"{len(ranges)} splits are given, but three or four are needed: {', '.join(PARTS)}; test may be "
                "left out"
            )
        return cls(**{name: SplitPart(name, first, last) for name, (first, last) in zip(PARTS, ranges, strict=False)})

    @classmethod
    def by_shares(cls, sessions: NDArray[np.int32], shares: SplitShares) -> "DataSplits":
        """Cut a date axis of sessions [T], yyyymmdd, by shares of its length."""
        sums = np.cumsum([shares.train, shares.selection, shares.calibration, shares.test])
        cuts = [0, *(round(float(s) * len(sessions)) for s in sums)]
        if any(b <= a for a, b in pairwise(cuts)):
            raise ConfigurationError(f"{len(sessions)} sessions are too few to be split into four parts")
        parts = [
            SplitPart(name, int(sessions[a]), int(sessions[b - 1]))
            for name, (a, b) in zip(PARTS, pairwise(cuts), strict=True)
        ]
        return cls(train=parts[0], selection=parts[1], calibration=parts[2], test=parts[3])


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingSplits:
    """The last sessions are for calibration, those before them for selection, the rest for training; no test.

    The model learns from the newest days, so its skill can only be measured on later days.
    """

    selection: int = 252
    """Sessions, as `calibration`."""
    calibration: int = 504
    """Bands calibrated on one calm or wild year do not fit the next."""

    def __post_init__(self) -> None:
        if min(self.selection, self.calibration) < 1:
            raise ConfigurationError(
                f"rolling splits of {self.selection} and {self.calibration} sessions are given, but each needs one or "
                "more"
            )

    @classmethod
    def from_text(cls, text: str) -> "RollingSplits":
        """Parse `rolling`, or `rolling:SELECTION,CALIBRATION` with two numbers of sessions.

        Raises:
            ConfigurationError: the text is malformed.
        """
        match = _ROLLING.fullmatch(text)
        if match is None:
            raise ConfigurationError(f"splits is {text!r}, but must be rolling, or rolling:252,504 with other lengths")
        return cls() if match[1] is None else cls(selection=int(match[1]), calibration=int(match[2]))

    def of(self, sessions: NDArray[np.int32]) -> DataSplits:
        """Cut a date axis of sessions [T], yyyymmdd.

        Raises:
            ConfigurationError: no session is left for training.
        """
        count, last = len(sessions), self.selection + self.calibration
        if count <= last:
            raise ConfigurationError(
                f"the bars have {count} sessions, but the splits take the last {last}: {self.selection} for selection "
                f"and {self.calibration} for calibration; give more bars, or shorter parts (--splits rolling:60,120)"
            )
        bounds = (0, count - last, count - self.calibration, count)
        return DataSplits.by_dates([(int(sessions[a]), int(sessions[b - 1])) for a, b in pairwise(bounds)])


_ROLLING = re.compile(r"rolling(?::([0-9]{1,6}),([0-9]{1,6}))?")


def parse_splits(text: str) -> DataSplits | RollingSplits:
    """Parse `--splits`: ranges of dates, or rolling lengths.

    Raises:
        ConfigurationError: the text is malformed.
    """
    return RollingSplits.from_text(text) if text.startswith("rolling") else DataSplits.from_text(text)


def read_day(text: str) -> int:
    """Parse an ISO date as yyyymmdd.

    Raises:
        ValueError: the text is not an ISO date.
    """
    return int(date.fromisoformat(text.strip()).strftime("%Y%m%d"))


def parse_day_flag(flag: str, text: str) -> int:
    """Parse the ISO date of a flag as yyyymmdd.

    Raises:
        ValueError: the text is not an ISO date; the message names the flag.
    """
    try:
        return read_day(text)
    except ValueError as error:
        raise ValueError(f"{flag} is {text!r}, but must be a date such as 2011-01-03") from error


def list_decisions(part: SplitPart, sessions: NDArray[np.int32], target: Target) -> NDArray[np.int64]:
    """[D] positions on the date axis of sessions [T] whose target intervals lie inside the part.

    Raises:
        ConfigurationError: the part is shorter than the longest horizon.
    """
    first = int(np.searchsorted(sessions, part.first))
    last = int(np.searchsorted(sessions, part.last, side="right")) - 1
    positions = np.arange(first - target.lag - 1, last - target.reach + 1)
    positions = positions[positions >= 0]
    if len(positions) == 0:
        raise ConfigurationError(
            f"split {part.name}, {part.first} to {part.last}, has no room for a target that reaches {target.reach} "
            "sessions; give more bars, shorter horizons or another split"
        )
    return positions


def read_splits(card: Mapping[str, Json]) -> DataSplits:
    """Read the splits from an artifact's card.

    Raises:
        ArtifactError: The card has none.
        ConfigurationError: The model was adopted without bars.
    """
    if read_adoption(card) is not None and "splits" not in card:
        raise ConfigurationError(
            "the model was adopted without bars, so it is not calibrated and has no days to be judged on; adopt it "
            "again with --bars"
        )
    record = Record(card, f"{SOURCE}, card").record("splits")
    train, selection, calibration = (_read_part(name, record.record(name)) for name in PARTS[:-1])
    test = _read_part(PARTS[-1], record.record(PARTS[-1])) if record.has(PARTS[-1]) else None
    return DataSplits(train=train, selection=selection, calibration=calibration, test=test)


def find_last_seen_session(splits: DataSplits) -> int:
    """The last session, yyyymmdd, of any label in training, selection or calibration."""
    return max(part.last for part in (splits.train, splits.selection, splits.calibration))


def find_last_ever_seen(card: Mapping[str, Json]) -> int:
    """The last session of any label that a card's model or its ancestors have seen.

    Raises:
        ArtifactError: The card lacks it.
    """
    adopted = read_adoption(card)
    return max(
        find_last_seen_session(read_splits(card)),
        *(ancestor.seen_until for ancestor in read_ancestors(card)),
        0 if adopted is None else adopted.trained_until,
    )


def describe_origin(card: Mapping[str, Json]) -> tuple[str, ...]:
    """A note on a fine-tuned model; none on others.

    Raises:
        ArtifactError: The card's record of ancestors is incomplete.
    """
    ancestors = read_ancestors(card)
    if not ancestors:
        return ()
    symbols = list(dict.fromkeys(symbol for ancestor in ancestors for symbol in ancestor.symbols))
    first, last = min(ancestor.seen_from for ancestor in ancestors), max(ancestor.seen_until for ancestor in ancestors)
    note = (
        f"fine-tuned from the weights {ancestors[0].weights_hash[:16]}, trained on labels from {format_date(first)} to "
        f"{format_date(last)} of {format_names(symbols)}; baselines are fitted on the model's own splits only"
    )
    return (note,)


def select_unseen_part(
    sessions: NDArray[np.int32],
    last_seen: int,
    target: Target,
    calendar: SessionCalendar,
    *,
    start: int | None = None,
    end: int | None = None,
) -> SplitPart:
    """The part with the targets of all decision days after the last session seen.

    Args:
        sessions: [T] of the bars, yyyymmdd.
        last_seen: Last session seen, yyyymmdd.
        target: The forecast quantity.
        calendar: Gives the first allowed day if the bars end before it.
        start: First decision day; None for the first allowed one.
        end: Last decision day; None for the last with a known outcome.

    Raises:
        InSampleError: The model has seen the bars or the requested days.
        ConfigurationError: No bar is left for an outcome, or `end` is before `start`.
    """
    first = int(np.searchsorted(sessions, last_seen, side="right"))
    allowed = int(sessions[first]) if first < len(sessions) else int(calendar.following(last_seen, 1)[0])
    if start is not None and start <= last_seen:
        raise _make_seen_days_error(f"decision days start on {format_date(start)}", last_seen, allowed)
    if end is not None and end < allowed:
        raise _make_seen_days_error(f"decision days end on {format_date(end)}", last_seen, allowed)
    if start is not None and end is not None and end < start:
        raise ConfigurationError(
            f"the last decision day, {format_date(end)}, is before the first, {format_date(start)}"
        )
    if first == len(sessions):
        raise _make_seen_days_error(f"the bars end on {format_date(int(sessions[-1]))}", last_seen, allowed)
    if start is not None:
        first = int(np.searchsorted(sessions, start))
    last = len(sessions) - 1
    if end is not None:
        last = min(last, int(np.searchsorted(sessions, end, side="right")) - 1 + target.reach)
    begin = first + target.lag + 1
    if begin > last:
        raise ConfigurationError(
            f"the bars, which end on {format_date(int(sessions[-1]))}, have no outcome of a decision after "
            f"{format_date(allowed if start is None else start)}; give later bars"
        )
    return SplitPart("test", int(sessions[begin]), int(sessions[last]))


def _make_seen_days_error(request: str, last_seen: int, allowed: int) -> InSampleError:
    return InSampleError(
        f"{request}, but the artifact has seen labels up to {format_date(last_seen)}, in training, selection or "
        f"calibration; scores there would be meaningless. The first allowed decision day is {format_date(allowed)}"
    )


def _read_part(name: str, record: Record) -> SplitPart:
    return SplitPart(name, record.integer("first"), record.integer("last"))
