"""Cancelled work stops at the next instance or forward pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import UNIVERSE, recent_bars, save_small_artifact, small_artifact
from ensembles import ensemble_of, manifest_of
from torch import nn

from predictor import artifact
from predictor.bars import BarPanel
from predictor.call_context import CallContext
from predictor.errors import CallCancelledError, DeadlineExceededError
from predictor.explain import path
from predictor.forecast import Forecast
from predictor.instance import MIN_TOLERANCE, ExplanationQuery, Instance
from predictor.model import Ensemble, Model, ModelIdentity, Predictor
from predictor.networks import Inputs, TFTForecaster
from predictor.registry import ModelVersions, Registry
from predictor.service import PredictionService

SOON_S = 30
MANY = 1000
ROWS = 4
"""Largest number of rows of a forward pass."""
ONE = Instance(input=recent_bars("AAPL"))
PANEL = Instance(input=recent_bars(*UNIVERSE))


def _wide() -> BarPanel:
    """Twelve symbols, which need three forward passes."""
    bars = recent_bars(*UNIVERSE)
    names = ("open", "high", "low", "close", "volume", "adj_close")
    return replace(
        bars, symbols=tuple("ABCDEFGHIJKL"), **{name: np.tile(getattr(bars, name), (3, 1)) for name in names}
    )


WIDE = Instance(input=_wide())


@dataclass(slots=True)
class StepCounter:
    """Counts steps and triggers a callback at one of them."""

    at: int = 0
    then: Callable[[], object] = lambda: None
    taken: int = 0
    hooked: list[torch.utils.hooks.RemovableHandle] = field(default_factory=list[torch.utils.hooks.RemovableHandle])

    def take(self, *_: object) -> None:
        self.taken += 1
        if self.taken == self.at:
            self.then()

    def count_forwards(self, networks: Sequence[nn.Module]) -> None:
        self.hooked += [network.register_forward_pre_hook(self.take) for network in networks]


def _model(kind: str, seed: int = 0) -> Model:
    identity = ModelIdentity(name=kind, version=1, weights_hash="0" * 64)
    return Model.assemble(identity, small_artifact(kind, seed=seed), device=torch.device("cpu"), max_rows=ROWS)


def _joint(folder: Path) -> Ensemble:
    stored = {str(seed): artifact.load(save_small_artifact(folder / str(seed), seed=seed)) for seed in (1, 2)}
    whole = ensemble_of(manifest_of(stored), stored)
    members = {name: _model("lstm", int(name)) for name in whole.members}
    return Ensemble(whole.identity, whole.manifest, members)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model | Ensemble]:
    joint = _joint(tmp_path_factory.mktemp("joint"))
    return {"lstm": _model("lstm"), "graph": _model("graph"), "ensemble": joint}


@pytest.fixture(params=["lstm", "graph", "ensemble"])
def model(request: pytest.FixtureRequest, models: dict[str, Model | Ensemble]) -> Model | Ensemble:
    return models[request.param]


@pytest.fixture
def steps() -> Iterator[StepCounter]:
    counted = StepCounter()
    yield counted
    for hook in counted.hooked:
        hook.remove()


def networks(model: Predictor) -> list[nn.Module]:
    assert isinstance(model, Model | Ensemble)
    members = [model] if isinstance(model, Model) else list(model.members.values())
    return [member.engine.network for member in members]


def service_of(model: Predictor) -> PredictionService:
    line = ModelVersions.of(model)
    return PredictionService(Registry(models={model.identity.name: line}, problems=()))


def count_preparations(steps: StepCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("predictor.model.preparation")
    align_instance = module.align_instance

    def counted(*arguments: object) -> object:
        steps.take()
        return align_instance(*arguments)

    monkeypatch.setattr(module, "align_instance", counted)


def test_after_a_cancelled_call_of_a_thousand_instances_the_next_caller_does_not_wait_for_them(
    model: Model | Ensemble, steps: StepCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The members read the same inputs, so each instance is prepared once for both."""
    count_preparations(steps, monkeypatch)
    gone = CallContext()
    steps.at, steps.then = 3, gone.cancel
    with service_of(model) as service:
        cancelled = service.predict("", [ONE] * MANY, gone)
        following = service.predict("", [ONE], CallContext())
        assert isinstance(following.result(SOON_S)[0], Forecast)
        assert isinstance(cancelled.exception(SOON_S), CallCancelledError)
    assert steps.taken == 3 + 1


def test_a_deadline_that_passes_between_two_instances_ends_the_call(
    model: Model | Ensemble, steps: StepCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_preparations(steps, monkeypatch)
    passed = CallContext.with_timeout(3600)
    steps.at, steps.then = 2, lambda: object.__setattr__(passed, "expires_at_s", 0.0)
    with service_of(model) as service, pytest.raises(DeadlineExceededError):
        service.predict("", [ONE] * MANY, passed).result(SOON_S)
    assert steps.taken == 2


@pytest.mark.parametrize(
    ("kind", "instances"),
    [
        ("lstm", [ONE] * 10 * ROWS),
        ("lstm", [PANEL] * 10),
        ("graph", [PANEL] * 10),
        ("ensemble", [ONE] * 10 * ROWS),
        ("ensemble", [PANEL] * 10),
    ],
    ids=["many rows", "rows of panels", "panels of a graph", "members", "members' panels"],
)
def test_a_call_cancelled_in_a_forward_takes_no_other(
    models: dict[str, Model | Ensemble], steps: StepCounter, kind: str, instances: list[Instance]
) -> None:
    model, gone = models[kind], CallContext()
    steps.count_forwards(networks(model))
    steps.at, steps.then = 2, gone.cancel
    with service_of(model) as service:
        cancelled = service.predict("", instances, gone)
        assert isinstance(service.predict("", [ONE], CallContext()).result(SOON_S)[0], Forecast)
        assert isinstance(cancelled.exception(SOON_S), CallCancelledError)
    assert steps.taken == 2 + len(networks(model))


@pytest.mark.parametrize("kind", ["lstm", "ensemble"])
def test_a_panel_of_one_instance_is_cancelled_between_its_forwards(
    models: dict[str, Model | Ensemble], steps: StepCounter, kind: str
) -> None:
    model, gone = models[kind], CallContext()
    steps.count_forwards(networks(model))
    steps.at, steps.then = 2, gone.cancel
    with service_of(model) as service, pytest.raises(CallCancelledError):
        service.predict("", [WIDE], gone).result(SOON_S)
    assert steps.taken == 2


def test_a_cancelled_explanation_takes_no_other_forward(
    model: Model | Ensemble, steps: StepCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (path.RowForecasts, path.PanelForecasts):

        def counted(asked: object, *parts: object, work: Callable[..., object] = kind.__call__) -> object:
            steps.take()
            return work(asked, *parts)

        monkeypatch.setattr(kind, "__call__", counted)
    gone = CallContext()
    steps.at, steps.then = 3, gone.cancel
    with service_of(model) as service:
        cancelled = service.explain("", ExplanationQuery(instance=PANEL, tolerance=MIN_TOLERANCE), gone)
        following = service.predict("", [ONE], CallContext())
        assert isinstance(cancelled.exception(SOON_S), CallCancelledError)
        assert isinstance(following.result(SOON_S)[0], Forecast)
    assert steps.taken == 3


def test_an_explanation_cancelled_where_the_ensemble_forecasts_takes_no_other_forward(
    models: dict[str, Model | Ensemble], steps: StepCounter
) -> None:
    model, gone = models["ensemble"], CallContext()
    steps.count_forwards(networks(model))
    steps.at, steps.then = 1, gone.cancel
    query = ExplanationQuery(instance=WIDE, symbols=("A",), targets=model.default_targets()[:1], tolerance=0.5)
    with service_of(model) as service, pytest.raises(CallCancelledError):
        service.explain("", query, gone).result(SOON_S)
    assert steps.taken == 1


def test_an_explanation_cancelled_where_a_network_tells_of_itself_takes_no_other_forward(
    steps: StepCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, gone = _model("tft"), CallContext()
    network = model.engine.network
    assert isinstance(network, TFTForecaster)
    told = network.with_internals

    def counted(inputs: Inputs) -> object:
        steps.take()
        return told(inputs)

    monkeypatch.setattr(network, "with_internals", counted)
    steps.at, steps.then = 2, gone.cancel
    query = ExplanationQuery(instance=WIDE, targets=model.default_targets()[:1], tolerance=0.9)
    with service_of(model) as service, pytest.raises(CallCancelledError):
        service.explain("", query, gone).result(SOON_S)
    assert steps.taken == 2
