"""Judging an artifact: from bars to an evaluation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel
from predictor.card import ancestors_of
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.flags import Flag
from predictor.model import UNITS, Ensemble
from trainers.options import AnsweringDevice
from trainers.progress import Consumer
from trainers.stock.data import NO_SOURCE
from trainers.stock.doubts import Warn, heard, networks_of, of_models, to_nobody
from trainers.stock.edges import given_edges
from trainers.stock.evaluation.baselines import Case, all_baselines
from trainers.stock.evaluation.calibration import Calibration, Walked, adaptive_forecasts, calibration
from trainers.stock.evaluation.comparison import Comparison, compare
from trainers.stock.evaluation.correlation import way
from trainers.stock.evaluation.evaluation import Days, Evaluation
from trainers.stock.evaluation.judged import Judged
from trainers.stock.evaluation.losses import pinball
from trainers.stock.evaluation.pit import pit
from trainers.stock.evaluation.presence import check_bars, presence_notes, refuse_flat, since_calendar
from trainers.stock.evaluation.reading import Judgeable, Reading, calendar_of, last_seen, origins, reading_of
from trainers.stock.evaluation.refits import Refitting, other_seeds, refitted_forecasts
from trainers.stock.evaluation.resampling import LEVEL, RESAMPLES
from trainers.stock.evaluation.scores import ModelScores, Role
from trainers.stock.evaluation.seeds import Seeds, over_seeds
from trainers.stock.evaluation.seen import splits_of, unseen_part
from trainers.stock.evaluation.standing import Standing, standing
from trainers.stock.evaluation.symbols import by_symbol
from trainers.stock.recipes import read_recipe
from trainers.stock.splits import Part, Splits, day_of

FloatArray = NDArray[np.float64]

OURS = "this model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an evaluation shall hold."""

    start: Annotated[
        int | None,
        Flag(
            "First decision day; empty: the first that the artifact has not seen.",
            metavar="DATE",
            read=partial(day_of, "--start"),
        ),
    ] = None
    """Yyyymmdd, as `end`."""
    end: Annotated[
        int | None,
        Flag(
            "Last decision day; empty: the last whose outcome is known.",
            metavar="DATE",
            read=partial(day_of, "--end"),
        ),
    ] = None
    seeds: Annotated[
        int,
        Flag("Trainings to tell luck from skill, the artifact's own among them; 1 trains none.", minimum=1),
    ] = 5
    adaptive: Annotated[bool, Flag("Also walk forward with adaptive conformal offsets.", spelling="--aci")] = False
    device: AnsweringDevice = "auto"
    """What trains the other seeds, wherever the artifact itself was trained."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ConfigurationError(f"seeds is {self.seeds}, but must be at least 1, the artifact's own")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exam:
    """A model and the windows that it is judged on."""

    model: Judgeable
    reading: Reading
    splits: Splits
    test: Part
    covariates: CovariateSource
    """Files of what the model reads beside the bars."""
    seen: Walked
    """Of the calibration part."""
    asked: Walked
    """Of the days that are judged."""

    @property
    def judged(self) -> Judged:
        """What came."""
        return Judged.of(self.reading.history, self.asked.windows, self.model.manifest.quantiles)


def evaluate(
    model: Judgeable,
    bars: BarPanel,
    wanted: Wanted,
    *,
    consume: Consumer,
    announce: Callable[[str], None],
    warn: Warn = to_nobody,
    covariates: CovariateSource = NO_SOURCE,
) -> Evaluation:
    """Judge a model beside the baselines, on decision days after everything that it has seen.

    Args:
        model: of an artifact, or an ensemble.
        bars: from the training part on, on which baselines are fitted; those before the model's calendar are left out.
        wanted: what the evaluation shall hold.
        consume: takes the reports of trainings with other seeds.
        announce: told what begins.
        warn: told what makes bars and files doubtful, before anything else; the evaluation holds it too.
        covariates: files of what the model reads beside the bars.

    Raises:
        InSampleError: the model has seen the days, or all of the bars.
        ConfigurationError: the bars do not fit the calendar, hold too few windows, or their outcomes never differ.
        ArtifactError: the card does not tell what the model has seen.
        CovariateMissingError: the model reads a covariate that no file has.
    """
    doubts = heard(of_models(networks_of(model), since_calendar(bars, calendar_of(model)), covariates), warn)
    exam = _exam(model, bars, wanted, announce, covariates)
    judged, ours = exam.judged, exam.asked.forecasts.calibrated
    found, compared = _beside_baselines(exam, announce)
    seeds, unseeded = _seeds(exam, found, wanted, consume, announce)
    return Evaluation(
        unit=UNITS[judged.target.kind],
        target=judged.target,
        levels=judged.levels,
        days=Days.of(exam.reading.history, exam.asked.windows, last_seen(model)),
        level=LEVEL,
        method=_method(judged),
        correlated=way(judged),
        rows=_best_first(found.rows),
        skill=found.skill,
        comparisons=compared,
        calibration=_calibration(exam, wanted),
        pit=pit(judged, ours),
        by_symbol=by_symbol(judged, bars.symbols, ours, found.best),
        seeds=seeds,
        notes=(*origins(model), *_presence(exam), *found.notes, *unseeded),
        warnings=doubts,
    )


def _calibration(exam: Exam, wanted: Wanted) -> Calibration:
    walked = None
    if wanted.adaptive:
        walked = adaptive_forecasts(exam.reading.history, exam.seen, exam.asked, exam.judged.levels)
    samples = exam.model.manifest.conformal.effective_samples
    return calibration(exam.judged, exam.asked.forecasts, walked, samples)


def _presence(exam: Exam) -> tuple[str, ...]:
    return presence_notes(exam.reading.history, exam.asked.windows, exam.splits)


def _method(judged: Judged) -> str:
    return (
        f"circular block bootstrap, {RESAMPLES} resamples, blocks of {judged.block} sessions, stretched by "
        f"{100 * (judged.stretch - 1):.0f} % because so few blocks scatter too little"
    )


def _exam(
    model: Judgeable,
    bars: BarPanel,
    wanted: Wanted,
    announce: Callable[[str], None],
    covariates: CovariateSource,
) -> Exam:
    splits, calendar = splits_of(model.manifest.card), calendar_of(model)
    test = unseen_part(
        bars.sessions, last_seen(model), model.manifest.target, calendar, start=wanted.start, end=wanted.end
    )
    recent = since_calendar(bars, calendar)
    check_bars(recent, calendar, splits)
    announce("computing features")
    reading = reading_of(model, recent, covariates)
    refuse_flat(Judged.of(reading.history, reading.windows(test), model.manifest.quantiles))
    announce("forecasting")
    seen, asked = (_walked(reading, part) for part in (splits.calibration, test))
    return Exam(model=model, reading=reading, splits=splits, test=test, covariates=covariates, seen=seen, asked=asked)


def _walked(reading: Reading, part: Part) -> Walked:
    windows = reading.windows(part)
    return Walked(windows=windows, forecasts=reading.forecasts(windows))


def _beside_baselines(exam: Exam, announce: Callable[[str], None]) -> tuple[Standing, tuple[Comparison, ...]]:
    """The model's standing, and the model beside each row of the baselines, the best one first."""
    announce(f"scoring {len(exam.asked.windows)} windows beside the baselines")
    judged, forecasts = exam.judged, exam.asked.forecasts
    ours, compared = pinball(judged, forecasts.calibrated), dict[str, Comparison]()

    def hear(name: str, theirs: FloatArray) -> None:
        compared[name] = compare(judged, ours, theirs, name)

    case = Case.of(exam.reading.history, exam.splits, last_seen(exam.model), judged.levels)
    found = standing(judged, OURS, forecasts, case, all_baselines(judged.target.kind), hear=hear)
    return found, tuple(compared[row.name] for row in _best_first(found.rows) if row.role is Role.BASELINE)


def _best_first(rows: tuple[ModelScores, ...]) -> tuple[ModelScores, ...]:
    return tuple(sorted(rows, key=lambda row: row.mean.value))


def _seeds(
    exam: Exam, found: Standing, wanted: Wanted, consume: Consumer, announce: Callable[[str], None]
) -> tuple[Seeds | None, tuple[str, ...]]:
    """The artifact's forecasts and those of more trainings of its recipe, or a note why there are none."""
    model, more = exam.model, wanted.seeds - 1
    if more == 0:
        return None, ()
    if isinstance(model, Ensemble):
        return None, ("an ensemble has no recipe of its own: it is not trained with other seeds",)
    if ancestors_of(model.manifest.card):
        return None, ("it started from weights that are not in it: it is not trained with other seeds",)
    recipe = read_recipe(model.manifest.card["recipe"], "the artifact's recipe")
    refitting = Refitting(
        bars=exam.reading.history.bars,
        features=model.pipeline.features.features,
        recipe=replace(recipe, optimisation=replace(recipe.optimisation, device=wanted.device)),
        splits=exam.splits,
        covariates=exam.covariates,
        edges=given_edges(model, exam.reading.history.bars.symbols),
    )
    own = recipe.optimisation.seed

    def trained() -> Iterator[tuple[int, FloatArray]]:
        for k, seed in enumerate(other_seeds(own, more)):
            announce(f"training with seed {seed}, {k + 1} of {more} that tell luck from skill (--seeds 1: none)")
            yield seed, refitted_forecasts(refitting, seed, exam.asked.windows, consume)

    runs = chain([(own, exam.asked.forecasts.calibrated)], trained())
    return over_seeds(exam.judged, runs, found.best, found.skill.baseline), ()
