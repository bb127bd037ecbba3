"""The graph model on a task over a panel: trained by the shipped loop and losses, anew for every year.

Edges, scalers and starting quantiles come from the sessions before the year; every setting was chosen on the last half
of 2014, which is training data of both years.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.forecasts.panel_series import FloatArray
from benchmarks.forecasts.panel_tasks import Fold, PanelForecasting
from predictor.networks import Inputs, InputSizes, normalise
from predictor.networks.graph import GraphConfig, GraphForecaster
from predictor.networks.inputs import Edges
from trainers.loop import Loop, Phase, adamw, cosine, seed_everything
from trainers.stock.data import Batch, ByPanels, PanelDays, Windows
from trainers.stock.edges import fit_edges
from trainers.stock.fitting import undecayed
from trainers.stock.objectives import PanelTask

TAUGHT_STRIDE = 4
"""Every so many of the days that were learnt from are asked again."""
LARGEST = 8.0
"""Standard deviations beyond which a scaled column is cut."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How a network is trained and what it reads."""

    encoder_length: int = 66
    """Sessions; a quarter, so that the last earnings are seen when the next are due."""
    levels: tuple[float, ...] = tuple((k + 0.5) / 9 for k in range(9))
    """Evenly spread, so that their mean is the forecast's mean."""
    ranking_weight: float = 0.1
    learning_rate: float = 2e-3
    weight_decay: float = 6.0
    """Of all weights but biases. Large, because what is common to the stocks is learnt from few days."""
    epochs: int = 4
    days_per_batch: int = 2
    stride: int = 2
    """Every so many days are learnt from; those between say nearly the same."""
    ema: float = 0.99
    seeds: tuple[int, ...] = (0, 1)
    """One network each, whose forecasts are averaged; alike for every variant."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """What was forecast for some days, in the label's unit; all but the days are [S, days, H]."""

    days: NDArray[np.int64]
    mean: FloatArray
    """Of the label: the mean of the quantiles."""
    width: FloatArray
    """From the lowest quantile to the highest."""
    scores: FloatArray

    @classmethod
    def average(cls, members: Sequence["Answers"]) -> "Answers":
        """Of an ensemble."""
        return cls(
            days=members[0].days,
            mean=np.mean([member.mean for member in members], axis=0),
            width=np.mean([member.width for member in members], axis=0),
            scores=np.mean([member.scores for member in members], axis=0),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecasts:
    """A network's answers in one fold."""

    asked: Answers
    """For the judged days of the shortest horizon."""
    taught: Answers
    """For some of the training days."""


@final
class FoldHistory:
    """Windows of one fold, gathered from columns that are scaled by the sessions before its year."""

    def __init__(self, task: PanelForecasting, fold: Fold, labels: FloatArray, *, encoder_length: int) -> None:
        learnt = task.observed[:, : fold.first_test]
        scaled = (task.observed - np.nanmean(learnt, (0, 1))) / np.nanstd(learnt, (0, 1))
        location, scale = task.level
        self._mask = torch.from_numpy(np.isfinite(scaled))
        self._observed = torch.from_numpy(np.clip(np.nan_to_num(scaled), -LARGEST, LARGEST).astype(np.float32))
        self._known = torch.from_numpy(task.known.astype(np.float32))
        self._location, self._scale = torch.from_numpy(location), torch.from_numpy(scale)
        self._labels, self._spread = torch.from_numpy(labels), torch.from_numpy(task.target.spread)
        self._back = torch.arange(1 - encoder_length, 1)
        self._span = torch.arange(1 - encoder_length, task.target.reach + 1)

    def gather(self, windows: Windows) -> Batch:
        """Inputs and targets of these windows."""
        s, t = torch.from_numpy(windows.symbols), torch.from_numpy(windows.positions)
        rows, back = s[:, None], t[:, None] + self._back
        location, scale = (level[s, t, None].expand(-1, len(self._spread)) for level in (self._location, self._scale))
        inputs = Inputs(
            observed=self._observed[rows, back],
            known=self._known[t[:, None] + self._span],
            static=torch.zeros(len(s), 0),
            mask=self._mask[rows, back],
            location=location,
            scale=scale,
        )
        return Batch(inputs=inputs, target=normalise(self._labels[s, t], location, scale, self._spread).float())


@final
class GraphRival:
    """The graph model as one of the models of a task; `edges` lays the graph, or leaves it out."""

    def __init__(self, task: PanelForecasting, config: GraphConfig, schedule: Schedule, *, edges: bool) -> None:
        self._task = task
        self._config = config
        self._schedule = schedule
        self._edges = edges

    def forecasts(self, fold: Fold) -> Forecasts:
        """Of an ensemble over the seeds."""
        members = [self.member(fold, seed) for seed in self._schedule.seeds]
        return Forecasts(
            asked=Answers.average([member.asked for member in members]),
            taught=Answers.average([member.taught for member in members]),
        )

    def member(self, fold: Fold, seed: int) -> Forecasts:
        """Of one network of its own."""
        began = perf_counter()
        seed_everything(seed)
        network = self._network(fold)
        history = FoldHistory(self._task, fold, _before(self._task, fold), encoder_length=self._schedule.encoder_length)
        everybody = np.ones(self._task.labels.shape[:2], np.bool_)  # masks alone tell who is there
        days = PanelDays(history, forecastable=everybody)
        first = self._schedule.encoder_length + 18  # the slowest columns are known from there on
        learnt = self._task.learnt(fold, 1)
        learnt = learnt[learnt >= first][:: self._schedule.stride]
        _start(network, days, learnt, self._schedule.levels)
        self._train(network, days, learnt, seed)
        graph = "with edges" if self._edges else "without edges"
        print(f"graph model {graph}, seed {seed}: {perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        return Forecasts(
            asked=_answers(network, days, self._task, self._task.judged(fold, 1)),
            taught=_answers(network, days, self._task, learnt[::TAUGHT_STRIDE]),
        )

    def _network(self, fold: Fold) -> GraphForecaster:
        stocks, neighbours = len(self._task.labels), self._config.neighbours
        sizes = InputSizes(
            encoder_length=self._schedule.encoder_length,
            future_length=self._task.target.reach,
            observed=self._task.observed.shape[-1],
            known=self._task.known.shape[-1],
            static=0,
            nodes=stocks,
        )
        network = GraphForecaster(self._config, sizes=sizes, target=self._task.target, levels=self._schedule.levels)
        returns = self._task.series.returns[:, : fold.first_test]
        network.connect(fit_edges(returns, neighbours=neighbours) if self._edges else Edges.none(stocks, neighbours))
        return network

    def _train(self, network: GraphForecaster, days: PanelDays, learnt: NDArray[np.int64], seed: int) -> None:
        schedule, spread = self._schedule, torch.from_numpy(self._task.target.spread)
        task = PanelTask(network, levels=schedule.levels, spread=spread, ranking_weight=schedule.ranking_weight)
        optimizer = _optimizer(network, schedule)
        source = days.source(learnt, days=schedule.days_per_batch, seed=seed)
        steps = source.length * schedule.epochs
        falling = cosine(optimizer, warmup_steps=min(20, steps - 1), total_steps=steps, floor=0.02)
        phase = Phase("network", task.loss, network.parameters(), optimizer, scheduler=falling)
        loop = Loop([phase], modules={"network": network}, device="cpu", cutting=ByPanels(), ema=schedule.ema)
        with loop.running() as run:
            for _ in run.epochs(source, max_epochs=schedule.epochs):
                pass
            run.use_average()
        network.eval()


def _before(task: PanelForecasting, fold: Fold) -> FloatArray:
    """The labels whose outcome ends before the fold's year begins; the others are unknown."""
    labels = task.labels.copy()
    for k, horizon in enumerate(task.target.horizons):
        labels[:, fold.first_test - task.target.lag - horizon :, k] = np.nan
    return labels


def _optimizer(network: nn.Module, schedule: Schedule) -> torch.optim.AdamW:
    """As in the shipped training."""
    return adamw(
        network.parameters(),
        lr=schedule.learning_rate,
        weight_decay=schedule.weight_decay,
        spared=undecayed(network),
    )


def _start(network: GraphForecaster, days: PanelDays, learnt: NDArray[np.int64], levels: Sequence[float]) -> None:
    """Let the head begin at the quantiles of the training targets."""
    targets = days.gather(learnt[:: max(1, len(learnt) // 30)]).target.numpy()
    network.head.start_at(torch.from_numpy(np.nanquantile(targets, levels, axis=0).T.astype(np.float32)))


@torch.inference_mode()
def _answers(network: GraphForecaster, days: PanelDays, task: PanelForecasting, asked: NDArray[np.int64]) -> Answers:
    """One panel a day."""
    spread = torch.from_numpy(task.target.spread)
    found = [_day(network, days, int(day), spread) for day in asked]
    mean, width, scores = (np.stack(parts, axis=1) for parts in zip(*found, strict=True))
    return Answers(days=asked, mean=mean, width=width, scores=scores)


def _day(
    network: GraphForecaster, days: PanelDays, day: int, spread: Tensor
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, width and scores [S, H]."""
    batch = days.gather(np.array([day]))
    output = network(batch.inputs, batch.nodes, batch.panels)
    location, scale = batch.inputs.location[:, None], batch.inputs.scale[:, None] * spread
    units = output.quantiles.double()
    mean, width = location + scale * units.mean(-1), scale * (units[..., -1] - units[..., 0])
    return mean.numpy(), width.numpy(), output.scores.double().numpy()
