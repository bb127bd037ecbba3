"""The parts of history that all members of an ensemble share."""

from collections.abc import Callable, Mapping
from typing import NoReturn

from predictor.errors import ConfigurationError, shown_date
from trainers.stock.splits import Part, Splits


def common_splits(members: Mapping[str, Splits]) -> Splits:
    """What an ensemble may be calibrated on and judged by.

    Its calibration and test part are those days that lie in every member's own. So each of them lies after all labels
    that any member was trained or selected on, and the test part also after all that any was calibrated on. The
    training part, on which baselines are fitted, is shared too; `selection` spans what any member has seen after it.

    Args:
        members: the parts that each was made from.

    Raises:
        ConfigurationError: they have no calibration or test days in common.
    """
    return Splits(
        train=_shared("train", members, lambda splits: splits.train),
        selection=Part(
            "selection",
            min(splits.selection.first for splits in members.values()),
            max(splits.selection.last for splits in members.values()),
        ),
        calibration=_shared("calibration", members, lambda splits: splits.calibration),
        test=_shared("test", members, lambda splits: splits.test),
    )


def _shared(name: str, members: Mapping[str, Splits], part_of: Callable[[Splits], Part]) -> Part:
    """The days that lie in this part of every member."""
    parts = {member: part_of(splits) for member, splits in members.items()}
    latest = max(parts, key=lambda member: parts[member].first)
    earliest = min(parts, key=lambda member: parts[member].last)
    if parts[latest].first > parts[earliest].last:
        _refuse(name, earliest, parts[earliest], latest, parts[latest])
    return Part(name, parts[latest].first, parts[earliest].last)


def _refuse(name: str, a: str, one: Part, b: str, other: Part) -> NoReturn:
    raise ConfigurationError(
        f"the {name} parts of {a}, {_range(one)}, and {b}, {_range(other)}, share no day; an ensemble is calibrated "
        "and judged on days after all that any member was trained and selected on: train the members on the same "
        "splits (--splits), or leave one out"
    )


def _range(part: Part) -> str:
    return f"{shown_date(part.first)} to {shown_date(part.last)}"
