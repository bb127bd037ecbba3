"""Our networks as shipped: normaliser, quantile head, pinball loss, loop and conformal calibration.

python -m benchmarks.forecasts.ours TASK.npz QUANTILES.npz MODEL SEED STEPS

MODEL is a kind of network. With the suffix `-selected`, it trains for longer and the validation part selects the
epoch. If daily ranges are known, the target is forecast in units of HAR, otherwise in units of its window: less the
mean, over the standard deviation. The network reads the target's past less its last value in units of the window,
with that mean and deviation, and observed covariates less their window's mean.
"""

from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.forecasts.protocol import (
    BATCH,
    CLIP,
    DROPOUT,
    HEADS,
    HIDDEN,
    LSTM_HIDDEN,
    LSTM_LAYERS,
    TrainingRequest,
)
from benchmarks.forecasts.scales import RETURNS, forecast_levels, window_levels
from benchmarks.forecasts.task import LEVELS, IndexArray, Task, Windows
from predictor.inference import Engine, freeze
from predictor.networks import (
    Inputs,
    InputSizes,
    OutputMap,
    Target,
    TargetKind,
    build_network,
    get_kind,
    normalise,
)
from predictor.networks.network_kind import Setting, make_config
from trainers.loop import (
    EpochReport,
    Loop,
    Phase,
    ResidentSource,
    StepReport,
    TrainingRun,
    Validation,
    adamw,
    cosine,
    seed_everything,
)
from trainers.stock.data import WindowBatch
from trainers.stock.evaluation.calibration import QuantileResiduals, adapt_offsets
from trainers.stock.initialization import initialize
from trainers.stock.network_forecasts import calibrate
from trainers.stock.objectives import QuantileTask
from trainers.stock.recipe import WARMUP, Optimisation, choose_default_optimisation

Array = NDArray[np.float64]

SELECTED: Final = "-selected"
SELECTED_STEPS: Final = 4
"""Factor of the steps of a training run with selection."""
SMALL: Final = 0.5
"""Factor of a window's level and of the log of its scale."""
ROWS: Final = 256

SETTINGS: Final[dict[str, dict[str, Setting]]] = {
    "tft": {"hidden": HIDDEN, "heads": HEADS, "dropout": DROPOUT},
    "lstm": {"hidden": LSTM_HIDDEN, "layers": LSTM_LAYERS, "dropout": DROPOUT},
    "gru": {"hidden": LSTM_HIDDEN, "layers": LSTM_LAYERS, "dropout": DROPOUT},
    "hybrid": {"hidden": HIDDEN, "heads": HEADS, "dropout": DROPOUT},
}
"""Settings of each kind that the protocol fixes; the others are the defaults."""


class Split(NamedTuple):
    """All windows of a split, as network inputs."""

    inputs: Inputs
    target: Tensor
    """float32 [N, H] in units of each window's scale."""
    decisions: IndexArray
    """[N] non-decreasing."""

    def gathered(self, index: Tensor) -> WindowBatch:
        """Gather some windows."""
        return WindowBatch(inputs=Inputs(*(group[index] for group in self.inputs)), target=self.target[index])

    def source(self, *, size: int, seed: int, shuffle: bool) -> ResidentSource[WindowBatch]:
        """All windows in batches."""
        return ResidentSource(self.gathered, samples=len(self.target), batch_size=size, seed=seed, shuffle=shuffle)


def split_of(task: Task, name: str) -> Split:
    """The windows of a split, in units of each window."""
    windows = task.windows(name)
    own = (level[windows.series, windows.decisions] for level in window_levels(task))
    observed = _observed(task, windows, *own)
    location, scale = forecast_levels(task, windows)
    inputs = Inputs(
        observed=observed,
        known=torch.from_numpy(windows.known),
        static=torch.from_numpy(windows.static),
        mask=torch.ones_like(observed, dtype=torch.bool),
        location=torch.from_numpy(location),
        scale=torch.from_numpy(scale),
    )
    future = torch.from_numpy(windows.future.astype(np.float64))
    units = normalise(future, inputs.location, inputs.scale, torch.ones(task.horizon, dtype=torch.float64))
    return Split(inputs=inputs, target=units.float(), decisions=windows.decisions)


def _observed(task: Task, windows: Windows, location: Array, scale: Array) -> Tensor:
    """float32 [N, E, 1 or 3, + F] the target's past in units of its window, then covariates less their window's mean.

    Returns keep their level; other series are relative to their last value, from which the future continues. Next
    come the window's level and the log of its scale, which its units hide. They are scaled down, because a history
    holds few independent windows, and omitted if the forecast's units already contain them.
    """
    last = 0.0 if task.name == RETURNS else windows.past[:, -1:]
    past = (windows.past - last) / scale[:, None]
    hidden = () if task.ranges.shape[1] else (location, np.log(scale))
    own = np.stack([past, *(np.broadcast_to(SMALL * value[:, None], past.shape) for value in hidden)], axis=-1)
    others = windows.observed - windows.observed.mean(axis=1, keepdims=True)
    return torch.from_numpy(np.concatenate([own, others], axis=-1).astype(np.float32))


def network_of(task: Task, kind: str, train: Split) -> nn.Module:
    """A new network, initialized from the training windows."""
    shipped = get_kind(kind)
    network = build_network(
        shipped,
        make_config(shipped, SETTINGS[kind]),
        sizes=InputSizes(
            encoder_length=task.encoder,
            future_length=task.horizon,
            observed=train.inputs.observed.shape[-1],
            known=task.known.shape[-1],
            static=task.static.shape[-1],
        ),
        # the kind whose scale is the same at every horizon, as for single steps
        target=Target(kind=TargetKind.LOG_VOLATILITY, horizons=tuple(range(1, task.horizon + 1))),
        levels=LEVELS,
    )
    initialize(network, lambda: train.source(size=ROWS, seed=0, shuffle=False).batches(0), LEVELS)
    return network


def train(
    network: nn.Module, parts: dict[str, Split], shipped: Optimisation, *, seed: int, steps: int, selected: bool
) -> None:
    """Train with the shipped loop, rate and decay; `selected` keeps the epoch with the least validation loss."""
    task = QuantileTask(network, LEVELS)
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = adamw(learning, lr=shipped.learning_rate, weight_decay=shipped.weight_decay)
    schedule = cosine(optimizer, warmup_steps=int(WARMUP * steps), total_steps=steps)
    phase = Phase("network", task.loss, learning, optimizer, scheduler=schedule, clip=CLIP)
    loop = Loop([phase], modules={"network": network}, device="cpu", precision="fp32")
    source = parts["train"].source(size=BATCH, seed=seed, shuffle=True)
    held = Validation(task.loss, parts["validation"].source(size=ROWS, seed=seed, shuffle=False))
    with loop.running() as run:
        if selected:  # the start is a candidate, too: units and linear highway only
            run.stalled(run.validate(held.score, held.source).mean, patience=steps)
        _work(run, source, held if selected else None, steps)
        if selected:
            run.restore_best()


def _work(
    run: TrainingRun[WindowBatch], source: ResidentSource[WindowBatch], held: Validation[WindowBatch] | None, steps: int
) -> None:
    """Train a number of steps; with a validation, whole epochs, and record the best."""
    for report in run.epochs(source, max_epochs=-(-steps // source.length), validation=held):
        if isinstance(report, EpochReport) and held is not None:
            run.stalled(report.monitored, patience=steps)
        if isinstance(report, StepReport) and report.step == steps and held is None:
            return


def forecasts(network: nn.Module, parts: dict[str, Split], horizon: int) -> dict[str, Array]:
    """Quantiles [N, H, Q] of the test windows: plain, calibrated on the validation part, and adapted over time."""
    held, test = parts["validation"], parts["test"]
    none = OutputMap(
        spread=torch.ones(horizon, dtype=torch.float64),
        offsets=torch.zeros(horizon, len(LEVELS), dtype=torch.float64),
        levels=LEVELS,
    )
    engine = Engine(freeze(network), none, device=torch.device("cpu"), max_rows=ROWS)
    seen, asked = engine.compute_units(held.inputs).double(), engine.compute_units(test.inputs).double()
    steps = tuple(range(1, horizon + 1))
    fitted = calibrate(
        seen.numpy(), held.target.double().numpy(), LEVELS, sessions=len(np.unique(held.decisions)), horizons=steps
    )
    adapted = adapt_offsets(_residuals(held, seen), _residuals(test, asked), LEVELS, Target(horizons=steps))
    offsets = {
        "plain": None,
        "calibrated": torch.tensor(fitted.offsets, dtype=torch.float64),
        "adaptive": torch.from_numpy(adapted),
    }
    location, scale = test.inputs.location, test.inputs.scale
    return {name: none.map_tensors(asked, location, scale, shift).numpy() for name, shift in offsets.items()}


def _residuals(split: Split, units: Tensor) -> QuantileResiduals:
    """Outcomes less the quantiles."""
    return QuantileResiduals(positions=split.decisions, values=(split.target.double()[..., None] - units).numpy())


def main() -> None:
    torch.set_num_threads(1)
    request = TrainingRequest.of_command_line()
    kind, selected = request.model.removesuffix(SELECTED), request.model.endswith(SELECTED)
    seed_everything(request.seed)
    parts = {name: split_of(request.task, name) for name in ("train", "validation", "test")}
    network = network_of(request.task, kind, parts["train"])
    steps = request.effort * (SELECTED_STEPS if selected else 1)
    train(network, parts, choose_default_optimisation(kind), seed=request.seed, steps=steps, selected=selected)
    request.write_quantiles(forecasts(network, parts, request.task.horizon))


if __name__ == "__main__":
    main()
