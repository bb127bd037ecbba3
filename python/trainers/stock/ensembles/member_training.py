"""Training of an ensemble's members within a time budget, the fastest first."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self, final

from predictor.bars import BarPanel
from predictor.card import Card
from predictor.covariates import CovariateSource
from predictor.durations import format_duration
from predictor.errors import ConfigurationError
from predictor.flags import ParsedFlags
from predictor.networks import NetworkConfig, get_kind
from trainers.loop import EpochReport, Report
from trainers.progress import StepProgress, no_progress
from trainers.stock.data_warnings import Warn
from trainers.stock.ensembles.ensemble import JoinedEnsemble, join
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.feature_selection import FeatureSelection, check_features
from trainers.stock.recipe import RecipeChanges, StockRecipe, recipe_of
from trainers.stock.splits import DataSplits, RollingSplits
from trainers.stock.training_data import TrainingMaterial
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner
from trainers.stock.training_plan import EPOCH_FREE_SETTINGS, parse_changes, parse_settings

BEST: Final = "best"
"""The value of `--model` for an ensemble of several kinds."""

MEMBER_KINDS: Final = ("har", "garch", "trees", "lstm", "gru", "hybrid", "tft")
"""Kinds of the members, roughly by their training time. `graph` is none: by default it has another lag, and its ranking
is lost in an ensemble with kinds that do not rank."""

USUAL_BUDGET: Final = 600.0
"""Seconds."""

MORE_SEEDS: Final = 2
"""Further seeds of the best network, if time is left."""


@final
class TimeBudget:
    """Seconds until all trainings have ended, counted from its creation."""

    def __init__(self, seconds: float, left: float | None = None) -> None:
        self._end = monotonic() + (seconds if left is None else left)
        self.seconds = seconds

    def __reduce__(self) -> tuple[object, ...]:
        """A copy in another process, whose clock may differ, has what is left now."""
        return type(self), (self.seconds, self.left)

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._end - monotonic())

    def __str__(self) -> str:
        """What is left of it."""
        return f"{format_duration(self.left)} of {format_duration(self.seconds)} left" if self.left else "no time left"


def parse_budget(text: str) -> float:
    """Parse a time such as 90s, 10m or 1.5h as seconds.

    Raises:
        ValueError: the text is not a time, or the time is 0.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    seconds = 0.0 if match is None else float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    if seconds == 0:
        raise ValueError(f"{text!r} is not a time; write 90s, 10m or 2h")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlan:
    """The settings of a training run of several kinds.

    Raises:
        ConfigurationError: Settings belong to one kind of model; the message names them.
    """

    changes: RecipeChanges
    """Settings of all members."""
    reads: ParsedFlags[FeatureSelection]
    budget: float
    """Seconds until all members are trained, also if several are trained at the same time."""

    def __post_init__(self) -> None:
        flags = self.changes.recipe.flags
        kind_flags = [*self.changes.network.flags.values(), *(flag for name, flag in flags.items() if name == "scale")]
        if kind_flags:
            raise ConfigurationError(
                f"{', '.join(kind_flags)} belong to one kind of model, but model {BEST} trains several; leave them out"
            )
        parts: DataSplits | RollingSplits | None = self.changes.recipe.values.get("parts")
        if parts is not None and (isinstance(parts, RollingSplits) or parts.test is None):
            flag = flags["parts"]
            raise ConfigurationError(
                f"{flag} has no test part, but model {BEST} scores its ensemble on one; give four ranges, or leave "
                f"{flag} out"
            )

        self.plan_recipes()

    @classmethod
    def of(cls, values: Mapping[str, Any], budget: str | None) -> Self:
        """Check settings from Python, by flag name; None means not given.

        Raises:
            ConfigurationError: A value is invalid, or belongs to one kind of model.
        """
        reads = parse_settings(FeatureSelection, values)
        check_features(reads.over(FeatureSelection()).features)
        try:
            seconds = USUAL_BUDGET if budget is None else parse_budget(budget)
        except ValueError as error:
            raise ConfigurationError(f"budget: {error}") from error
        return cls(changes=parse_changes(values, None), reads=reads, budget=seconds)

    def plan_recipes(self) -> tuple[dict[str, StockRecipe], dict[str, str]]:
        """The recipe of each kind, and the kinds that the settings do not allow, by reason.

        Raises:
            ConfigurationError: The settings allow no kind.
        """
        recipes: dict[str, StockRecipe] = {}
        left_out: dict[str, str] = {}
        for kind in MEMBER_KINDS:
            try:
                learning = self.changes.optimisation
                if not get_kind(kind).is_trainable:
                    values = {name: value for name, value in learning.values.items() if name in EPOCH_FREE_SETTINGS}
                    learning = ParsedFlags(values)
                changes = replace(
                    self.changes,
                    recipe=ParsedFlags({**self.changes.recipe.values, "kind": kind}, self.changes.recipe.flags),
                    optimisation=learning,
                    network=ParsedFlags[NetworkConfig](),
                )
                recipes[kind] = changes.over(recipe_of(kind))
            except ConfigurationError as error:
                left_out[kind] = error.message
        if not recipes:
            raise ConfigurationError("; ".join(dict.fromkeys(left_out.values())))
        return recipes, left_out


@dataclass(slots=True, kw_only=True, eq=False)
class TrainedMembers:
    """The members of an ensemble to be, and the kinds that are not among them."""

    folders: dict[str, Path] = field(default_factory=dict[str, Path])
    """Artifact of each member, by name."""
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """The reason by name."""


def train_best(  # noqa: PLR0913 - a training run's inputs and outputs
    plan: BestPlan,
    bars: BarPanel,
    out: Path,
    trainer: TrainingRunner,
    members: Path,
    *,
    covariates: CovariateSource,
    cache: FeatureCache | None,
    set_calendar: Callable[[StockRecipe], StockRecipe],
    announce: Callable[[str], None],
    warn: Warn,
    track_steps: StepProgress = no_progress,
) -> tuple[JoinedEnsemble, Mapping[str, str]]:
    """Train several kinds within a budget and combine them into an ensemble.

    `warn` receives warnings about the data, and the reason of each member that is left out.

    Returns:
        The ensemble, and the members that are left out before their comparison, by reason.

    Raises:
        ConfigurationError: No kind could be trained, or as `join`.
    """
    recipes, left_out = plan.plan_recipes()
    calendar = set_calendar(next(iter(recipes.values()))).calendar
    recipes = {kind: replace(recipe, calendar=calendar) for kind, recipe in recipes.items()}
    features = plan.reads.over(FeatureSelection()).load(covariates, calendar)
    training = BestTraining(
        trainer,
        TrainingMaterial(bars, features, covariates, cache=cache),
        members,
        budget=TimeBudget(plan.budget),
        announce=announce,
        warn=warn,
    )
    trained = training.run(recipes, left_out)
    ensemble = join(
        bars, trained.folders, out, covariates=covariates, announce=announce, warn=warn, track_steps=track_steps
    )
    return ensemble, trained.left_out


@final
class BestTraining:
    """Trains the members within a budget.

    `announce` receives the name of each training and the remaining time, `warn` why a member is left out.
    """

    def __init__(
        self,
        trainer: TrainingRunner,
        material: TrainingMaterial,
        folder: Path,
        *,
        budget: TimeBudget,
        announce: Callable[[str], None],
        warn: Warn,
    ) -> None:
        self._trainer = trainer
        self._material = material
        self._folder = folder
        self._budget = budget
        self._announce = announce
        self._warn = warn
        self._members = TrainedMembers()
        self._cards: dict[str, Card] = {}
        self._seconds: dict[str, float] = {}

    def run(self, recipes: Mapping[str, StockRecipe], left_out: Mapping[str, str]) -> TrainedMembers:
        """Train all kinds, then further seeds of the best network.

        `left_out` has the kinds that the settings do not allow, by reason.

        Raises:
            ConfigurationError: no kind could be trained; the message has all reasons.
        """
        for name, reason in left_out.items():
            self._leave_out(name, reason)
        self._train(recipes)
        if not self._members.folders:
            by_reason: dict[str, list[str]] = {}
            for name, reason in self._members.left_out.items():
                by_reason.setdefault(reason, []).append(name)
            reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
            raise ConfigurationError(f"no kind of model could be trained: {reasons}")
        best = self._find_best_network(recipes)
        if best is not None:
            first = recipes[best].optimisation.seed + 1
            reseeded = {
                f"{best}-seed{seed}": replace(
                    recipes[best], optimisation=replace(recipes[best].optimisation, seed=seed)
                )
                for seed in range(first, first + MORE_SEEDS)
            }
            self._train(reseeded, min_seconds=self._seconds.get(best, 0.0))
        return self._members

    def _train(self, recipes: Mapping[str, StockRecipe], min_seconds: float = 0.0) -> None:
        """Train members of these names, and record why others are left out.

        A training run does not begin if fewer than `min_seconds` are left.
        """
        begin_times: dict[str, float] = {}

        def begin(name: str) -> TrainingDeadline | None:
            if self._budget.left <= min_seconds:
                took = f"; the first seed took {format_duration(min_seconds)}" if min_seconds else ""
                self._leave_out(name, f"did not fit into the budget: {self._budget}{took}")
                return None
            number = list(recipes).index(name) + 1
            progress = f"{number} of {len(recipes)}; {self._budget}{self._trainer.jobs.remark}"
            self._announce(f"training {name}, {progress}")
            begin_times[name] = monotonic()
            return TrainingDeadline(self._budget, recipes[name].optimisation.patience)

        trained = self._trainer.run(
            {name: PlannedTraining(material=self._material, recipe=recipe) for name, recipe in recipes.items()},
            {name: self._folder / name for name in recipes},
            begin=begin,
            on_failure=lambda name, error: self._leave_out(name, error.message),
        )
        for name, member in trained:
            if name in begin_times:
                self._seconds[name] = monotonic() - begin_times[name]
            card = member.summary
            if is_only_scale(card):
                self._leave_out(name, card.start_note)
                continue
            self._cards[name] = card
            self._members.folders[name] = member.folder

    def _leave_out(self, name: str, reason: str) -> None:
        first = next((member for member, why in self._members.left_out.items() if why == reason), None)
        self._members.left_out[name] = reason
        self._warn(f"{name} is left out" + (f": {reason}" if first is None else f" for the same reason as {first}"))

    def _find_best_network(self, kinds: Iterable[str]) -> str | None:
        """The kept network with the lowest selection loss; the first of these kinds if several have it."""
        trainings = {kind: self._cards[kind].training for kind in kinds if kind in self._cards}
        losses = {
            kind: training.best_selection
            for kind, training in trainings.items()
            if training is not None and training.epochs
        }
        return min(losses, key=lambda kind: losses[kind], default=None)


def is_only_scale(card: Card) -> bool:
    """Whether a network added nothing to its scale, which is a separate kind."""
    return bool(card.start_note) and dict(card.recipe).get("network_highway") != "yes"


@final
class TrainingDeadline:
    """Stops a training run when the budget is used up, or cannot hold the epochs that early stopping needs at least.

    It stops after the epoch's checkpoint, if there is one, from which `--resume` continues.
    """

    def __init__(self, budget: TimeBudget, patience: int) -> None:
        self._budget = budget
        self._patience = patience

    def __call__(self, reports: Iterable[Report], /) -> Iterator[Report]:
        """Pass the reports on."""
        missing, best, stale_epochs = 0.0, inf, 0
        for report in reports:
            if self._budget.left <= missing:
                needs = f", and it needs at least {format_duration(missing)} more" if missing else ""
                raise ConfigurationError(f"did not fit into the budget: {self._budget}{needs}")
            yield report
            if isinstance(report, EpochReport):
                stale_epochs = 0 if report.monitored < best else stale_epochs + 1
                best = min(best, report.monitored)
                # The untrained weights, whose loss is not reported, may be one epoch better than all.
                rest = report.epochs - report.epoch - 1
                missing = max(min(rest, self._patience - 1 - stale_epochs), 0) * report.seconds if rest else -inf
