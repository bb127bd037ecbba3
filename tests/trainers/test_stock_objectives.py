"""Training objectives: batch types, errors for wrong outputs, and loss values."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import pytest
import torch
from market import bokeh_panel
from scipy.stats import rankdata
from torch import Tensor, nn

from predictor.bars import BarPanel
from predictor.features import FeatureDefinition, FeatureSet, load_default_features
from predictor.networks import Inputs, InputSizes, LSTMConfig, NetworkConfig, Target
from predictor.networks.graph import GraphConfig, GraphForecaster
from predictor.networks.output import PanelOutput
from trainers.loop import ContractError, EmptyTargetError, Loop, Phase, adamw
from trainers.stock.data import (
    History,
    PanelBatch,
    PanelGatherer,
    PanelSplitter,
    TrainingWindows,
    WindowBatch,
    WindowGatherer,
)
from trainers.stock.edges import fit_training_edges
from trainers.stock.model_fit import fit_pipeline, prepare
from trainers.stock.objectives import PanelTask, compute_ranking_loss
from trainers.stock.recipe import StockRecipe
from trainers.stock.splits import list_decisions

STOCKS, PANELS, HORIZONS, LEVELS = 7, 3, 2, (0.1, 0.5, 0.9)
ROWS = STOCKS * PANELS
EVERY_DAY = np.ones((STOCKS, PANELS), np.bool_)
TARGET = Target(horizons=(1, 5))
SIZES = InputSizes(encoder_length=10, future_length=5, observed=2, known=1, static=0, nodes=STOCKS)


def batch(*, seed: int = 0) -> PanelBatch:
    """A batch of panels with a few unknown targets."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(ROWS, HORIZONS, generator=generator)
    target[torch.rand(target.shape, generator=generator) < 0.2] = torch.nan
    observed = torch.randn(ROWS, SIZES.encoder_length, SIZES.observed, generator=generator)
    inputs = Inputs(
        observed=observed,
        known=torch.randn(ROWS, SIZES.encoder_length + SIZES.future_length, 1, generator=generator),
        static=torch.zeros(ROWS, 0),
        mask=torch.ones_like(observed, dtype=torch.bool),
        location=torch.randn(ROWS, HORIZONS, generator=generator, dtype=torch.float64),
        scale=torch.rand(ROWS, HORIZONS, generator=generator, dtype=torch.float64) + 0.5,
    )
    return PanelBatch(inputs, torch.arange(STOCKS).repeat(PANELS), target, PANELS)


def network() -> GraphForecaster:
    torch.manual_seed(0)
    config = GraphConfig(hidden=8, heads=2, neighbours=2, frequencies=2)
    return GraphForecaster(config, sizes=SIZES, target=TARGET, levels=LEVELS)


class FixedNetwork(nn.Module):
    """A network with fixed outputs."""

    def __init__(self, answer: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.answer = answer
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Inputs, _nodes: Tensor, _panels: int) -> object:
        rows = len(inputs.observed)
        quantiles = torch.randn(rows, HORIZONS, len(LEVELS), generator=torch.Generator().manual_seed(4)).cumsum(-1)
        scores = torch.randn(rows, HORIZONS, generator=torch.Generator().manual_seed(5))
        return self.answer(quantiles * self.weight, scores * self.weight)


def task(answer: Callable[[Tensor, Tensor], object] = PanelOutput, *, weight: float = 0.5) -> PanelTask:
    return PanelTask(FixedNetwork(answer), levels=LEVELS, spread=torch.ones(HORIZONS), ranking_weight=weight)


WRONG: dict[str, tuple[Callable[[Tensor, Tensor], object], str]] = {
    "a dict of horizons": (lambda q, _: {"horizon_1": q[:, 0], "horizon_5": q[:, 1]}, r"horizon_1.*expected PanelO"),
    "a dict around them": (lambda q, _: {"predictions": {"horizon_1": q}, "features": q}, "keys .*features"),
    "a plain tuple": (lambda q, s: (q, s), "a tuple of 2; expected PanelOutput"),
    "one tensor": (lambda q, _: q, r"a tensor of shape \[21, 2, 3\]; expected PanelOutput"),
    "nothing": (lambda _q, _s: None, "None"),
    "a missing horizon": (lambda q, s: PanelOutput(q[:, :1], s), r"quantiles has shape \[21, 1, 3\]; .* \[21, 2, 3\]"),
    "a missing row": (lambda q, s: PanelOutput(q[1:], s), r"quantiles has shape \[20, 2, 3\]"),
    "a missing level": (lambda q, s: PanelOutput(q[..., 1:], s), r"quantiles has shape \[21, 2, 2\]"),
    "days apart": (lambda q, s: PanelOutput(q.unflatten(0, (PANELS, -1)), s), r"quantiles has shape \[3, 7, 2, 3\]"),
    "scores of one horizon": (lambda q, s: PanelOutput(q, s[:, 0]), r"scores has shape \[21\]; expected \[21, 2\]"),
    "scores with a width": (lambda q, s: PanelOutput(q, s.unsqueeze(-1)), r"scores has shape \[21, 2, 1\]"),
    "scores that are none": (lambda q, _: PanelOutput(q, cast("Tensor", None)), "scores is None"),
    "ranks in place of scores": (lambda q, s: PanelOutput(q, s.argsort(0)), "scores is of torch.int64"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_output_is_an_error_that_names_what_was_found(wrong: str) -> None:
    answer, message = WRONG[wrong]
    with pytest.raises(ContractError, match=message):
        task(answer).loss(batch())


def test_the_right_output_gives_a_loss_above_zero_over_the_known_targets() -> None:
    found = task().loss(batch())
    assert found.count == int(torch.isfinite(batch().target).sum())
    assert found.mean > 0
    torch.testing.assert_close(found.mean, found.parts["pinball"] + 0.5 * found.parts["ranking"])


def test_a_weight_that_leaves_the_scores_without_a_teacher_is_refused() -> None:
    with pytest.raises(ContractError, match="ranking weight is 0"):
        task(weight=0)


def test_the_ranking_loss_is_one_minus_the_correlation_with_ranks() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, outcomes = torch.randn(2, 30, 1, generator=generator), torch.randn(2, 30, 1, generator=generator)
    outcomes[0, 3:9] = torch.nan
    for day in range(2):
        known = torch.isfinite(outcomes[day, :, 0])
        ranks = rankdata(outcomes[day, known, 0].numpy())
        expected = np.corrcoef(scores[day, known, 0].numpy(), ranks)[0, 1]
        assert 1 - compute_ranking_loss(scores, outcomes).loss[day, 0].item() == pytest.approx(expected, abs=1e-5)


def test_scores_in_the_right_order_lose_less_whatever_their_scale() -> None:
    outcomes = torch.randn(1, 50, 1, generator=torch.Generator().manual_seed(1))
    right, wrong = (
        compute_ranking_loss(100 * outcomes, outcomes).mean(),
        compute_ranking_loss(-0.01 * outcomes, outcomes).mean(),
    )
    assert right < 0.1
    assert wrong > 1.9


def test_an_unknown_outcome_has_no_say_in_the_ranking() -> None:
    generator = torch.Generator().manual_seed(2)
    scores, outcomes = torch.randn(1, 9, 1, generator=generator), torch.randn(1, 9, 1, generator=generator)
    outcomes[0, 4] = torch.nan
    moved = scores.clone()
    moved[0, 4] = 100
    torch.testing.assert_close(compute_ranking_loss(scores, outcomes).loss, compute_ranking_loss(moved, outcomes).loss)


def test_a_cross_section_of_one_has_no_loss_and_no_gradient() -> None:
    scores = torch.randn(1, 5, 1, requires_grad=True)
    outcomes = torch.full((1, 5, 1), torch.nan)
    outcomes[0, 2] = 1.0
    found = compute_ranking_loss(scores, outcomes)
    found.mean().backward()
    assert found.loss.item() == 1
    assert scores.grad is not None
    assert not scores.grad.any()


def test_ranks_are_taken_in_the_targets_own_unit() -> None:
    given = batch()
    scale = torch.where(torch.arange(ROWS) % 2 == 0, 1.0, 100.0).double()[:, None].repeat(1, HORIZONS)
    wide = given._replace(inputs=given.inputs._replace(location=torch.zeros_like(scale), scale=scale))

    outcomes = (wide.target * scale.float()).unflatten(0, (PANELS, STOCKS))
    places = torch.where(torch.isfinite(outcomes), outcomes, torch.inf).argsort(1).argsort(1).flatten(0, 1).float()

    def by_return(quantiles: Tensor, scores: Tensor) -> PanelOutput:
        return PanelOutput(quantiles, scores * 0 + places)

    assert task(by_return).loss(wide).parts["ranking"] < 1e-5


def test_a_horizon_without_any_target_is_left_out_with_true_counts() -> None:
    given = batch()
    target = given.target.clone()
    target[:, 1] = torch.nan
    found = task().loss(given._replace(target=target))
    assert found.count == int(torch.isfinite(target[:, 0]).sum())
    torch.testing.assert_close(found.parts["pinball"], _pinball_by_hand(target[:, 0]))


def _pinball_by_hand(target: Tensor) -> Tensor:
    output = FixedNetwork(PanelOutput)(batch().inputs, batch().nodes, PANELS)
    assert isinstance(output, PanelOutput)
    total = 0.0
    known = torch.nonzero(torch.isfinite(target)).flatten().tolist()
    for row in known:
        for q, level in enumerate(LEVELS):
            error = float(target[row] - output.quantiles[row, 0, q].detach())
            total += max(level * error, (level - 1) * error) / len(LEVELS)
    return torch.tensor(total / len(known))


def test_a_training_without_any_target_is_an_error() -> None:
    model = network()
    given = batch()._replace(target=torch.full((ROWS, HORIZONS), torch.nan))
    task = PanelTask(model, levels=LEVELS, spread=torch.ones(HORIZONS))
    loop = Loop([_phase(model, task)], modules={"network": model}, device="cpu", splitter=PanelSplitter())
    panels = PanelGatherer(gather_from(given), forecastable=EVERY_DAY)
    with loop.running() as run, pytest.raises(EmptyTargetError):
        list(run.epochs(panels.source(np.arange(PANELS), days_per_batch=PANELS), max_epochs=1))


def _phase(model: nn.Module, task: PanelTask) -> Phase[PanelBatch]:
    return Phase("network", task.loss, model.parameters(), adamw(model.parameters(), lr=1e-2))


def gather_from(panels: PanelBatch) -> WindowGatherer:
    """Gathers from a history with one day per panel of a batch."""

    def gather(windows: TrainingWindows) -> WindowBatch:
        rows = torch.from_numpy(windows.positions * STOCKS + windows.symbols)
        return WindowBatch(inputs=Inputs(*(group[rows] for group in panels.inputs)), target=panels.target[rows])

    return gather


def test_every_weight_learns_and_the_loss_falls() -> None:
    model = network()
    task = PanelTask(model, levels=LEVELS, spread=torch.ones(HORIZONS))
    panels = PanelGatherer(gather_from(batch()), forecastable=EVERY_DAY)
    loop = Loop(
        [_phase(model, task)], modules={"network": model}, device="cpu", splitter=PanelSplitter(), audit_steps=5
    )
    before = task.loss(batch()).mean.item()
    with loop.running() as run:
        list(run.epochs(panels.source(np.arange(PANELS), days_per_batch=2), max_epochs=30))
    assert task.loss(batch()).mean.item() < 0.9 * before


def test_the_mean_of_the_micro_batches_is_the_loss_of_the_batch() -> None:
    whole_batch, splitter = batch(), PanelSplitter()
    whole = task().loss(whole_batch)
    model = network().eval()
    loss_task = PanelTask(model, levels=LEVELS, spread=torch.ones(HORIZONS))
    losses = [loss_task.loss(splitter.cut(whole_batch, k, k + 1)) for k in range(splitter.samples(whole_batch))]
    together = sum(loss.mean * loss.count for loss in losses) / sum(loss.count for loss in losses)
    torch.testing.assert_close(torch.as_tensor(together), loss_task.loss(whole_batch).mean)
    assert whole.count == sum(loss.count for loss in losses)


def test_an_absent_row_has_no_target_even_where_its_outcome_is_known() -> None:
    given, there = batch(), EVERY_DAY.copy()
    there[3:5, 0] = False
    given.inputs.scale[4] = torch.nan
    found = PanelGatherer(gather_from(given), forecastable=there).gather(np.array([0]))
    assert torch.isnan(found.target[3:5]).all()
    assert not found.inputs.mask[3:5].any()
    assert (found.inputs.scale[4] == 1).all()


def test_a_stock_without_a_bar_is_absent_whatever_else_is_known_of_it() -> None:
    """A covariate, or a feature of past days, may be known for a stock without a bar."""
    panel, position = bars(), 300
    columns = {name: getattr(panel, name).copy() for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[2, position] = np.nan
    yesterday = FeatureSet(observed=(FeatureDefinition("r", "Log(Ref($close, 1) / Ref($close, 2))", "", ""),))
    found = history_of(replace(panel, **columns), yesterday)
    assert found.encoded.mask[2, position].any()
    day = PanelGatherer(found.gather, forecastable=found.forecastable).gather(np.array([position]))
    assert day.inputs.mask.any(dim=(1, 2)).tolist() == [True, False, False]
    assert torch.isnan(day.target[2]).all()


def bars() -> BarPanel:
    """Bars with FB, which is absent before 2012."""
    return bokeh_panel("AAPL", "FB", "IBM").between(20110103, 20121231)


def history_of(panel: BarPanel, features: FeatureSet | None = None) -> History:
    recipe = StockRecipe(calendar="XNYS", target=Target(lag=1), encoder_length=20)
    return History(
        panel, fit_pipeline(panel, features or load_default_features(), recipe, recipe.splits(panel.sessions))
    )


@cache
def history() -> History:
    return history_of(bars())


def with_another_future(panel: BarPanel, position: int) -> BarPanel:
    """The panel with the bars after a position shuffled."""
    order = np.arange(len(panel.sessions))
    order[position + 1 :] = np.random.default_rng(1).permutation(order[position + 1 :])
    columns = ("open", "high", "low", "close", "volume", "adj_close")
    return replace(panel, **{name: getattr(panel, name)[:, order] for name in columns})


def test_what_comes_after_a_day_moves_no_forecast_of_it() -> None:
    position = 350
    sizes = replace(history().pipeline.sizes, nodes=3)
    torch.manual_seed(0)
    config = GraphConfig(hidden=8, heads=2, neighbours=2)
    model = GraphForecaster(config, sizes=sizes, target=history().pipeline.target, levels=LEVELS).eval()
    model.connect(fit_training_edges(bars(), int(bars().sessions[250]), neighbours=2))
    other = with_another_future(bars(), position)
    days = [
        PanelGatherer(found.gather, forecastable=found.forecastable).gather(np.array([position]))
        for found in (history(), history_of(other))
    ]
    plain, moved = (model(day.inputs, day.nodes, day.panels) for day in days)
    torch.testing.assert_close(plain.quantiles, moved.quantiles, atol=1e-6, rtol=0)
    torch.testing.assert_close(plain.scores, moved.scores, atol=1e-6, rtol=0)
    assert not torch.equal(torch.nan_to_num(days[0].target), torch.nan_to_num(days[1].target))


def test_a_day_holds_every_stock_and_a_young_one_is_absent_until_it_is_listed() -> None:
    found, recipe = history(), StockRecipe(calendar="XNYS", encoder_length=20)
    positions = list_decisions(recipe.splits(found.bars.sessions).train, found.bars.sessions, found.pipeline.target)[
        -2:
    ]
    days = PanelGatherer(found.gather, forecastable=found.forecastable).gather(positions)
    assert days.panels == 2
    assert days.nodes.tolist() == [0, 1, 2] * 2
    assert not days.inputs.mask[1::3].any()
    assert torch.isnan(days.target[1::3]).all()
    assert (days.inputs.scale[1::3] == 1).all()
    single = found.gather(TrainingWindows(symbols=np.array([2]), positions=positions[1:]))
    torch.testing.assert_close(days.inputs.observed[5], single.inputs.observed[0])
    torch.testing.assert_close(days.target[5], single.target[0])


@pytest.mark.parametrize(
    ("kind", "config"), [("lstm", LSTMConfig(hidden=4)), ("graph", GraphConfig(hidden=4, heads=1, neighbours=1))]
)
def test_no_batch_holds_float64_which_apples_devices_do_not_have(kind: str, config: NetworkConfig) -> None:
    bars = bokeh_panel("AAPL", "GOOG").last(900)
    recipe = StockRecipe(kind=kind, config=config, calendar="XNYS")
    splits = recipe.splits(bars.sessions)
    history = History(bars, fit_pipeline(bars, load_default_features(), recipe, splits))
    objective = prepare(history, splits, recipe, None).objective
    for source in (objective.train, objective.selection):
        batch = next(iter(source.batches(0)))
        tensors = [part for part in (*batch.inputs, *batch) if isinstance(part, Tensor)]
        assert len(tensors) > len(batch.inputs)
        assert not [tensor for tensor in tensors if tensor.dtype == torch.float64]
