"""What an artifact has seen, and which days it may therefore be judged on."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from predictor.canonical import Json, Record
from predictor.card import SOURCE, ancestors_of
from predictor.errors import ConfigurationError, InSampleError, listed, shown_date
from predictor.networks import Target
from predictor.sessions import SessionCalendar
from trainers.stock.splits import Part, Splits


def splits_of(card: Mapping[str, Json]) -> Splits:
    """The four parts that an artifact was made from.

    Raises:
        ArtifactError: the card does not tell.
    """
    record = Record(card, f"{SOURCE}, card").record("splits")
    train, selection, calibration, test = (
        _part(name, record.record(name)) for name in ("train", "selection", "calibration", "test")
    )
    return Splits(train=train, selection=selection, calibration=calibration, test=test)


def seen_until(splits: Splits) -> int:
    """The last session, yyyymmdd, that a label of training, selection or calibration may touch."""
    return max(part.last for part in (splits.train, splits.selection, splits.calibration))


def ever_seen(card: Mapping[str, Json]) -> int:
    """The last session that a label touched which the model of a card, or any that it started from, has seen.

    Raises:
        ArtifactError: the card does not tell.
    """
    return max(seen_until(splits_of(card)), *(one.seen_until for one in ancestors_of(card)), 0)


def origin_notes(card: Mapping[str, Json]) -> tuple[str, ...]:
    """The notes on a model that started from another's weights; none on one that did not.

    Raises:
        ArtifactError: the card tells of such weights, but not what it must.
    """
    ancestors = ancestors_of(card)
    if not ancestors:
        return ()
    symbols = list(dict.fromkeys(symbol for one in ancestors for symbol in one.symbols))
    first, last = min(one.seen_from for one in ancestors), max(one.seen_until for one in ancestors)
    note = (
        f"fine-tuned from the weights {ancestors[0].weights_hash[:16]}, which had seen labels {shown_date(first)} to "
        f"{shown_date(last)} of {listed(symbols)}; baselines know of these only what the model's own parts hold"
    )
    return (note,)


def unseen_part(
    sessions: NDArray[np.int32],
    seen: int,
    target: Target,
    calendar: SessionCalendar,
    *,
    start: int | None = None,
    end: int | None = None,
) -> Part:
    """The part that holds the targets of all decision days after what was seen.

    Args:
        sessions: [T] of the bars, yyyymmdd.
        seen: the last session that was seen, yyyymmdd.
        target: what is forecast.
        calendar: names the first allowed day where the bars do not reach it.
        start: the first decision day that is wanted; None for the first that is allowed.
        end: the last; None for the last whose outcome the bars hold.

    Raises:
        InSampleError: the bars, or the days that are wanted, lie within what was seen.
        ConfigurationError: no bar is left for an outcome, or `end` lies before `start`.
    """
    first = int(np.searchsorted(sessions, seen, side="right"))
    allowed = int(sessions[first]) if first < len(sessions) else int(calendar.following(seen, 1)[0])
    if start is not None and start <= seen:
        raise _refusal(f"decision days from {shown_date(start)} on are asked for", seen, allowed)
    if end is not None and end < allowed:
        raise _refusal(f"decision days up to {shown_date(end)} are asked for", seen, allowed)
    if start is not None and end is not None and end < start:
        raise ConfigurationError(
            f"the last decision day, {shown_date(end)}, lies before the first, {shown_date(start)}"
        )
    if first == len(sessions):
        raise _refusal(f"the bars end on {shown_date(int(sessions[-1]))}", seen, allowed)
    if start is not None:
        first = int(np.searchsorted(sessions, start))
    last = len(sessions) - 1
    if end is not None:
        last = min(last, int(np.searchsorted(sessions, end, side="right")) - 1 + target.reach)
    begin = first + target.lag + 1
    if begin > last:
        raise ConfigurationError(
            f"the bars, which end on {shown_date(int(sessions[-1]))}, hold no outcome of a decision after "
            f"{shown_date(allowed if start is None else start)}; give later bars"
        )
    return Part("test", int(sessions[begin]), int(sessions[last]))


def _refusal(asked: str, seen: int, allowed: int) -> InSampleError:
    return InSampleError(
        f"{asked}, but the artifact has seen labels up to {shown_date(seen)}, in training, selection or calibration; "
        f"scores there would mean nothing. The first allowed decision day is {shown_date(allowed)}"
    )


def _part(name: str, record: Record) -> Part:
    return Part(name, record.integer("first"), record.integer("last"))
