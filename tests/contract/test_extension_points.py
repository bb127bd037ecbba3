"""Extension points: a new network, normaliser, operator, error, baseline or command is one file and one table entry.

The tables have these entries while the tests of this module run. The code above the tests is what a new file would
contain.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnxruntime
import pytest
import torch
import typer
from market import bokeh_panel
from numpy.typing import NDArray
from serving import serving
from torch import Tensor, nn

from predictor import artifact, errors
from predictor.bars import AdjustedBars, BarPanel
from predictor.canonical import Json, Record
from predictor.cli import commands as predictors
from predictor.cli import run
from predictor.cli.program import Command
from predictor.client import QuantraClient
from predictor.errors import ArtifactError, ConfigurationError, ErrorStatus, ExpressionError, InvalidInputError, Status
from predictor.export import export_onnx
from predictor.features import OPERATORS, FeatureSet
from predictor.features.kernels import Kernel, map_windows
from predictor.features.operators import Flatness, Operator, Window
from predictor.flags import Flag
from predictor.forecast import Attribution, Forecast
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import Instance
from predictor.networks import (
    KINDS,
    NORMALISERS,
    DailySeries,
    Inputs,
    InputSizes,
    NetworkKind,
    NormaliserKind,
    QuantileHead,
    Target,
    WindowLevels,
    make_config,
)
from predictor.networks.inputs import ROW_ARITHMETIC, compute_row_width, make_session_rows
from predictor.networks.layers import CONTEXT_ARITHMETIC, HiddenSize, HorizonContext, check_whole
from predictor.networks.output import HEAD_ARITHMETIC
from predictor.registry import Runtime, load_single
from predictor.service import PredictionService
from trainers.loop import Report
from trainers.stock import Optimisation, StockRecipe, TrainingResult, train
from trainers.stock.evaluation import baselines
from trainers.stock.evaluation.baselines import BaselineModel, FitScope, FittedBaseline
from trainers.stock.evaluation.baselines.baseline import BaselineSample
from trainers.stock.recipe import read_recipe
from trainers.stock.training_data import TrainingMaterial

FloatArray = NDArray[np.float64]

SAME: Final = 1e-6
"""Largest difference of the exported file's returns."""

# --- a kind of network


@dataclass(frozen=True, slots=True, kw_only=True)
class FadingConfig:
    """Settings of a network that reads an average of the past."""

    hidden: HiddenSize = 4
    """Width of the layer before the head."""
    fading: Annotated[float, Flag("Weight of a session relative to the next.", shown_default="depends on the kind")] = (
        0.9
    )
    """In (0, 1]."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, 64)
        if not 0 < self.fading <= 1:
            raise ConfigurationError(f"fading is {self.fading:g}, but must be above 0 and at most 1")


class FadingForecaster(nn.Module):
    """A layer over a fading average of the sessions; direct forecasts of all horizons."""

    weights: Tensor

    def __init__(self, config: FadingConfig, *, sizes: InputSizes, target: Target, levels: tuple[float, ...]) -> None:
        super().__init__()
        ages = torch.arange(sizes.encoder_length - 1, -1, -1)
        self.register_buffer("weights", torch.softmax(ages * float(np.log(config.fading)), dim=0))
        self.layer = nn.Linear(compute_row_width(sizes), config.hidden)
        self.context = HorizonContext(config.hidden, sizes=sizes, target=target, dropout=0.0)
        self.head = QuantileHead(config.hidden, horizons=len(target.horizons), levels=levels)

    def forward(self, inputs: Inputs) -> Tensor:
        """Quantiles [N, H, Q] float32 in units of the window's own volatility."""
        average = (make_session_rows(inputs) * self.weights[:, None]).sum(dim=1)
        return self.head(self.context(torch.tanh(self.layer(average)), inputs))


FADING: Final = NetworkKind(
    "fading",
    1,
    FadingConfig,
    FadingForecaster,
    {"row": ROW_ARITHMETIC, "average": "weights sum to 1", **CONTEXT_ARITHMETIC, "head": HEAD_ARITHMETIC},
)

# --- a kind of normaliser


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsoluteNormaliser:
    """Location 0, and as scale the mean size of the window's daily values."""

    window: int = 20
    """Sessions."""
    floor: float = 1e-4
    """Smallest scale."""

    @property
    def kind(self) -> str:
        return ABSOLUTE.name

    @property
    def is_per_horizon(self) -> bool:
        return False

    def series(self, target: Target, bars: AdjustedBars) -> DailySeries:
        """The target's own daily series."""
        return (target.daily(bars),)

    def compute_levels(self, windows: DailySeries) -> WindowLevels:
        """Location and scale, [N, 1] each."""
        size = self.stages(windows)["mean_size"][:, None]
        return WindowLevels(location=0.0 * size, scale=np.maximum(size, self.floor))

    def stages(self, windows: DailySeries) -> Mapping[str, FloatArray]:
        """As `Normaliser.stages`: the mean size, [N]."""
        sizes = np.abs(windows[0][:, -self.window :])
        with np.errstate(all="ignore"):
            return {"mean_size": np.nansum(sizes, axis=1) / np.isfinite(sizes).sum(axis=1)}

    def settings(self) -> Mapping[str, Json]:
        return asdict(self)


def read_absolute(record: Record, _target: Target) -> AbsoluteNormaliser:
    """Read the normaliser from an artifact."""
    return AbsoluteNormaliser(window=record.integer("window"), floor=record.number("floor"))


ABSOLUTE: Final = NormaliserKind("absolute", read_absolute)

# --- a kind of error, and an operator that raises it

MOST: Final = 1e6


class PriceTooHighError(InvalidInputError):
    """A price above the operator's limit."""


TOO_HIGH: Final = ErrorStatus(Status.INVALID_ARGUMENT, "PRICE_TOO_HIGH")


def drawdown(n: int) -> Kernel:
    """How far below the highest of the last n values, [R - n + 1, S] from [R, S]."""

    def below(windows: FloatArray) -> FloatArray:
        highest = windows.max(axis=0)
        if (highest > MOST).any():
            raise PriceTooHighError(
                f"Drawdown reads values up to {MOST:g}, but one is {highest[highest > MOST][0]:g}; divide them",
                metadata={"most": f"{MOST:g}"},
            )
        return windows[-1] / highest - 1

    return map_windows(n, below)


def _spread(_series: Flatness) -> Flatness:
    return Flatness.SPREAD


DRAWDOWN: Final = Operator(
    name="Drawdown",
    series=("x",),
    windows=(Window("n", 1),),
    kernel=drawdown,
    flatness=_spread,
    meaning="how far x is below the highest of the last n values",
)

FEATURES: Final = {
    "operator_set": 1,
    "observed": [
        {"name": "r1", "expression": "Log($close / Ref($close, 1))", "meaning": "return", "unit": "log"},
        {"name": "drawdown", "expression": "Drawdown($close, 5)", "meaning": "below the high", "unit": "1"},
    ],
    "known": [],
}

# --- a baseline


def coin(sample: BaselineSample) -> FittedBaseline:
    """Two percent up or down."""
    quantiles = np.interp(sample.levels, (0.0, 1.0), (-0.02, 0.02))
    shape = len(sample.target.horizons), len(quantiles)
    return FittedBaseline(quantiles=lambda asked: np.broadcast_to(quantiles, (len(asked), *shape)).copy())


COIN: Final = BaselineModel(name="coin", estimator=coin, fits=(FitScope.UNCALIBRATED,))

# --- a command


def units(artifact_folder: Annotated[Path, typer.Argument()]) -> None:
    """Print the units of an artifact's network."""
    typer.echo(artifact.load(artifact_folder).artifact.manifest.normaliser.kind)


UNITS: Final = Command(
    "units",
    f"{__name__}:units",
    "Print the units of an artifact's network.",
    "Example: quantra units models/demo/1",
)

# --- table entries

READ_AT_THE_START: Final = ("trainers.cli.commands", "trainers.stock.command")
"""Modules that make a program's commands and flags of the tables when they are imported."""


@pytest.fixture(scope="module")
def lines() -> Iterator[None]:
    """Add the new kinds to the tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_open(KINDS), FADING.name, FADING)
        patch.setitem(_open(NORMALISERS), ABSOLUTE.name, ABSOLUTE)
        patch.setitem(_open(OPERATORS), DRAWDOWN.name, DRAWDOWN)
        patch.setitem(_open(errors.ANSWERS), PriceTooHighError, TOO_HIGH)
        patch.setattr(baselines, "BASELINES", (*baselines.BASELINES, COIN))
        patch.setattr(predictors, "COMMANDS", (*predictors.COMMANDS, UNITS))
        for name in READ_AT_THE_START:
            _forget(patch, name)
        yield


def _open(closed: Mapping[Any, Any]) -> dict[Any, Any]:
    """A read-only table as a mutable dict."""
    assert isinstance(closed, dict)
    return closed


def _forget(patch: pytest.MonkeyPatch, module: str) -> None:
    """Import the module afresh in the test, and restore it afterwards."""
    package, _, name = module.rpartition(".")
    __import__(module)
    patch.setattr(sys.modules[package], name, sys.modules[module])
    patch.delitem(sys.modules, module)


# --- training with all of them


def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG").last(400)


def recent() -> BarPanel:
    return bars().last(60)


def no_progress(reports: Iterable[Report]) -> Iterator[Report]:
    return iter(reports)


def quantra(arguments: Sequence[str]) -> int:
    """Run the program with the changed tables; returns its exit code."""
    from trainers.cli.commands import app  # imported again, with the current tables

    with pytest.raises(SystemExit) as ended:
        run(app, arguments)
    assert isinstance(ended.value.code, int | None)
    return ended.value.code or 0


@pytest.fixture(scope="module")
def features(lines: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - the operator's line
    file = tmp_path_factory.mktemp("features") / "mine.json"
    file.write_text(json.dumps(FEATURES))
    return file


@pytest.fixture(scope="module")
def recipe(lines: None) -> StockRecipe:  # noqa: ARG001 - the kinds' lines
    return StockRecipe(
        kind="fading",
        config=FadingConfig(fading=0.8),
        target=Target(horizons=(1, 3)),
        encoder_length=10,
        calendar="XNYS",
        scale="window",
        normaliser=AbsoluteNormaliser(window=15),
        optimisation=Optimisation(max_epochs=1, device="cpu"),
    )


@pytest.fixture(scope="module")
def training_result(features: Path, recipe: StockRecipe, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    material = TrainingMaterial(bars(), FeatureSet.read(features))
    return train(material, recipe, tmp_path_factory.mktemp("models") / "mine" / "1", consume=no_progress)


@pytest.fixture(scope="module")
def forecaster(training_result: TrainingResult) -> Iterator[Forecaster]:
    with Forecaster.load(training_result.folder, device="cpu") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def client(training_result: TrainingResult) -> Iterator[QuantraClient]:
    """A client of a server with the trained model."""
    models = training_result.folder.parent.parent
    with (
        PredictionService.open(models, device="cpu") as service,
        serving(service) as served,
        QuantraClient(served.target, "mine") as client,
    ):
        yield client


def with_high_prices(panel: BarPanel) -> BarPanel:
    columns = {name: 1e5 * getattr(panel, name) for name in ("open", "high", "low", "close", "adj_close")}
    return replace(panel, **columns)


# --- from training to a served, explained, exported forecast


def test_an_artifact_with_a_new_network_and_normaliser_loads_as_it_was_trained(
    training_result: TrainingResult, recipe: StockRecipe
) -> None:
    manifest = artifact.load(training_result.folder).artifact.manifest
    assert (manifest.kind, manifest.config) == (FADING, FadingConfig(fading=0.8))
    assert manifest.normaliser == recipe.normaliser


def test_a_recipe_with_new_kinds_reads_back_from_the_card(training_result: TrainingResult, recipe: StockRecipe) -> None:
    assert read_recipe(training_result.card["recipe"]) == recipe


def test_a_new_kinds_wrong_setting_is_named(recipe: StockRecipe) -> None:
    with pytest.raises(ConfigurationError, match="fading is 2"):
        make_config(FADING, {"fading": 2.0})
    with pytest.raises(ConfigurationError, match=r"normaliser\.decay is an unknown key"):
        read_recipe({**recipe.settings(), "normaliser_decay": 1.0})


def test_a_new_baseline_is_scored_with_the_model(training_result: TrainingResult) -> None:
    scores = training_result.summary.scores
    assert scores is not None
    assert "coin" in {row.name for row in scores.rows}


def test_a_forecast_with_new_kinds_is_explained_and_the_reasons_add_up(forecaster: Forecaster) -> None:
    forecast, found = forecaster.predict(recent()), forecaster.feature_importance(recent(), horizon=3)
    assert {"r1", "drawdown"} <= set(found.row_names)
    assert found.converged.all()
    np.testing.assert_allclose(found.prediction, forecast.values[:, 1, 1], rtol=0, atol=SAME)
    difference = found.prediction - found.baseline_prediction
    np.testing.assert_allclose(found.per_row.sum(axis=1), difference, rtol=0.01, atol=1e-4)


def test_a_server_forecasts_and_explains_with_new_kinds_to_the_same_bits(
    forecaster: Forecaster, client: QuantraClient
) -> None:
    assert client.model().kind == "fading"
    assert bits_of(client.predict(recent())) == bits_of(forecaster.predict(recent()))
    served, own = (door.feature_importance(recent(), horizon=3) for door in (client, forecaster))
    assert reasons_of(served) == reasons_of(own)


def bits_of(forecast: Forecast) -> bytes:
    return forecast.values.tobytes()


def reasons_of(found: Attribution) -> tuple[tuple[str, ...], bytes]:
    return found.row_names, found.per_row.tobytes()


def test_a_new_error_has_its_type_its_reason_and_its_facts_on_both_sides_of_the_wire(
    forecaster: Forecaster, client: QuantraClient
) -> None:
    for door in (forecaster, client):
        with pytest.raises(PriceTooHighError, match="reads values up to 1e\\+06") as raised:
            door.predict(with_high_prices(recent()))
        assert raised.value.metadata["most"] == "1e+06"
        assert errors.get_error_status(raised.value) == TOO_HIGH


@pytest.mark.slow
def test_an_exported_file_with_new_kinds_gives_the_models_numbers(
    training_result: TrainingResult, tmp_path: Path
) -> None:
    exported = export_onnx(training_result.folder, tmp_path / "mine.onnx")
    model = load_single(training_result.folder, ("mine", 1), Runtime(device=torch.device("cpu"), max_rows=256))
    prepared = model.prepare(Instance(input=recent()), AFTER_ALL_SESSIONS)
    given = {name: group.numpy() for name, group in prepared.inputs._asdict().items()}
    given |= {name: given[name][:, 0] for name in ("location", "scale")}
    session = onnxruntime.InferenceSession(exported.file, providers=["CPUExecutionProvider"])
    found = session.run(None, {port.name: given[port.name] for port in exported.inputs})[0]
    np.testing.assert_allclose(np.asarray(found), model.forecast([prepared])[0].values, rtol=0, atol=SAME)


def test_a_new_command_is_listed_and_runs(training_result: TrainingResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert quantra(["--help"]) == 0
    assert UNITS.help[:30] in capsys.readouterr().out
    assert quantra(["units", str(training_result.folder)]) == 0
    assert capsys.readouterr().out == "absolute\n"


def test_the_command_line_trains_a_new_network_with_its_own_setting_and_a_new_operator(
    features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "bars.csv", tmp_path / "told" / "1"
    write_csv(bars(), rows)
    asked = ["--bars", str(rows), "--out", str(out), "--features", str(features), "--model", "fading"]
    small = ["--fading", "0.7", "--horizons", "1", "--encoder-length", "10", "--epochs", "1", "--device", "cpu"]
    assert quantra(["train", "stock", *asked, *small, "--json"]) == 0
    assert '"kind": "trained"' in capsys.readouterr().out
    assert artifact.load(out).artifact.manifest.config == FadingConfig(fading=0.7)


def test_a_page_is_written_about_a_model_of_new_kinds(training_result: TrainingResult, tmp_path: Path) -> None:
    rows, page = tmp_path / "bars.csv", tmp_path / "report.html"
    write_csv(recent(), rows)
    assert quantra(["report", str(training_result.folder), "--bars", str(rows), "--output", str(page)]) == 0
    text = page.read_text()
    assert all(name in text for name in ("fading", "drawdown", "coin"))


def write_csv(panel: BarPanel, file: Path) -> None:
    """The bars as `quantra train stock` reads them."""
    columns = ("open", "high", "low", "close", "volume")
    lines = ["symbol,date,open,high,low,close,volume"]
    for s, symbol in enumerate(panel.symbols):
        for t, session in enumerate(panel.sessions.tolist()):
            cells = ",".join(repr(float(getattr(panel, name)[s, t])) for name in columns)
            lines.append(f"{symbol},{session},{cells}")
    file.write_text("\n".join(lines) + "\n")


# --- without the table entries


def test_without_its_line_a_kind_is_refused_by_name(training_result: TrainingResult) -> None:
    """An artifact of a newer version, loaded by a program that lacks its kinds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(_open(KINDS), FADING.name)
        with pytest.raises((ArtifactError, ConfigurationError), match="fading"):
            artifact.load(training_result.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(_open(NORMALISERS), ABSOLUTE.name)
        with pytest.raises(ArtifactError, match="'absolute', but must be 'window' or 'fitted'"):
            artifact.load(training_result.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(_open(OPERATORS), DRAWDOWN.name)
        with pytest.raises((ArtifactError, ExpressionError), match="unknown operator Drawdown"):
            artifact.load(training_result.folder)
