"""Writes models, bars and Python's exact results, which the C# tests compare with.

    python tests/contract/dotnet_fixture.py FOLDER

FOLDER then holds `models/` (`small`; `covariates`, which reads them; `graph`, which ranks; `tft`, with internals;
`fitted`, with a fitted scale and known skill; `delayed`, of lag 1; `ensemble`, of `small` and `fitted` with weights;
and the damaged `cut`), `bars.csv` (AAPL and IBM),
`late.csv` (IBM lacks the last day), `past.csv` (900 sessions, for price paths), `covariate_bars.csv` (the bars for the
covariates), `universe.csv` and `universe_events.csv` (many symbols, with more bars than a model reads), `exports/`
(other programs' files: each `source` and the `clean.csv` that `quantra check --fix` makes of it), and `expected.json`,
with arrays as base64.
"""

import base64
import json
import shutil
import sys
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import covariate_files
import ensembles
import exports
import numpy as np
from artifacts import (
    NO_SKILL,
    recent_bars,
    save_artifact,
    save_small_artifact,
    small_artifact,
    small_models,
    with_skill,
)
from market import bokeh_panel, without_last_bar
from typer.testing import CliRunner
from universes import universe, with_events, with_holes

from predictor.bars import BarPanel
from predictor.bars.layouts import REQUIRED, SYNONYMS
from predictor.call_context import CallContext
from predictor.client.panel_calls import CallPlan, ServedModel
from predictor.client.panels import PartResponse, join_parts
from predictor.covariates import Covariates, CovariateSource
from predictor.errors import ANSWERS, QuantraError
from predictor.forecast import Attribution, Detail, Forecast, TargetPoint, require_forecast
from predictor.forecaster import Forecaster
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance, Refusal, TargetImportance
from predictor.inference import choose_device
from predictor.instance import SHAPLEY, ExplanationQuery, Instance, to_instance
from predictor.internals import Internal
from predictor.networks import Target
from predictor.price_paths import PathQuestions
from predictor.registry import Runtime, load_single
from predictor.service import PredictionService
from predictor.skill import Skill
from predictor.wire.limits import RequestLimits
from trainers.cli.commands import app

MODEL = "small"
COVARIATES = "covariates"
"""The model that reads covariates."""
FITTED = "fitted"
DELAYED = "delayed"
ENSEMBLE = "ensemble"
OTHER_KINDS = ("graph", "tft")
"""Models by the name of their kind of network."""
UNIVERSES = {"universe": with_holes(universe(20)), "universe_events": with_events(with_holes(universe(6)))}
"""Panels by file name."""
TIGHT = 60_000
"""Request limit in bytes, too small for a universe."""


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _cut(small_models(folder / "models"))
    recent_bars("AAPL", "IBM").write_csv(folder / "bars.csv")
    without_last_bar(recent_bars("AAPL", "IBM"), "IBM").write_csv(folder / "late.csv")
    bokeh_panel("AAPL", "IBM").last(900).write_csv(folder / "past.csv")
    covariates = covariate_files.source(folder)
    covariate_files.save_artifact_with(folder / "models" / COVARIATES / "1", covariates)
    for kind in OTHER_KINDS:
        save_small_artifact(folder / "models" / kind / "1", kind)
    save_small_artifact(folder / "models" / DELAYED / "1", target=Target(lag=1))
    save_artifact(folder / "models" / FITTED / "1", with_skill(small_artifact(fitted=True), NO_SKILL))
    ensembles.save_ensemble(
        folder / "models" / ENSEMBLE / "1",
        {name: folder / "models" / name / "1" for name in (MODEL, FITTED)},
        ensembles.UNEVEN,
    )
    covariate_files.bars().last(200).write_csv(folder / "covariate_bars.csv")
    for name, panel in UNIVERSES.items():
        panel.write_csv(folder / f"{name}.csv")
    _export(folder / "exports")
    (folder / "expected.json").write_text(json.dumps(_expected(folder, covariates)))


def _export(folder: Path) -> None:
    """Write all sample exports and mistakes, and a file for each alternative column name."""
    folders = (exports.CASES / "exports", exports.CASES / "mistakes")
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    for place, path in enumerate(paths):
        _cleaned(folder / str(place), path.name, path.read_bytes())
    for place, (name, field) in enumerate(SYNONYMS.items()):
        header = ",".join(name if column == field else column for column in ("date", *REQUIRED, "adj_close"))
        rows = "".join(f"2024-01-{day:02},1,2,1,2,{day}00,{day}.5\n" for day in (2, 3, 4))
        _cleaned(folder / f"name{place}", "AAPL.csv", f"{header}\n{rows}".encode())


def _cleaned(folder: Path, name: str, content: bytes) -> None:
    (folder / "source").mkdir(parents=True)
    source = folder / "source" / name
    source.write_bytes(content)
    CliRunner().invoke(app, ["check", str(source), "--fix", str(folder / "clean.csv")])


def _cut(models: Path) -> None:
    """Write a copy of the model with truncated weights next to it."""
    shutil.copytree(models / MODEL, models / "cut")
    weights = models / "cut" / "1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def _expected(folder: Path, covariates: CovariateSource) -> dict[str, object]:
    bars, late, other = (BarPanel.read(folder / name) for name in ("bars.csv", "late.csv", "covariate_bars.csv"))
    with PredictionService.open(folder / "models", device="cpu") as service:
        sent = covariates.for_model(service.model(COVARIATES), other)
        return {
            "environment": sys.prefix,
            "reasons": [answer.reason for answer in ANSWERS.values()],
            "bars_needed": service.model(MODEL).bars_needed,
            "one": _described(_forecast(service, bars.select(["AAPL"]))),
            "panel": _described(_forecast(service, bars)),
            "late": _described(_forecast(service, late)),
            "reasons_of_one": _described(_attribution(service, bars.select(["AAPL"]))),
            "covariates": _described(_forecast(service, Instance(input=other, covariates=sent), COVARIATES)),
            "reasons_covariates": _described(_attribution(service, Instance(input=other, covariates=sent), COVARIATES)),
            "sent_covariates": _values(sent),
            "graph": _described(_forecast(service, bars, "graph")),
            "graph_late": _described(_forecast(service, late, "graph")),
            "reasons_graph": _described(_attribution(service, bars, "graph")),
            "reasons_tft": _described(_attribution(service, bars, "tft")),
            "fitted": _described(_forecast(service, bars, FITTED)),
            "delayed": _described(_forecast(service, bars, DELAYED)),
            "reasons_ensemble": _described(_attribution(service, bars, ENSEMBLE)),
            "reasons_shapley": _described(_attribution(service, bars, ENSEMBLE, SHAPLEY)),
            "ensemble": _described(_forecast(service, bars, ENSEMBLE)),
            "ensemble_late": _described(_forecast(service, late, ENSEMBLE)),
            "fitted_late": _described(_forecast(service, late, FITTED)),
            "global": _described(_importance(service, bars)),
            "paths": _paths(folder),
            "window": _window(folder / "models", MODEL, bars.select(["AAPL"])),
            "window_fitted": _window(folder / "models", FITTED, bars),
            **_universes(folder, service),
        }


def _universes(folder: Path, service: PredictionService) -> dict[str, object]:
    """Forecasts of all bars, and the parts into which a panel is split for requests of `TIGHT` bytes."""
    panels = {name: BarPanel.read(folder / f"{name}.csv") for name in UNIVERSES}
    wholes = {name: _described(_forecast(service, panel)) for name, panel in panels.items()}
    reasons = {f"{name}_reasons": _described(_attribution(service, panel)) for name, panel in panels.items()}
    return {**wholes, **reasons, "universe_parts": _described(_of_parts(service, panels["universe"]))}


def _of_parts(service: PredictionService, panel: BarPanel) -> Forecast:
    info = service.model(MODEL)
    served = ServedModel(
        name=info.name,
        version=info.version,
        weights_hash=info.weights_hash,
        bars_needed=info.bars_needed,
        is_panel_model=info.is_panel_model,
        limits=RequestLimits(size=TIGHT),
    )
    cut = [served.cut(Instance(input=panel))]
    parts = [part for call in CallPlan.of(cut, served, MODEL).calls for part in call]
    assert len(parts) > 2, "it is to be split"
    responses = [PartResponse(part=part, symbols=(), outcome=_forecast(service, part.of(cut))) for part in parts]
    return require_forecast(join_parts(responses))


def _values(sent: Covariates) -> dict[str, object]:
    """All covariates by name, without duplicates."""
    groups = (sent.observed, sent.known, sent.numbers)
    arrays = {name: _plain(values) for group in groups for name, values in group.items()}
    return {"future_sessions": _plain(sent.future_sessions), **sent.categories, **arrays}


def _forecast(service: PredictionService, asked: BarPanel | Instance, model: str = MODEL) -> Forecast:
    outcome = service.predict(model, [to_instance(asked)], CallContext()).result()[0]
    if isinstance(outcome, QuantraError):
        raise outcome
    return outcome


def _attribution(
    service: PredictionService, asked: BarPanel | Instance, model: str = MODEL, method: str = ""
) -> Attribution:
    detail = Detail.FEATURES if method == SHAPLEY else Detail.CELLS
    query = ExplanationQuery(instance=to_instance(asked), targets=(TargetPoint(5, 0.5),), detail=detail, method=method)
    return service.explain(model, query, CallContext()).result().attributions[0]


def _importance(service: PredictionService, bars: BarPanel) -> GlobalImportance:
    """Global importance over two days of both symbols, and one refused instance."""
    days = (bars, bars.until(int(bars.sessions[-6])), bars.last(5))
    query = GlobalExplanationQuery(
        instances=tuple(Instance(input=panel) for panel in days), targets=(TargetPoint(5, 0.5), TargetPoint(20, 0.9))
    )
    return service.explain_global(MODEL, query, lambda _: None, CallContext()).result()


def _paths(folder: Path) -> dict[str, object]:
    """Price paths, and answers from them."""
    bars = BarPanel.read(folder / "past.csv")
    paths = Forecaster.load(folder / "models" / MODEL / "1").simulate(bars, paths=300, seed=5)
    holdings, prices = {"AAPL": 800.0, "IBM": -300.0}, (("AAPL", 440.0), ("IBM", 190.0))
    answers = paths.answer(PathQuestions(day=10, level=0.95, holdings=holdings, prices=prices))
    numbers = [answers.value_at_risk, answers.expected_shortfall, answers.drawdown]
    numbers += [number for one in answers.prices for number in (one.above, one.touched)]
    return {
        "symbols": list(paths.symbols),
        "returns": _plain(paths.returns),
        "anchor_price": _plain(paths.anchor_price),
        "estimates": _plain(np.array(numbers, np.float64)),
        "past_days": paths.past_days,
        "forecast_id": paths.forecast_id,
    }


def _window(models: Path, name: str, bars: BarPanel) -> dict[str, object]:
    """The feature windows that the model computes from the bars; a fitted scale has one number per horizon."""
    model = load_single(models / name / "1", (name, 1), Runtime(choose_device("cpu"), 256))
    inputs = model.prepare(Instance(input=bars), datetime.now(UTC)).inputs
    groups = {name: group.numpy() for name, group in inputs._asdict().items()}
    if not model.pipeline.normaliser.is_per_horizon:
        groups |= {name: groups[name][:, 0] for name in ("location", "scale")}
    return {name: _plain(group) for name, group in groups.items()} | {
        "schema_hash": model.pipeline.features.schema_hash
    }


Described = Forecast | Attribution | GlobalImportance | TargetImportance | Internal | Skill


def _described(value: Described) -> dict[str, object]:
    described = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return {**described, "line": value.line} if isinstance(value, Skill) else described


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    if isinstance(value, date):
        return int(value.strftime("%Y%m%d"))
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        refusals = cast("dict[str, QuantraError]", value)
        return [{"symbol": symbol, "message": error.message} for symbol, error in refusals.items()]
    if isinstance(value, Refusal):
        return {"place": value.place, "symbol": value.symbol, "message": value.error.message}
    return _described(value) if isinstance(value, Internal | Skill | TargetImportance) else value


if __name__ == "__main__":
    write(Path(sys.argv[1]))
