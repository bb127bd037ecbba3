"""Adoption: published weights become an artifact, calibrated and scored on days after their own training."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from predictor import artifact, golden
from predictor.artifact import Artifact, BaselineSpec, Golden, Manifest
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import AdoptionFacts
from predictor.dates import to_date_number
from predictor.errors import ArtifactError, ConfigurationError, InvalidInputError, format_date
from predictor.features import FittedFeatures, Scaling
from predictor.flags import Flag, parse_integers, parse_numbers
from predictor.inference import freeze
from predictor.networks import Target, WindowNormaliser, check_quantiles
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline
from trainers.progress import StepProgress, no_progress
from trainers.stock import card
from trainers.stock.adoption.published_model import CONFIG, WEIGHTS, PublishedModel
from trainers.stock.bar_requirements import recognise_calendar
from trainers.stock.data import History
from trainers.stock.data_warnings import Warn, discard, emit, find_close_warnings
from trainers.stock.model_fit import CALENDAR_YEARS, assemble_model, calibrate_manifest, fit_calendar, without_offsets
from trainers.stock.splits import DataSplits, SplitShares, parse_day_flag
from trainers.stock.training import TrainingResult, save_artifact, score_on_test

USUAL_WINDOW: Final = 512
USUAL_CALENDAR: Final = "XNYS"
MIN_DECISIONS: Final = 60
"""Decision days of the calibration split, and of the test split."""
UNCALIBRATED: Final = (
    "the model was adopted without bars: its quantiles are not calibrated, and it has no scores; adopt it again with "
    "--bars"
)
YEARS_BEFORE: Final = 15
"""Years of the calendar before the end of the training of a model that is adopted without bars."""
EARLIEST_END: Final = 19000101
MAX_RETURN: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionSettings:
    """Facts and choices that are not in the config.json of a model."""

    trained_until: Annotated[
        int,
        Flag(
            "Last day of the data that its training may have seen; that day and all before count as seen.",
            metavar="DATE",
            parse=partial(parse_day_flag, "--trained-until"),
        ),
    ]
    horizons: Annotated[tuple[int, ...], Flag("Trading days.", parse=partial(parse_integers, "horizons"))] = (
        1,
        5,
        10,
        20,
    )
    quantiles: Annotated[
        tuple[float, ...], Flag("Levels, of those that it was trained for.", parse=partial(parse_numbers, "quantiles"))
    ] = (0.1, 0.5, 0.9)
    encoder_length: Annotated[
        int | None,
        Flag("Sessions that it reads.", shown_default=f"{USUAL_WINDOW}, or the most that it can read", minimum=1),
    ] = None
    calendar: Annotated[
        str,
        Flag(f"Exchange code, 24/7 or weekdays; empty: the one that fits the bars, or {USUAL_CALENDAR} without bars."),
    ] = ""


def adopt(
    model: PublishedModel,
    out: Path,
    settings: AdoptionSettings,
    *,
    bars: BarPanel | None,
    today: date,
    announce: Callable[[str], None] = discard,
    warn: Warn = discard,
    track_steps: StepProgress = no_progress,
) -> TrainingResult:
    """Make an artifact of a published model.

    Args:
        model: of `read_chronos` or `read_kronos`.
        out: the artifact's folder, which must not exist.
        settings: what its folder does not say.
        bars: for calibration and scores; None makes an uncalibrated model without scores.
        today: the model's training cannot have ended later.
        announce: receives the name of each stage.
        warn: receives warnings about the bars.
        track_steps: shows the progress of the scoring.

    Raises:
        ConfigurationError: the model cannot forecast what is asked, its weights are damaged, or the bars have too few
            sessions after its training.
    """
    artifact.check_new_folder(out)
    if not EARLIEST_END <= settings.trained_until <= to_date_number(today):
        when = "in the future" if settings.trained_until > EARLIEST_END else "before any such model"
        raise ConfigurationError(
            f"trained until {format_date(settings.trained_until)}, which is {when}; give the last day of the data that "
            "its training may have seen"
        )
    folder = model.source.folder
    splits = None if bars is None else split_after(bars.sessions, settings)
    pipeline = _build_pipeline(model, settings, _choose_calendar(settings, bars, today, announce))
    new_artifact = Artifact(
        manifest=_build_manifest(model, settings, pipeline), pipeline=pipeline, weights=model.weights
    )
    try:
        network = freeze(new_artifact.network())
    except ArtifactError as error:
        raise ConfigurationError(f"{folder}: {WEIGHTS} does not fit {CONFIG}: {error.message}") from error
    libraries = {**card.list_libraries(), **{name: version(name) for name in model.packages}}
    content: dict[str, Json] = {"adopted": asdict(_list_facts(model, settings)), "libraries": libraries}
    if bars is None or splits is None:
        new_artifact = _replace_card(new_artifact, content | {"notes": [UNCALIBRATED]})
    else:
        announce("forecasting the calibration days")
        warnings = emit(find_close_warnings(bars), warn)
        history = History(bars, new_artifact.pipeline)
        manifest = calibrate_manifest(new_artifact.manifest, network, history, splits.calibration)
        new_artifact = replace(new_artifact, manifest=manifest)
        announce("scoring it against the baselines")
        scores, notes = score_on_test(new_artifact, network, history, splits, track_steps)
        content["data"] = card.encode_data(history.bars, warnings)
        content["splits"] = card.encode_splits(splits, history)
        new_artifact = _replace_card(new_artifact, content | scores | {"notes": list(notes)})
    announce("recording the golden instance, and saving")
    try:
        recorded = golden.record(assemble_model(new_artifact))
    except InvalidInputError as error:  # its own instance has no forecast
        raise ConfigurationError(f"{folder}: {error.message}; its weights are damaged or too large") from error
    _check_forecasts_plausible(folder, recorded)
    save_artifact(out, new_artifact, recorded)
    return TrainingResult(folder=out, card=dict(new_artifact.manifest.card))


def _list_facts(model: PublishedModel, settings: AdoptionSettings) -> AdoptionFacts:
    source, tokenizer = model.source, model.tokenizer
    name = next(iter(model.packages), "quantra")
    return AdoptionFacts(
        architecture=model.architecture,
        package=f"{name} {version(name)}",
        trained_until=settings.trained_until,
        config_sha256=source.config_sha256,
        weights_sha256=source.weights_sha256,
        license_file=source.license_file,
        license_sha256=source.license_sha256,
        tokenizer_config_sha256="" if tokenizer is None else tokenizer.config_sha256,
        tokenizer_weights_sha256="" if tokenizer is None else tokenizer.weights_sha256,
    )


def split_after(sessions: NDArray[np.int32], settings: AdoptionSettings) -> DataSplits:
    """Split bars so that calibration and test are after the model's training; baselines are fitted on the days before.

    Raises:
        ConfigurationError: too few sessions are left after its training, or none before.
    """
    shares, count = SplitShares(), len(sessions)
    first_unseen = int(np.searchsorted(sessions, settings.trained_until, side="right"))
    min_sessions = 2 * (MIN_DECISIONS + settings.horizons[-1])
    if count - first_unseen < min_sessions:
        raise ConfigurationError(
            f"the bars have {count - first_unseen} sessions after {format_date(settings.trained_until)}, but "
            f"calibration and test need {min_sessions}; give later bars, shorter --horizons, or leave --bars out to "
            "adopt the model without calibration and scores"
        )
    seen_share = shares.train + shares.selection
    start = max(first_unseen, min(int(seen_share * count), count - min_sessions))  # of the calibration split
    bounds = (0, int(start * shares.train / seen_share), start, (start + count) // 2, count)
    if bounds[1] == 0:
        raise ConfigurationError(f"the bars have {count} sessions; the baselines need earlier ones")
    return DataSplits.by_dates([(int(sessions[a]), int(sessions[b - 1])) for a, b in pairwise(bounds)])


def _choose_calendar(
    settings: AdoptionSettings, bars: BarPanel | None, today: date, announce: Callable[[str], None]
) -> SessionCalendar:
    """The calendar of the bars, or one around the end of the model's training."""
    if bars is not None:
        return fit_calendar(bars, settings.calendar or recognise_calendar(bars))
    name = settings.calendar or USUAL_CALENDAR
    announce(f"calendar: {name}")
    first, last = settings.trained_until // 10_000 - YEARS_BEFORE, today.year + CALENDAR_YEARS
    return SessionCalendar.named(name, 10_000 * first + 101, 10_000 * last + 1231)


def _build_pipeline(model: PublishedModel, settings: AdoptionSettings, calendar: SessionCalendar) -> Pipeline:
    """The pipeline of a model that scales its features itself."""
    count = len(model.features.observed)
    return Pipeline(
        features=FittedFeatures(
            features=model.features,
            scaling=Scaling(center=np.zeros(count), scale=np.ones(count), clip=model.max_value),
        ),
        target=Target(horizons=settings.horizons),
        normaliser=WindowNormaliser(),
        calendar=calendar,
        encoder_length=settings.encoder_length or min(USUAL_WINDOW, model.max_encoder_length),
    )


def _build_manifest(model: PublishedModel, settings: AdoptionSettings, pipeline: Pipeline) -> Manifest:
    """The manifest without calibration and card."""
    check_quantiles(settings.quantiles)
    horizons = len(settings.horizons)
    return Manifest(
        kind=model.kind,
        config=model.config,
        target=pipeline.target,
        quantiles=settings.quantiles,
        normaliser=pipeline.normaliser,
        encoder_length=pipeline.encoder_length,
        minimum=pipeline.minimum,
        conformal=without_offsets(pipeline.target, settings.quantiles),
        baseline=BaselineSpec(
            name="none", known=(0.0,) * pipeline.sizes.known, location=(0.0,) * horizons, scale=(1.0,) * horizons
        ),
        card={},
    )


def _check_forecasts_plausible(folder: Path, recorded: Golden) -> None:
    """Refuse weights with absurd forecasts of the golden instance."""
    if not np.isfinite(recorded.arrays["stage.units"]).all():
        raise ConfigurationError(
            f"{folder}: its forecasts of example bars are not finite; its weights are damaged or too large"
        )
    largest = float(np.nanmax(np.abs(recorded.arrays["stage.values"])))
    if largest > MAX_RETURN:
        raise ConfigurationError(
            f"{folder}: its forecasts of example bars reach a log return of {largest:.3g}, which is impossible "
            "for a price; its weights are damaged or too large"
        )


def _replace_card(new_artifact: Artifact, content: dict[str, Json]) -> Artifact:
    return replace(new_artifact, manifest=replace(new_artifact.manifest, card=content))
