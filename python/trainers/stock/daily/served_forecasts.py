"""The model whose forecast is reported at each horizon: the simplest one that the champion is not shown to beat."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictor.canonical import Json
from predictor.card import STARTS
from predictor.errors import format_count
from predictor.evidence import Lamp
from predictor.ledger import EvidenceRecord, ForecastRecord, Ledger
from predictor.model_health import SKILL, ModelVersion
from trainers.stock.daily.recorded_models import RecordedModel, list_baselines


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
    absent: Collection[str] = (),
) -> tuple[ServedForecast, ...]:
    """Choose the model to report at each horizon.

    The champion is reported only if it is shown to be better than every simple model that made a forecast. While they
    all make one, the probability that it is ever reported at a horizon where it is not better is at most ALPHA,
    although this is decided every evening. `simple` holds the baselines by name, the simplest first, and `absent` the
    names of those that made no forecast.
    """
    by_test = {(record.monitor, record.horizon): record for record in evidence}
    forecasts: list[ServedForecast] = []
    for horizon in horizons:
        tests = {name: by_test.get((f"{SKILL} {version.reference}", horizon)) for name, version in simple.items()}
        beaten = {rival: test for rival, test in tests.items() if test is not None and test.lamp is Lamp.GREEN}
        unbeaten = [rival for rival in tests if rival not in beaten]
        name = next((rival for rival in unbeaten if rival not in absent), champion.reference)
        skipped, reasons = unbeaten, list[str]()
        if name in unbeaten:
            skipped = unbeaten[: unbeaten.index(name)]
            reasons.append(f"{champion.reference} {_describe_failure(tests[name])}")
        elif beaten:
            bounds = (f"{rival} ({_describe_bounds(test)})" for rival, test in beaten.items())
            reasons.append(f"it is shown to be better than {' and '.join(bounds)}")
        if skipped:
            reasons.append(f"{' and '.join(skipped)} made no forecast")
        model, reason = simple.get(name, champion), "; ".join(reasons)
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


def find_simple_models(
    ledger: Ledger, champion: RecordedModel, session: int
) -> tuple[dict[str, ModelVersion], frozenset[str]]:
    """The baselines of the champion by name, the simplest first, and those that made no such forecast on a session."""
    manifest = champion.model.manifest
    simple: dict[str, ModelVersion] = {}
    absent: set[str] = set()
    for kind in list_baselines(manifest.target):
        model = f"{champion.version.model}-{kind}"
        newest = ledger.query(
            "select version, as_of, horizons, quantiles from forecast "
            "where model = ? and role = 'baseline' and as_of <= ? order by as_of desc, version desc limit 1",
            (model, session),
        )
        simple[STARTS[kind]] = ModelVersion(model, newest[0]["version"] if newest else 1)
        axes = [(session, list(manifest.target.horizons), list(manifest.quantiles))]
        if [(row["as_of"], json.loads(row["horizons"]), json.loads(row["quantiles"])) for row in newest] != axes:
            absent.add(STARTS[kind])
    return simple, frozenset(absent)


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
