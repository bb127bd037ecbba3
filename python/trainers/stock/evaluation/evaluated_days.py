"""The sessions that an artifact has seen, and the days on which it may be evaluated."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from predictor.canonical import Json, Record
from predictor.card import SOURCE, adoption_of, ancestors_of
from predictor.errors import ConfigurationError, InSampleError, listed, shown_date
from predictor.networks import Target
from predictor.sessions import SessionCalendar
from trainers.stock.splits import PARTS, DataSplits, SplitPart


def read_splits(card: Mapping[str, Json]) -> DataSplits:
    """Read the splits from an artifact's card.

    Raises:
        ArtifactError: The card has none.
        ConfigurationError: The model was adopted without bars.
    """
    if adoption_of(card) is not None and "splits" not in card:
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
    adopted = adoption_of(card)
    return max(
        find_last_seen_session(read_splits(card)),
        *(one.seen_until for one in ancestors_of(card)),
        0 if adopted is None else adopted.trained_until,
    )


def describe_origin(card: Mapping[str, Json]) -> tuple[str, ...]:
    """A note on a fine-tuned model; none on others.

    Raises:
        ArtifactError: The card's record of ancestors is incomplete.
    """
    ancestors = ancestors_of(card)
    if not ancestors:
        return ()
    symbols = list(dict.fromkeys(symbol for one in ancestors for symbol in one.symbols))
    first, last = min(one.seen_from for one in ancestors), max(one.seen_until for one in ancestors)
    note = (
        f"fine-tuned from the weights {ancestors[0].weights_hash[:16]}, trained on labels from {shown_date(first)} to "
        f"{shown_date(last)} of {listed(symbols)}; baselines are fitted on the model's own splits only"
    )
    return (note,)


def select_unseen_part(
    sessions: NDArray[np.int32],
    seen: int,
    target: Target,
    calendar: SessionCalendar,
    *,
    start: int | None = None,
    end: int | None = None,
) -> SplitPart:
    """The part with the targets of all decision days after the last session seen.

    Args:
        sessions: [T] of the bars, yyyymmdd.
        seen: Last session seen, yyyymmdd.
        target: The forecast quantity.
        calendar: Gives the first allowed day if the bars end before it.
        start: First decision day; None for the first allowed one.
        end: Last decision day; None for the last with a known outcome.

    Raises:
        InSampleError: The model has seen the bars or the requested days.
        ConfigurationError: No bar is left for an outcome, or `end` is before `start`.
    """
    first = int(np.searchsorted(sessions, seen, side="right"))
    allowed = int(sessions[first]) if first < len(sessions) else int(calendar.following(seen, 1)[0])
    if start is not None and start <= seen:
        raise _describe_refusal(f"decision days start on {shown_date(start)}", seen, allowed)
    if end is not None and end < allowed:
        raise _describe_refusal(f"decision days end on {shown_date(end)}", seen, allowed)
    if start is not None and end is not None and end < start:
        raise ConfigurationError(f"the last decision day, {shown_date(end)}, is before the first, {shown_date(start)}")
    if first == len(sessions):
        raise _describe_refusal(f"the bars end on {shown_date(int(sessions[-1]))}", seen, allowed)
    if start is not None:
        first = int(np.searchsorted(sessions, start))
    last = len(sessions) - 1
    if end is not None:
        last = min(last, int(np.searchsorted(sessions, end, side="right")) - 1 + target.reach)
    begin = first + target.lag + 1
    if begin > last:
        raise ConfigurationError(
            f"the bars, which end on {shown_date(int(sessions[-1]))}, have no outcome of a decision after "
            f"{shown_date(allowed if start is None else start)}; give later bars"
        )
    return SplitPart("test", int(sessions[begin]), int(sessions[last]))


def _describe_refusal(asked: str, seen: int, allowed: int) -> InSampleError:
    return InSampleError(
        f"{asked}, but the artifact has seen labels up to {shown_date(seen)}, in training, selection or calibration; "
        f"scores there would be meaningless. The first allowed decision day is {shown_date(allowed)}"
    )


def _read_part(name: str, record: Record) -> SplitPart:
    return SplitPart(name, record.integer("first"), record.integer("last"))
