"""Recorded forecasts are computed again from the recorded bars and weights, and compared."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from predictor.adaptive_widths import AdaptiveWidths
from predictor.artifact import is_artifact
from predictor.bars import BarPanel
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError, QuantraError
from predictor.forecast import Forecast
from predictor.inference import describe_engine
from predictor.ledger import ForecastRecord, ForecastRole, Ledger, LedgerEvent
from predictor.model_health import ModelVersion
from trainers.progress import StepProgress, no_progress
from trainers.stock.daily.evenings import EVENING
from trainers.stock.daily.recorded_models import BASELINES, BaselineFolder, RecordedModel, load_recorded
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.lifecycle.promotion import REPLAY

_RECORDED: Final = "role <> 'client' and bars_batch > 0"
"""Forecasts whose bars are in the ledger."""


ReplayResult = Literal["equal", "different", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastReplay:
    """One forecast that was computed again."""

    record: ForecastRecord
    differences: tuple[str, ...] = ()
    """What differs from the record."""
    failure: str = ""
    """Why it could not be computed."""

    @property
    def result(self) -> ReplayResult:
        """Whether all bits are equal, if it could be computed."""
        return "failed" if self.failure else "different" if self.differences else "equal"


def find_forecasts(ledger: Ledger, forecast_id: str) -> list[ForecastRecord]:
    """The symbols of a recorded forecast.

    Raises:
        ConfigurationError: the ledger has no such forecast, or it was made for a client.
    """
    records = ledger.records(ForecastRecord, f"forecast_id = ? and {_RECORDED}", (forecast_id,))
    if not records:
        raise ConfigurationError(
            f"{ledger.address} holds no forecast {forecast_id!r} that can be replayed; `quantra ledger export` writes "
            "all"
        )
    return records


def sample_forecasts(ledger: Ledger, count: int, version: ModelVersion | None = None) -> list[ForecastRecord]:
    """Draw at most `count` recorded forecasts of all models or one version; the draw is reproducible."""
    of_version = "" if version is None else " and model = ? and version = ?"
    query = f"select id from forecast where {_RECORDED}{of_version} order by id"  # noqa: S608 - no value is in the text
    numbers = [int(row["id"]) for row in ledger.query(query, version or ())]
    indices = np.random.default_rng(0).permutation(len(numbers))[:count]
    return [ledger.records(ForecastRecord, "id = ?", (numbers[k],))[0] for k in sorted(indices.tolist())]


def replay_forecasts(
    ledger: Ledger,
    models: Path,
    records: Sequence[ForecastRecord],
    covariates: CovariateSource = NO_COVARIATE_FILES,
    *,
    track_steps: StepProgress = no_progress,
) -> tuple[ForecastReplay, ...]:
    """Compute forecasts again, in the same batches: those of one evening together."""

    def evening_of(record: ForecastRecord) -> tuple[int, int, str, int]:
        return record.as_of, record.bars_batch, record.model, record.version

    evenings = [list(group) for _, group in groupby(sorted(records, key=evening_of), evening_of)]
    read_panel = lru_cache(maxsize=1)(partial(_read_panel, ledger))  # for the other models of the evening
    replays: list[ForecastReplay] = []
    for evening in track_steps(evenings, title="replaying", tell=lambda evening: str(evening[0].as_of)):
        replays += _replay_evening(ledger, models, evening, read_panel, covariates)
    return tuple(replays)


def record_replays(ledger: Ledger, replays: Sequence[ForecastReplay], evening: int = 0) -> int:
    """Record the result as one event per model version and weights, for the gate `replay`.

    With an evening, yyyymmdd, a repeated call records nothing new. Returns the number of new events.
    """
    records = [(replay.record, replay.result) for replay in replays]
    counts = Counter((record.model, record.version, record.weights_hash, result) for record, result in records)
    events: list[LedgerEvent] = []
    for model, version, weights_hash in dict.fromkeys(counted[:3] for counted in counts):
        results = {result: counts[model, version, weights_hash, result] for result in get_args(ReplayResult)}
        event = LedgerEvent(
            kind=REPLAY,
            model=model,
            version=version,
            session=evening or ledger.last_session,
            key=f"{REPLAY} {model}@{version} {evening} {weights_hash}" if evening else "",
            reason=", ".join(f"{count} {result}" for result, count in results.items()),
            detail={**results, "weights_hash": weights_hash},
        )
        events.append(event)
    return ledger.append(events)


def _read_panel(ledger: Ledger, as_of: int, batch: int) -> BarPanel:
    """The bars up to a session that were known at a batch."""
    return ledger.panel(last=as_of, batch=batch)


def _replay_evening(
    ledger: Ledger,
    models: Path,
    records: Sequence[ForecastRecord],
    read_panel: Callable[[int, int], BarPanel],
    covariates: CovariateSource,
) -> Iterator[ForecastReplay]:
    first = records[0]
    try:
        model = _find_model(ledger, models, first)
        bars = read_panel(first.as_of, first.bars_batch)
        condition = "kind = ? and session = ? and model = any(?)"
        events = ledger.records(LedgerEvent, condition, (EVENING, first.as_of, _list_champion_models(first)))
        accepts = any(event.detail.get("accept_suspect_bars") is True for event in events)
        forecast = model.forecast(bars, covariates, accept_suspect_bars=accepts)
        is_champion = first.role is ForecastRole.CHAMPION
        widths = AdaptiveWidths.read(ledger, model.version, first.as_of) if is_champion else None
        forecast = forecast if widths is None else widths.apply(forecast)
    except QuantraError as error:
        yield from (ForecastReplay(record=record, failure=error.message) for record in records)
        return
    for record in records:
        yield ForecastReplay(record=record, differences=tuple(_list_differences(record, forecast)))


def _find_model(ledger: Ledger, models: Path, record: ForecastRecord) -> RecordedModel:
    """The artifact of a model or a baseline.

    Raises:
        ConfigurationError: it is missing.
        ArtifactError: it is damaged.
    """
    version = ModelVersion(record.model, record.version)
    is_baseline = record.role is ForecastRole.BASELINE
    folder = (
        BaselineFolder.of(ledger, models).find(version) if is_baseline else models / version.model / str(version.number)
    )
    if not is_artifact(folder):
        raise ConfigurationError(f"the artifact {folder} is missing; restore it from a backup")
    return load_recorded(folder, version, record.role)


def _list_champion_models(record: ForecastRecord) -> list[str]:
    """The model whose evening made a forecast; for a baseline, the one that it is compared with."""
    if record.role is not ForecastRole.BASELINE:
        return [record.model]
    return [record.model.removesuffix(f"-{kind}") for kind in BASELINES if record.model.endswith(f"-{kind}")]


def _list_differences(record: ForecastRecord, forecast: Forecast) -> Iterator[str]:
    """The differences between a record and its recomputed forecast, in words."""
    if forecast.weights_hash != record.weights_hash:
        yield f"weights: recorded {record.weights_hash[:12]}, now {forecast.weights_hash[:12]}"
    if record.symbol in forecast.refusals:
        yield f"{record.symbol} is refused: {forecast.refusals[record.symbol].message}"
        return
    values = np.asarray(forecast.values[forecast.symbols.index(record.symbol)], np.float64)
    if values.shape != record.values.shape:
        yield f"shape: recorded {record.values.shape}, now {values.shape}"
    elif values.tobytes() != record.values.tobytes():
        yield f"values: by at most {np.abs(values - record.values).max():.1e}"
    elif forecast.forecast_id != record.forecast_id:
        yield f"inputs: forecast id {record.forecast_id} is now {forecast.forecast_id}"
    else:
        return
    if record.engine != describe_engine():
        yield f"engine: recorded {record.engine}; now {describe_engine()}"
