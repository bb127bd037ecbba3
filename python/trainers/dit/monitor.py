"""Rewards of held-out prompts while a model trains: the best weights are kept, and a training that collapses is ended.

A training collapses when in several looks in a row it has lost more than a share of all that it had gained since the
first look, by the reward that it is watched by; or, where that was more, of what it had at the first look, so that a
reward that has hardly risen yet may go up and down.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, final

from trainers.dit.errors import RewardError
from trainers.dit.watching import EvaluationSnapshot, SampleWatch
from trainers.loop import Report, TrainingNotice, TrainingRun, WindowReport

LOST: Final = 0.5
"""The share of what was gained, or was there at first, whose loss is a collapse."""


@final
class CollapseRule:
    """The rule that ends a training.

    Args:
        patience: so many looks in a row must find it collapsed; 0 for no end.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience

    def __call__(self, rewards: list[float]) -> bool:
        """Whether rewards, in the order of the looks, tell of a collapse."""
        fallen = 0
        for number, reward in enumerate(rewards):
            best = max(rewards[: number + 1])
            worth = max(best - rewards[0], abs(rewards[0]))
            fallen = fallen + 1 if reward < best - LOST * worth else 0
        return 0 < self._patience <= fallen


@final
class RewardMonitor:
    """Looks at a model after every so many windows that took a step.

    Its state belongs into the loop's, so that a training that goes on knows what was seen.

    Args:
        watch: draws and rewards; its first reward decides.
        name: of the reward that decides.
        every: stepped windows from one look to the next.
        collapse: when to end.

    Attributes:
        looks: what was found.
        collapsed: whether the training was ended.
    """

    def __init__(self, watch: SampleWatch, name: str, *, every: int, collapse: CollapseRule) -> None:
        if every < 1:
            raise RewardError(f"looks are {every} steps apart; it must be 1 or more")
        self._watch = watch
        self._name = name
        self._every = every
        self._collapse = collapse
        self._stepped = 0
        self.looks: list[EvaluationSnapshot] = []
        self.collapsed = False

    @property
    def facts(self) -> Mapping[str, Mapping[str, float]]:
        """What must be known to read the numbers, by the reward's name."""
        return self._watch.facts

    @property
    def held_out(self) -> str:
        """The digest of the held-out images."""
        return self._watch.digest

    def watched(self, run: TrainingRun[Any], reports: Iterable[Report]) -> Iterator[Report]:
        """The reports of a training, and a notice after each look; they end where the training collapses.

        Raises:
            RewardError: what a reward says is no number.
        """
        for report in reports:
            yield report
            if not isinstance(report, WindowReport) or not report.stepped:
                continue
            self._stepped += 1
            if self._stepped % self._every:
                continue
            yield TrainingNotice(message=self._looked(run))
            self.collapsed = self._collapse([look.rewards[self._name] for look in self.looks])
            if self.collapsed:
                yield TrainingNotice(
                    message=f"the reward has collapsed: {self._name} has lost more than {LOST:.0%} of what it had"
                )
                return

    def keep_best(self, run: TrainingRun[Any]) -> None:
        """Put the weights of the best reward into the model; without a look, their average where there is one."""
        if self.looks:
            run.restore_best()
        else:
            run.use_average()

    def state_dict(self) -> dict[str, Any]:
        """What was seen, for a checkpoint."""
        return {
            "stepped": self._stepped,
            "looks": [{"window": look.window, "rewards": dict(look.rewards)} for look in self.looks],
        }

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from there."""
        self._stepped = state_dict["stepped"]
        self.looks = [EvaluationSnapshot(**look) for look in state_dict["looks"]]

    def _looked(self, run: TrainingRun[Any]) -> str:
        look = self._watch.look(run)
        self.looks.append(look)
        run.stalled(-look.rewards[self._name], patience=1)  # keeps the weights of the best
        return f"after {self._stepped} steps: {look.said}"
