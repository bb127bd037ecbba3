"""Watches that a reward is not raised at the cost of what it does not see, such as the variety of images.

A second metric, the quality, is looked at beside the reward: beyond a bound from where it was at the start the training
ends, and the best weights that were within it stay.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

from trainers.dit.errors import GateError
from trainers.dit.watching import EvaluationSnapshot, SampleWatch, figure_of
from trainers.loop import EpochReport, Report, TrainingNotice, TrainingRun


@final
class RewardGate:
    """Looks at reward and quality before a training, after every so many iterations, and after the last.

    Its state belongs into the loop's.

    Args:
        watch: asks both.
        reward: by name.
        quality: by name; another one.
        bound: how many times worse than at the start the quality may become: a distance so many times as large, or
            another number divided by it.
        every: iterations from one look to the next.

    Attributes:
        looks: what was found; the first is the start.

    Raises:
        GateError: the quality is the reward, or the bound is below 1.
    """

    def __init__(self, watch: SampleWatch, *, reward: str, quality: str, bound: float, every: int) -> None:
        if reward == quality:
            raise GateError(f"{reward} is the reward and cannot be the gate too: it would see no harm; choose another")
        if bound < 1 or every < 1:
            raise GateError(f"bound {bound:g} and every {every} must both be 1 or more")
        self._watch = watch
        self._reward = reward
        self._quality = quality
        self._bound = bound
        self._every = every
        self.looks: list[EvaluationSnapshot] = []

    @property
    def facts(self) -> Mapping[str, Mapping[str, float]]:
        """What must be known to read the numbers, by the reward's name."""
        return self._watch.facts

    def accepts(self, look: EvaluationSnapshot) -> bool:
        """Whether the quality is within the bound."""
        now, start = look.rewards[self._quality], self.looks[0].rewards[self._quality]
        return now >= (start * self._bound if start < 0 else start / self._bound)

    @property
    def refused(self) -> EvaluationSnapshot | None:
        """The look that ended the training; None where none did."""
        return next((look for look in self.looks if not self.accepts(look)), None)

    @property
    def kept(self) -> EvaluationSnapshot:
        """The look whose weights stay: of those that are accepted, the first of the best reward."""
        return max(filter(self.accepts, self.looks), key=lambda look: look.rewards[self._reward])

    def watched(self, run: TrainingRun[Any], reports: Iterable[Report]) -> Iterator[Report]:
        """The reports of a training, and a notice after each look; they end where one is refused.

        Raises:
            RewardError: what a reward says is no number.
        """
        if not self.looks:
            yield self._looked(run)
        if self.refused is not None:
            return
        for report in reports:
            yield report
            if isinstance(report, EpochReport) and self._is_due(report):
                yield self._looked(run)
                if self.refused is not None:
                    return

    @property
    def verdict(self) -> str:
        """What is kept and why, with its figures."""
        start, kept = self.looks[0].told, self.kept.told
        known = [f"; real images have {figure_of(name, -told['floor'])}" for name, told in self.facts.items()]
        if self.refused is not None:
            beyond = f"{self.refused.told} is more than {self._bound:g} times worse than {start}"
            return f"{beyond}; the best accepted weights stay, {kept}{''.join(known)}"
        if self.kept is self.looks[0]:
            return f"{self._reward} has not risen: the weights of the start stay, {start}; last, {self.looks[-1].told}"
        return f"{start}; kept {kept}{''.join(known)}"

    def state_dict(self) -> dict[str, Any]:
        """What was found, for a checkpoint."""
        return {"looks": [{"window": look.window, "rewards": dict(look.rewards)} for look in self.looks]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from there."""
        self.looks = [EvaluationSnapshot(**look) for look in state_dict["looks"]]

    def _is_due(self, report: EpochReport) -> bool:
        done = report.epoch + 1
        return done % self._every == 0 or done == report.epochs

    def _looked(self, run: TrainingRun[Any]) -> TrainingNotice:
        look = self._watch.look(run)
        self.looks.append(look)
        if self.accepts(look):
            run.stalled(-look.rewards[self._reward], patience=1)  # keeps the weights of the best
        return TrainingNotice(message=look.told)
