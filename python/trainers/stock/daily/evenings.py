"""The work of each evening: record bars, score due forecasts, forecast, and test the champion."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from predictor.adaptive_widths import AdaptiveWidths
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.covariates import CovariateSource
from predictor.dates import to_date
from predictor.due_forecasts import REVISED_BARS, DueForecasts, score_due_forecasts
from predictor.errors import ConfigurationError, InSampleError, QuantraError, format_count, format_date, format_names
from predictor.evidence import Lamp
from predictor.forecast import Forecast
from predictor.inference import describe_engine
from predictor.jobs import JobRunner, LocalRunner
from predictor.ledger import EvidenceRecord, ForecastRecord, KnownBars, Ledger, LedgerEvent
from predictor.model_health import SKILL, assess_model, choose_worst_lamp, list_newest_evidence
from predictor.networks import find_anchor_index
from predictor.sessions import SessionCalendar
from trainers.progress import StepProgress, no_progress
from trainers.stock.daily.recorded_models import (
    BaselineFolder,
    RecordedModel,
    load_challengers,
    load_champion,
)
from trainers.stock.daily.served_forecasts import ServedForecast, choose_forecasts, find_simple_models
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.data_warnings import drop_before_calendar
from trainers.stock.evaluation.bound_model import BoundModel, bind_model, find_calendar
from trainers.stock.evaluation.calibration import QuantileResiduals, adapt_offsets
from trainers.stock.splits import SplitPart, read_splits


def adapt_widths(recorded: RecordedModel, bars: BarPanel, covariates: CovariateSource) -> AdaptiveWidths:
    """The widths of a model's bands after the last session of the bars.

    Every outer quantile moves to or from the median by a factor per horizon. The factors come from adaptive conformal
    inference (trainers.stock.evaluation.calibration) on the model's forecasts of all days since its calibration split.
    So they need only the artifact and the bars, and a new champion has them on its first evening.

    Raises:
        ConfigurationError: The bars do not reach back to the model's calibration split, or it has none.
    """
    manifest, calendar = recorded.model.manifest, find_calendar(recorded.model)
    target, levels = manifest.target, manifest.quantiles
    calibration = read_splits(manifest.card).calibration
    model_bars = drop_before_calendar(bars, calendar)
    try:
        bound_model = bind_model(recorded.model, model_bars, covariates)
        residuals = _measure_residuals(bound_model, calibration, levels)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"adaptive widths of {recorded.reference} need its calibration days, from "
            f"{format_date(calibration.first)} to {format_date(calibration.last)}, but {error.message}; give bars that "
            "begin earlier, or leave out --adaptive"
        ) from error
    later = model_bars.sessions[model_bars.sessions > calibration.last]
    test = (
        _measure_residuals(bound_model, SplitPart("later", int(later[0]), int(later[-1])), levels)
        if len(later) > target.reach
        else replace(residuals, positions=residuals.positions[:0], values=residuals.values[:0])
    )
    # Tonight's decision has no outcome yet.
    test = QuantileResiduals(
        positions=np.append(test.positions, len(model_bars.sessions) - 1),
        values=np.concatenate([test.values, np.full((1, *test.values.shape[1:]), np.nan)]),
    )
    outer = [q for q in range(len(levels)) if q != find_anchor_index(levels)]
    factors = np.ones((len(target.horizons), len(levels)))
    offsets = adapt_offsets(
        replace(residuals, values=residuals.values[..., outer]),
        replace(test, values=test.values[..., outer]),
        tuple(levels[q] for q in outer),
        target,
    )[-1]
    side = np.where(np.array(levels)[outer] > levels[find_anchor_index(levels)], 1.0, -1.0)
    factors[:, outer] = np.maximum(1 + side * offsets, 0.0)
    return AdaptiveWidths(
        version=recorded.version,
        weights_hash=recorded.model.identity.weights_hash,
        session=int(model_bars.sessions[-1]),
        horizons=target.horizons,
        factors=factors,
    )


def _measure_residuals(bound_model: BoundModel, part: SplitPart, levels: tuple[float, ...]) -> QuantileResiduals:
    """Outcomes minus quantiles, in units of each quantile's distance from the median."""
    windows = bound_model.windows(part)
    quantiles = bound_model.forecasts(windows).calibrated
    missed = bound_model.history.outcomes(windows)[..., None] - quantiles
    distance = np.abs(quantiles - quantiles[..., [find_anchor_index(levels)]])
    units = np.full_like(missed, np.nan)
    np.divide(missed, distance, out=units, where=distance > 0)
    return QuantileResiduals(positions=windows.positions, values=units)


EVENING: Final = "evening"
"""Kind of the event that completes an evening; its detail has what was forecast and what failed."""
ALARM: Final = "alarm"
"""Kind of the event that records the first time that a lamp is red."""
RETRAINING: Final = "retraining"
CALENDAR_NOTICE: Final = 60
"""The end of a model's calendar is a finding this many sessions before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DailySettings:
    """Ledger, model and options of an evening; the bars are given separately."""

    ledger: Ledger
    model_folder: Path
    """The folder of the model's versions."""
    covariates: CovariateSource = NO_COVARIATE_FILES
    evidence_every: int = 1
    """Sessions between two tests of coverage and skill; the newest evening always has one."""
    accept_suspect_bars: bool = False
    """Whether to forecast symbols whose bars contradict their history."""
    serve_best: bool = False
    """Whether to report the simplest model that the champion is not shown to beat, instead of the champion."""
    runner: JobRunner = field(default_factory=LocalRunner)
    """Runs the forecasts of an evening's models, and a retraining."""
    adaptive: bool = False
    """Whether the champion's widths follow how often outcomes fell below its quantiles; see `adapt_widths`."""

    @property
    def baselines(self) -> BaselineFolder:
        """The folder of the model's baselines."""
        return BaselineFolder.of(self.ledger, self.model_folder.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailySummary:
    """The state of a model after its last evening, and what this run did."""

    model: str
    champion: int
    session: int
    """The last evening's session, yyyymmdd; 0 for none."""
    evenings: int
    """Evenings of this run."""
    rows: int
    """Rows that it wrote into the ledger, apart from bars."""
    bars: int
    """New and revised bars that it wrote."""
    lamp: Lamp
    findings: tuple[str, ...]
    """What a person should look at."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Symbols that the champion did not forecast on the last evening, with the reasons."""
    served: tuple[ServedForecast, ...] = ()
    """The model that is reported at each horizon; empty if that is the champion by default."""
    widths: AdaptiveWidths | None = None
    """The adaptive widths of the champion's forecasts; None if they are as calibrated."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Which models are reported, and their adaptive widths, in words."""
        adaptive = () if self.widths is None else self.widths.sentences
        return (*(reported.sentence for reported in self.served), *adaptive)

    def to_json(self) -> dict[str, Json]:
        """All fields as JSON values."""
        fields = {setting.name: getattr(self, setting.name) for setting in dataclasses.fields(self)}
        served = [reported.to_json() for reported in self.served]
        widths = None if self.widths is None else self.widths.to_json()
        return {**fields, "lamp": self.lamp.value, "findings": list(self.findings), "served": served, "widths": widths}


EveningAction = Callable[[DailySettings, RecordedModel, int, Sequence[EvidenceRecord]], int]
"""Called with the settings, the champion, the session and its evidence; returns the number of rows written."""


def run_due_evenings(
    settings: DailySettings,
    bars: BarPanel,
    now: datetime,
    *,
    first: int = 0,
    after_evening: EveningAction | None = None,
    track_steps: StepProgress = no_progress,
) -> DailySummary:
    """Run the evenings that are due, in order; a second call writes nothing.

    An evening is due if its session has closed, has bars, and comes after the last evening in the ledger. Without one,
    only the newest session is due. After a killed run, the next call completes the unfinished evening.

    Args:
        settings: ledger, model and covariates.
        bars: with their history.
        now: the present time, to decide whether the last session has closed.
        first: the session, yyyymmdd, to begin with if the ledger has no evening yet; 0 for the newest.
        after_evening: retrains or promotes after each evening; None leaves that to a person.
        track_steps: shows the progress.

    Raises:
        InSampleError: the champion has seen labels after the first evening.
        LedgerError: the bars are of another universe, or the ledger cannot be written.
        ConfigurationError: the bars do not reach back far enough for adaptive widths.
        QuantraError: the champion cannot be loaded.
    """
    ledger, name = settings.ledger, settings.model_folder.name
    champion = load_champion(settings.model_folder)
    calendar = find_calendar(champion.model)
    closed = [day for day in bars.sessions.tolist() if _has_closed(calendar, day, now)]
    last_evening = find_last_evening(ledger, name)
    due = [day for day in closed if day > last_evening and day >= first]
    if not (last_evening or first):
        due = due[-1:]
    if due and not last_evening and champion.last_seen > due[0]:
        raise InSampleError(
            f"{champion.reference} has seen labels up to {format_date(champion.last_seen)}, so a forecast of "
            f"{format_date(due[0])} would prove nothing; give bars up to a later session"
        )
    known_until = due[0] if due else last_evening
    recorded, scores = 0, DueForecasts()
    if known_until:
        recorded = _record_bars(ledger, bars.until(known_until))
        scores = score_due_forecasts(ledger)
    rows = scores.rows
    is_tested = [left == 1 or left % settings.evidence_every == 0 for left in range(len(due), 0, -1)]
    before, known_bars = known_until, KnownBars()
    for k in track_steps(range(len(due)), title=f"evenings of {name}", tell=lambda k: format_date(due[k])):
        if due[k] > before:
            recorded += _record_bars(ledger, bars.between(before, due[k]))
            scores = score_due_forecasts(ledger, first_open=scores.first_open)
            rows += scores.rows
            before = due[k]
        panel = ledger.extended_panel(known_bars, last=due[k]) if len(due) > 1 else ledger.panel(last=due[k])
        rows += _run_evening(settings, panel, due[k], after_evening, is_tested=is_tested[k])
    return summarise(settings, evenings=len(due), rows=rows, bars=recorded)


def find_last_evening(ledger: Ledger, name: str) -> int:
    """The session of a model's last evening, yyyymmdd; 0 for none."""
    rows = ledger.query("select max(session) as last from event where kind = ? and model = ?", (EVENING, name))
    return int(rows[0]["last"] or 0)


def _has_closed(calendar: SessionCalendar, session: int, now: datetime) -> bool:
    """Whether a session's bar is final; days that are not in the calendar end with their date in UTC."""
    if session > calendar.last or not calendar.is_gapless(np.array([session], np.int32)):
        return now.astimezone(UTC).date() > to_date(session)
    return calendar.is_complete(session, now)


def _record_bars(ledger: Ledger, bars: BarPanel) -> int:
    added = ledger.add_bars(bars)
    return added.new + added.revised


def _run_evening(
    settings: DailySettings, bars: BarPanel, session: int, after_evening: EveningAction | None, *, is_tested: bool
) -> int:
    """Forecast after one session, test the champion if that is due, and record the evening's event last."""
    ledger, name = settings.ledger, settings.model_folder.name
    failed: dict[str, str] = {}
    champion = load_champion(settings.model_folder)
    others = [
        *load_challengers(settings.model_folder, champion, failed),
        *settings.baselines.load(champion, bars, failed),
    ]
    widths = adapt_widths(champion, bars, settings.covariates) if settings.adaptive else None
    forecasts, refused = _make_forecasts(settings, bars, session, (champion, *others), widths, failed)
    rows = ledger.append([*(() if widths is None else (widths.event,)), *forecasts])
    evidence = assess_model(ledger, champion.version, [rival.version for rival in others]) if is_tested else ()
    alarms = [  # the ledger skips those that it already has
        LedgerEvent(
            kind=ALARM,
            model=name,
            version=champion.version.number,
            session=record.session,
            reason=describe_alarm(record),
            key=f"{ALARM} {champion.version.reference} {record.monitor} {record.horizon}",
        )
        for record in evidence
        if record.lamp is Lamp.RED
    ]
    rows += ledger.append([*evidence, *alarms])
    if after_evening is not None:
        rows += after_evening(settings, champion, session, evidence)
    evening = LedgerEvent(
        kind=EVENING,
        model=name,
        version=champion.version.number,
        session=session,
        reason=format_count(len(forecasts), "forecast")
        + (f", {format_count(len(refused), 'symbol')} refused" if refused else ""),
        detail={
            "forecasts": len(forecasts),
            "refused": dict(refused),
            "failed": dict(failed),
            "accept_suspect_bars": settings.accept_suspect_bars,
        },
        key=f"{EVENING} {name} {session}",
    )
    return rows + ledger.append([evening])


def _make_forecasts(
    settings: DailySettings,
    bars: BarPanel,
    session: int,
    models: Sequence[RecordedModel],
    widths: AdaptiveWidths | None,
    failed: dict[str, str],
) -> tuple[list[ForecastRecord], dict[str, str]]:
    """Forecast with every model that has not seen the session; the first one is the champion.

    Returns:
        The forecasts, and why the champion refused a symbol. A model that fails is added to `failed`.
    """
    champion = models[0]
    batch = settings.ledger.receipt.batch
    forecasts: list[ForecastRecord] = []
    refused: dict[str, str] = {}

    def record_failure(model: RecordedModel, error: QuantraError) -> None:
        failed[model.reference] = error.message

    unseen = [model for model in models if model.last_seen <= session]
    bars_needed = max((model.model.info((), is_default=False).bars_needed for model in unseen), default=1)
    material = EveningMaterial(
        bars.last(bars_needed), settings.covariates, accept_suspect_bars=settings.accept_suspect_bars
    )
    runs = settings.runner.run(
        material.worker, unseen, name=lambda model: model.reference, in_order=True, on_failure=record_failure
    )
    for model, (computed, engine) in runs:
        forecast = computed if model is not champion or widths is None else widths.apply(computed)
        if model is champion:
            refused = {symbol: error.message for symbol, error in sorted(forecast.refusals.items())}
        forecasts += ForecastRecord.of(
            forecast,
            role=model.role,
            engine=engine,
            batch_rows=len(forecast.symbols) - len(forecast.refusals),
            bars_batch=batch,
            made_at=time.time_ns(),
        )
    return forecasts, refused


@dataclass(frozen=True, slots=True)
class EveningMaterial:
    """Inputs of all models on an evening."""

    bars: BarPanel
    covariates: CovariateSource
    accept_suspect_bars: bool

    def worker(self) -> Callable[[RecordedModel], tuple[Forecast, str]]:
        """Return a picklable function that forecasts with a model, and names the engine that computed the forecast."""
        return self._forecast

    def _forecast(self, recorded: RecordedModel) -> tuple[Forecast, str]:
        forecast = recorded.forecast(self.bars, self.covariates, accept_suspect_bars=self.accept_suspect_bars)
        return forecast, describe_engine()


def describe_alarm(record: EvidenceRecord) -> str:
    """A red lamp in words."""
    ahead = f"{format_count(record.horizon, 'session')} ahead"
    version = f"{record.model}@{record.version}"
    if record.monitor.startswith(SKILL):
        return f"{version} is worse than {record.monitor.removeprefix(SKILL).strip()}, {ahead}"
    return f"{version}, {ahead}: {record.monitor.removeprefix('coverage ')} outcomes in its band"


def summarise(settings: DailySettings, *, evenings: int = 0, rows: int = 0, bars: int = 0) -> DailySummary:
    """Summarise a model's state from its ledger."""
    ledger, name = settings.ledger, settings.model_folder.name
    champion = load_champion(settings.model_folder)
    evidence = list_newest_evidence(ledger, *champion.version)
    last = next(iter(ledger.records(LedgerEvent, "kind = ? and model = ?", (EVENING, name))[-1:]), None)
    served: tuple[ServedForecast, ...] = ()
    if last and settings.serve_best:
        simple, absent = find_simple_models(ledger, champion, last.session)
        served = choose_forecasts(evidence, champion.version, simple, champion.model.manifest.target.horizons, absent)
    return DailySummary(
        model=name,
        champion=champion.version.number,
        session=last.session if last else 0,
        evenings=evenings,
        rows=rows,
        bars=bars,
        lamp=choose_worst_lamp(evidence),
        findings=tuple(_list_findings(ledger, champion, evidence, last)) if last else (),
        refused=_read_strings(last.detail.get("refused")) if last else {},
        served=served,
        widths=AdaptiveWidths.read(ledger, champion.version, last.session) if last else None,
    )


def _read_strings(record: Json) -> dict[str, str]:
    return {key: str(value) for key, value in record.items()} if isinstance(record, dict) else {}


def _list_findings(
    ledger: Ledger, champion: RecordedModel, evidence: Sequence[EvidenceRecord], last: LedgerEvent
) -> Iterator[str]:
    """What a person should look at; only from the ledger and the models, so a second run gives the same."""
    name = champion.version.model
    for record in evidence:
        if record.lamp is Lamp.RED:
            rival = record.monitor.removeprefix(SKILL).strip()
            is_version = rival.startswith(f"{name}@")
            advice = f"quantra promote {rival} --reason REASON" if is_version else f"quantra retrain {name}"
            yield f"{describe_alarm(record)}; consider: {advice}"
    left = champion.count_sessions_left(last.session)
    if left <= CALENDAR_NOTICE:
        yield f"the calendar of {champion.reference} ends in {left} sessions; consider: quantra retrain {name}"
    for reference, reason in _read_strings(last.detail.get("failed")).items():
        yield f"{reference} made no forecast: {reason}"
    revised = ledger.records(
        LedgerEvent,
        "kind = ? and batch > (select coalesce(max(batch), 0) from event where kind = ? and model = ? and session < ?)",
        (REVISED_BARS, EVENING, name, last.session),
    )
    if revised:
        yield f"bars were revised: {format_names([event.reason for event in revised])}"
