"""A model whose exchange calendar has ended: the error and its remedy in every command."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from artifacts import save_small_artifact
from market import bokeh_panel
from serving import serving

from predictor import Forecaster
from predictor.bars import BarPanel
from predictor.cli import app, run
from predictor.client import QuantraClient
from predictor.errors import CalendarEndedError
from predictor.features import load_default_features
from predictor.inference import choose_device
from predictor.networks import LSTMConfig, Target
from predictor.registry import Registry, Runtime
from predictor.service import PredictionService
from predictor.sessions import SessionCalendar
from trainers.progress import ConsumerChain
from trainers.stock import Optimisation, StockRecipe, TrainingMaterial, train

TOLD = (
    "mine@1: 2026-11-25 is outside the calendar XNYS, which covers 2000-01-01 to 2018-03-31; train the model again "
    "(quantra train stock) to renew its calendar"
)


def todays_bars() -> BarPanel:
    """Bars of the last 400 sessions, years after the model was trained."""
    sessions = SessionCalendar.from_exchange("XNYS", 20240101, 20261125).sessions(20240101, 20261125)[-400:]
    return replace(bokeh_panel("AAPL").last(400), sessions=np.ascontiguousarray(sessions))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_small_artifact(folder / "mine" / "1")
    return folder


def test_a_model_whose_calendar_has_ended_is_refused_by_name_with_the_remedy(models: Path) -> None:
    with Forecaster.load(models / "mine" / "1") as forecaster, pytest.raises(CalendarEndedError) as refused:
        forecaster.predict(todays_bars())
    assert refused.value.message.startswith(TOLD)
    assert refused.value.metadata["last"] == "2018-03-31"


def test_a_server_gives_the_same_message(models: Path) -> None:
    service = PredictionService(Registry.open(models, Runtime(choose_device("cpu"), 16)))
    with (
        serving(service) as served,
        QuantraClient(served.target) as client,
        pytest.raises(CalendarEndedError) as refused,
    ):
        client.predict(todays_bars())
    service.close()
    assert refused.value.message.startswith(TOLD)


def test_the_end_of_the_calendar_stands_in_what_inspect_shows(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in ([], ["--all"]):
        with pytest.raises(SystemExit):
            run(app, ["inspect", str(models / "mine" / "1"), *flags])
        assert "XNYS, ends 2018-03-31; for bars after that day, train again" in capsys.readouterr().out


def test_training_again_on_todays_bars_helps(tmp_path: Path) -> None:
    recipe = StockRecipe(
        config=LSTMConfig(hidden=4, layers=1),
        target=Target(horizons=(1,)),
        scale="window",
        encoder_length=10,
        calendar="XNYS",
        optimisation=Optimisation(max_epochs=1),
    )
    train(
        TrainingMaterial(todays_bars(), load_default_features()),
        recipe,
        tmp_path / "mine" / "2",
        consume=ConsumerChain(),
    )
    with Forecaster.load(tmp_path / "mine" / "2") as forecaster:
        assert forecaster.predict(todays_bars()).as_of_session == date(2026, 11, 25)
