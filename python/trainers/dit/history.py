"""How a model came to be, from the notes beside its parts: curves of loss, rewards and distances."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from trainers.dit.errors import ModelError
from trainers.dit.notes import TRAINING, TUNING, Notes
from trainers.dit.rewards import KINDS
from trainers.media.course import pace_of
from trainers.media.curves import TrainingCurve


def curves_of(notes: Notes) -> list[TrainingCurve]:
    """What changed while a model learnt, in the order in which it is looked at; none where there are no notes.

    Raises:
        ModelError: the notes are not as this program writes them.
    """
    try:
        return [curve for name, read in READERS.items() if name in notes for curve in read(notes[name])]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(
            f"what {' and '.join(notes)} in the model's folder say is not as a training writes it ({error!r}); restore "
            "them, or remove them, and no curves are shown"
        ) from error


def _trained(told: Mapping[str, Any]) -> Iterator[TrainingCurve]:
    each = pace_of(told["recipe"]["steps"]).round_steps
    losses: Sequence[float] = told["curves"]["loss"]
    yield TrainingCurve(
        name="Loss",
        over="steps",
        points=tuple((each * (number + 1), float(loss)) for number, loss in enumerate(losses)),
        note="Mean of each round. Much of it is noise that cannot be foretold; images improve where it hardly falls.",
    )
    yield from _looked(told["curves"]["looks"], told["facts"], "steps of the training")


def _tuned(told: Mapping[str, Any]) -> Iterator[TrainingCurve]:
    """Rewards of a tuning: of what was drawn to learn from, then of held-out prompts."""
    recipe, rounds = told["recipe"], told["tuned"]["rounds"]
    yield TrainingCurve(
        name=f"{_title(recipe['reward'])}, drawn to learn from",
        over="iterations of the tuning",
        points=tuple((number + 1, float(one["reward"])) for number, one in enumerate(rounds)),
        note="By chance, so lower than what the model draws without.",
    )
    yield from _looked(told["tuned"]["looks"], told["facts"], "steps of the tuning")


def _looked(looks: Sequence[Mapping[str, Any]], facts: Notes, over: str) -> Iterator[TrainingCurve]:
    """A curve for each reward that looks at held-out prompts asked; a distance is shown as one, without its minus."""
    for name in looks[0]["rewards"] if looks else ():
        known = facts[name] if name in facts else None  # noqa: SIM401
        sign = 1 if known is None else -1
        points = tuple((float(look["window"]), sign * float(look["rewards"][name])) for look in looks)
        if known is None:
            yield TrainingCurve(name=f"{_title(name)}, held-out prompts", over=over, points=points)
            continue
        yield TrainingCurve(
            name=f"{_title(name)}, held-out prompts",
            over=over,
            points=points,
            level=float(known["floor"]),
            level_name=f"the distance that {known['images']:,} real images have",
            note=f"Of {known['images']:,} images and {known['against']:,} real ones; less is better.",
        )


def _title(name: str) -> str:
    return KINDS[name].title if name in KINDS else name


READERS: Final = MappingProxyType({TRAINING: _trained, TUNING: _tuned})
