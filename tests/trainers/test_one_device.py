"""Every network uses one device in training, forecasts and explanations, as CUDA requires.

Nothing is computed; see tests/one_device.py.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from one_device import META, OneDevice, TwoDevicesError
from torch import Tensor, nn
from torch.nn import functional

from predictor.call_context import NEVER
from predictor.explain import Baseline, Explainer, build_attribution_view
from predictor.inference import Engine, freeze
from predictor.networks import (
    KINDS,
    Edges,
    GraphForecaster,
    Inputs,
    InputSizes,
    OutputMap,
    Setting,
    Target,
    build_network,
    make_config,
)
from trainers.loop import Loss
from trainers.loop.data.tree import move
from trainers.stock.data import PanelBatch, PanelSplitter, WindowBatch
from trainers.stock.objectives import PanelTask, QuantileTask

STOCKS, DAYS = 5, 3
ROWS = STOCKS * DAYS
LEVELS = (0.1, 0.5, 0.9)
TARGET = Target(horizons=(1, 5))
FULL = InputSizes(encoder_length=5, future_length=6, observed=3, known=2, static=3, nodes=STOCKS)
POINTS = [(1, 2)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network with every setting that changes its operations."""

    kind: str
    settings: dict[str, Setting]
    sizes: InputSizes = FULL

    @property
    def is_panel_model(self) -> bool:
        return KINDS[self.kind].is_panel_model

    def build(self, device: torch.device = META) -> nn.Module:
        """Build the network on a device, in train mode."""
        kind = KINDS[self.kind]
        network = build_network(kind, make_config(kind, self.settings), sizes=self.sizes, target=TARGET, levels=LEVELS)
        if isinstance(network, GraphForecaster):
            network.connect(_ring(network.neighbours.shape[1]))
        return network.to(device)


def _ring(neighbours: int) -> Edges:
    stocks = torch.arange(STOCKS)[:, None]
    return Edges(
        neighbours=(stocks + 1 + torch.arange(neighbours)) % STOCKS, weights=torch.full((STOCKS, neighbours), 0.5)
    )


def _small(**settings: Setting) -> dict[str, Setting]:
    return {"hidden": 8, **settings}


CASES = {
    "lstm": Case(kind="lstm", settings=_small()),
    "lstm of two layers": Case(kind="lstm", settings=_small(layers=2)),
    "lstm, observed alone": Case(kind="lstm", settings=_small(), sizes=replace(FULL, known=0, static=0)),
    "gru": Case(kind="gru", settings=_small()),
    "gru without known features": Case(kind="gru", settings=_small(layers=2), sizes=replace(FULL, known=0)),
    "hybrid": Case(kind="hybrid", settings=_small(heads=2)),
    "hybrid of two blocks": Case(kind="hybrid", settings=_small(heads=2, blocks=2), sizes=replace(FULL, static=0)),
    "tft": Case(kind="tft", settings=_small(heads=2)),
    "tft without highway": Case(kind="tft", settings=_small(heads=2, highway=False)),
    "tft without known features": Case(kind="tft", settings=_small(heads=2), sizes=replace(FULL, known=0)),
    "tft without static features": Case(kind="tft", settings=_small(heads=2), sizes=replace(FULL, static=0)),
    "tft with static variables of several columns": Case(
        kind="tft", settings=_small(heads=2), sizes=replace(FULL, static_widths=(1, 2))
    ),
    "graph": Case(kind="graph", settings=_small(heads=2, neighbours=2, frequencies=2)),
    "graph without frequencies": Case(kind="graph", settings=_small(heads=2, neighbours=2, frequencies=0, patch=1)),
    "graph without neighbours": Case(kind="graph", settings=_small(heads=2, neighbours=0, frequencies=2)),
    "graph, observed alone": Case(
        kind="graph", settings=_small(heads=2, neighbours=2, frequencies=2), sizes=replace(FULL, known=0, static=0)
    ),
}
LEARNT = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
LONE = "graph without neighbours"  # it reads only its own stock, and only panel rows are explained
EXPLAINED = pytest.mark.parametrize(
    "case", [case for name, case in CASES.items() if name != LONE], ids=[name for name in CASES if name != LONE]
)
ALL = pytest.mark.parametrize(
    "case",
    [*CASES.values(), *(Case(kind=name, settings={}) for name in ("har", "garch"))],
    ids=[*CASES.keys(), "har", "garch"],
)


def test_every_kind_of_network_is_here() -> None:
    assert {case.kind for case in CASES.values()} == {name for name, kind in KINDS.items() if kind.is_trainable}


@pytest.fixture(scope="module")
def lstms_are_taken_apart_rightly() -> bool:
    """Torch 2.11 decomposes an LSTM on the meta device into states of four dimensions."""
    with OneDevice(), torch.inference_mode():
        state = nn.LSTM(2, 3, device=META)(torch.empty(5, 4, 2, device=META))[1][0]
    return state.ndim == 3


@pytest.fixture
def for_this_torch(request: pytest.FixtureRequest, *, lstms_are_taken_apart_rightly: bool) -> None:
    case = request.getfixturevalue("case") if "case" in request.fixturenames else CASES["tft"]
    if case.kind == "tft" and not lstms_are_taken_apart_rightly:
        pytest.skip(f"torch {torch.__version__} takes LSTMs with states apart wrongly on a device without memory")


def _inputs(sizes: InputSizes, rows: int = ROWS) -> Inputs:
    """Inputs on the host."""
    generator = torch.Generator().manual_seed(1)
    length, horizons = sizes.encoder_length, len(TARGET.horizons)
    return Inputs(
        observed=torch.randn(rows, length, sizes.observed, generator=generator),
        known=torch.randn(rows, length + sizes.future_length, sizes.known, generator=generator),
        static=torch.randn(rows, sizes.static, generator=generator),
        mask=torch.rand(rows, length, sizes.observed, generator=generator) > 0.1,
        location=torch.zeros(rows, horizons, dtype=torch.float64),
        scale=torch.ones(rows, horizons, dtype=torch.float64),
    )


def _output() -> OutputMap:
    return OutputMap(
        spread=torch.from_numpy(TARGET.spread),
        offsets=torch.zeros(len(TARGET.horizons), len(LEVELS), dtype=torch.float64),
        levels=LEVELS,
    )


def _losses(case: Case, network: nn.Module, device: torch.device = META) -> list[Callable[[], Loss]]:
    """Each training and evaluation loss of the network, on a batch."""
    inputs, target = _inputs(case.sizes).as_float32(), torch.zeros(ROWS, len(TARGET.horizons))
    if not case.is_panel_model:
        batch, task = move(WindowBatch(inputs, target), device), QuantileTask(network, LEVELS)
        return [lambda: task.loss(batch)]
    panels = move(PanelBatch(inputs, torch.arange(STOCKS).repeat(DAYS), target, DAYS), device)
    ranking = PanelTask(network, levels=LEVELS, spread=torch.from_numpy(TARGET.spread))
    micro_batch = PanelSplitter().cut(panels, 1, 3)
    return [lambda: ranking.loss(panels), lambda: ranking.quantile_loss(panels), lambda: ranking.loss(micro_batch)]


@LEARNT
def test_a_training_step_stays_on_the_device_and_reads_from_it_only_the_count(case: Case) -> None:
    network = case.build()
    for compute in _losses(case, network):
        with OneDevice():
            compute()  # moves the loss's constants to the device, once
        with OneDevice() as device:
            loss = compute()
            loss.mean.backward()
        assert device.reads == ["aten::_local_scalar_dense"]
        assert device.uploads == []
        assert {tensor.device for tensor in (loss.mean, *loss.parts.values())} == {META}
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.usefixtures("for_this_torch")
@LEARNT
def test_a_loss_that_was_first_asked_in_inference_mode_still_teaches(case: Case) -> None:
    network = case.build()
    for compute in _losses(case, network):
        with OneDevice(), torch.inference_mode():  # like validations, one of which precedes the first epoch
            compute()
        with OneDevice():
            compute().mean.backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@LEARNT
def test_a_gpu_takes_every_training_step(case: Case) -> None:
    gpu = torch.device("cuda", 0)
    for compute in _losses(case, case.build(gpu), gpu):
        loss = compute()
        loss.mean.backward()
        assert loss.count == ROWS * len(TARGET.horizons) or loss.count == 2 * STOCKS * len(TARGET.horizons)
        assert bool(loss.mean.isfinite())


@pytest.mark.usefixtures("for_this_torch")
@ALL
def test_a_forecast_stays_on_the_device_until_it_is_brought_to_the_host(case: Case) -> None:
    engine = Engine(freeze(case.build()), _output(), device=META, max_rows=2 * STOCKS)
    inputs = _inputs(case.sizes)
    with OneDevice() as device:
        if case.is_panel_model:
            found = engine.compute_panel(inputs.rows(0, STOCKS), torch.arange(STOCKS))
            units, shapes = found.quantiles, [found.scores.shape]
        else:
            units, internals = engine.compute_units(inputs), engine.compute_internals(inputs)
            shapes = [] if internals is None else [tensor.shape for tensor in internals]
        calibrated = engine.calibrate(units, inputs.location[: len(units)], inputs.scale[: len(units)])
    assert device.reads == ["aten::_to_copy"] * (1 + len(shapes))  # whole responses
    assert calibrated.shape == (len(units), len(TARGET.horizons), len(LEVELS))
    assert case.kind != "tft" or len(shapes) == 4


@pytest.mark.usefixtures("for_this_torch")
def test_many_windows_of_a_tft_at_once_stay_on_the_device() -> None:
    case = CASES["tft"]
    engine = Engine(freeze(case.build()), _output(), device=META, max_rows=300)
    with OneDevice():
        assert len(engine.compute_units(_inputs(case.sizes, rows=300))) == 300


@pytest.fixture
def autocast_of_any_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's autocast lacks the meta device; in an explanation it is off."""

    def off(kind: str, *, enabled: bool) -> AbstractContextManager[None]:
        assert (kind, enabled) == ("meta", False)
        return nullcontext()

    monkeypatch.setattr("predictor.explain.integrated_gradients.torch.autocast", off)
    yield
    monkeypatch.undo()


@EXPLAINED
@pytest.mark.usefixtures("autocast_of_any_device")
def test_an_explanation_stays_on_the_device(case: Case) -> None:
    network = freeze(case.build())
    members = 1 + network.neighbours.shape[1] if isinstance(network, GraphForecaster) else None
    baseline = Baseline(
        name="train_mean",
        known=np.zeros(case.sizes.known, np.float32),
        static=np.zeros(case.sizes.static, np.float32),
        location=np.zeros(len(TARGET.horizons)),
        scale=np.ones(len(TARGET.horizons)),
    )
    windows = 2
    inputs, nodes = _inputs(case.sizes, rows=windows * (members or 1)), None
    if members is not None:
        inputs = Inputs(*(group.unflatten(0, (windows, members)) for group in inputs))
        nodes = torch.arange(members).expand(windows, -1)
    explainer = Explainer(build_attribution_view(network), _output(), baseline, max_rows=64, members=members)
    with OneDevice():
        found = explainer.explain(inputs, POINTS, deadline=NEVER, node_counts=(2, 3), nodes=nodes)
    assert len(found) == len(POINTS)
    assert found[0].observed.shape == (windows, case.sizes.encoder_length, case.sizes.observed)


class Planted(nn.Module):
    """A layer that creates a tensor without a device."""

    def __init__(self, make: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.make = make

    def forward(self, x: Tensor) -> Tensor:
        return self.make(self.inner(x))


STRAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten::add": lambda x: x + torch.arange(3),
    "aten::addmm": lambda x: functional.linear(x, torch.ones(2, 3), torch.ones(2)),
    "aten::mm": lambda x: x @ torch.ones(3, 2),
    "aten::cat": lambda x: torch.cat([x, torch.ones(4, 1)], dim=1),
    "aten::index_select": lambda x: x.index_select(1, torch.arange(2)),
    "aten::index": lambda x: torch.ones(3)[x.argmax(1)],
    "aten::gather": lambda x: x.gather(1, torch.zeros(4, 1, dtype=torch.int64)),
    "aten::where": lambda x: torch.where(x > 0, x, torch.zeros(3)),
    "aten::index_put_": lambda x: x.detach().clone().index_put_((torch.arange(4),), torch.ones(3)),
    "aten::lstm": lambda x: nn.LSTM(3, 2)(x)[0],
}


@pytest.mark.parametrize(("operation", "stray"), STRAYS.items(), ids=STRAYS.keys())
def test_a_tensor_of_the_host_is_seen_in_whatever_operation(operation: str, stray: Callable[[Tensor], Tensor]) -> None:
    layer = Planted(stray).to(META)
    x = torch.ones(4, 3, device=META)
    with OneDevice(), pytest.raises((TwoDevicesError, RuntimeError)) as caught:
        layer(x)
    if operation != "aten::lstm":
        assert isinstance(caught.value, TwoDevicesError)
        assert str(caught.value).startswith(f"{operation}")


ALLOWED: dict[str, Callable[[Tensor], Any]] = {
    "a number": lambda x: x + torch.tensor(2.0),
    "a number in where": lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
    "an index in brackets": lambda x: x[torch.arange(2)],
    "a list in brackets": lambda x: x[[1, 0]],
    "a copy": lambda x: x + torch.arange(3).to(x.device),
}


@pytest.mark.parametrize("do", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_cuda_allows_is_allowed(do: Callable[[Tensor], Any]) -> None:
    with OneDevice() as device:
        do(torch.ones(4, 3, device=META))
    assert device.reads == []
