"""The model whose forecast is reported at each horizon: the simplest one that the champion is not shown to beat."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictor.canonical import Json
from predictor.card import STARTS
from predictor.errors import format_count
from predictor.evidence import Lamp
from predictor.ledger import EvidenceRecord, ForecastRecord, Ledger
from predictor.model_health import SKILL, ModelVersion
from trainers.stock.daily.recorded_models import BASELINES, RecordedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedForecast:
    """The model whose forecast is reported at one horizon."""

    horizon: int
    model: ModelVersion
    name: str
    """Such as HAR or mine@3."""
    reason: str
    """Why it is this model, in words."""

    @property
    def sentence(self) -> str:
        """The choice and its reason."""
        return f"{format_count(self.horizon, 'session')} ahead: {self.name}, because {self.reason}"

    def to_json(self) -> dict[str, Json]:
        """All fields as JSON values."""
        return {"horizon": self.horizon, "model": self.model.reference, "name": self.name, "reason": self.reason}


def choose_forecasts(
    evidence: Sequence[EvidenceRecord],
    champion: ModelVersion,
    simple: Mapping[str, ModelVersion],
    horizons: Sequence[int],
) -> tuple[ServedForecast, ...]:
    """Choose the model to report at each horizon.

    The champion is reported only if it is shown to be better than every simple model. If it is not better at a horizon,
    the probability that it is ever reported there is at most ALPHA, although this is decided every evening. `simple`
    holds the baselines that made a forecast, by name, the simplest first.
    """
    by_test = {(record.monitor, record.horizon): record for record in evidence}
    forecasts: list[ServedForecast] = []
    for horizon in horizons:
        tests = {name: by_test.get((f"{SKILL} {version.reference}", horizon)) for name, version in simple.items()}
        unbeaten = next((name for name, test in tests.items() if test is None or test.lamp is not Lamp.GREEN), None)
        if unbeaten is not None:
            model, name = simple[unbeaten], unbeaten
            reason = f"{champion.reference} {_describe_failure(tests[unbeaten])}"
        else:
            model, name = champion, champion.reference
            beaten = [f"{name} ({_describe_bounds(test)})" for name, test in tests.items() if test is not None]
            reason = "no simple model made a forecast"
            if beaten:
                reason = f"it is shown to be better than {' and '.join(beaten)}"
        forecasts.append(ServedForecast(horizon=horizon, model=model, name=name, reason=reason))
    return tuple(forecasts)


def _describe_failure(test: EvidenceRecord | None) -> str:
    """Why the champion is not known to be better, in words."""
    if test is None or not (bounds := _describe_bounds(test)):
        return "has too few outcomes to be shown to be better"
    return f"is {'shown to be worse' if test.lamp is Lamp.RED else 'not shown to be better'} ({bounds})"


def _describe_bounds(test: EvidenceRecord) -> str:
    """The bounds of the champion's improvement, in percent of the simple model's loss; empty without bounds."""
    scale, *bounds = (test.state.get(name) for name in ("their_loss", "lower", "upper"))
    if not isinstance(scale, float) or scale <= 0:
        return ""
    percent = [f"{100 * bound / scale:+.1f} %" for bound in bounds if isinstance(bound, float)]
    return " to ".join(percent) + " smaller loss" if percent else ""


def find_simple_models(ledger: Ledger, champion: RecordedModel, session: int) -> dict[str, ModelVersion]:
    """The baselines that forecast the same as the champion on a session, by name, the simplest first."""
    manifest = champion.model.manifest
    rows = ledger.query(
        "select distinct model, version, horizons, quantiles from forecast where as_of = ? and role = 'baseline'",
        (session,),
    )
    simple_models = {
        row["model"]: ModelVersion(row["model"], row["version"])
        for row in rows
        if json.loads(row["horizons"]) == list(manifest.target.horizons)
        and json.loads(row["quantiles"]) == list(manifest.quantiles)
    }
    names = {f"{champion.version.model}-{kind}": STARTS[kind] for kind in BASELINES}
    return {name: simple_models[model] for model, name in names.items() if model in simple_models}


def read_forecasts(ledger: Ledger, version: ModelVersion, session: int) -> list[ForecastRecord]:
    """The forecasts of a version on a session, without those for clients."""
    condition = "model = ? and version = ? and as_of = ? and role <> 'client'"
    return ledger.records(ForecastRecord, condition, (*version, session))


def read_served(ledger: Ledger, served: Sequence[ServedForecast], session: int) -> list[ForecastRecord]:
    """The forecasts to report: the values of each horizon are those of its model.

    A symbol that one of these models does not forecast is left out.
    """
    models = {forecast.model for forecast in served}
    forecasts = {
        model: {forecast.symbol: forecast for forecast in read_forecasts(ledger, model, session)} for model in models
    }
    first = forecasts[served[0].model]
    return [
        replace(
            first[symbol],
            values=np.stack([forecasts[reported.model][symbol].values[index] for index, reported in enumerate(served)]),
        )
        for symbol in first
        if all(symbol in records for records in forecasts.values())
    ]
