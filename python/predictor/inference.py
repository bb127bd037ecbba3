"""Inference engines, which run a frozen network by torch or ONNX Runtime, and the choice of the device."""

import copy
import platform
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from predictor.call_context import NEVER, Deadline
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.memory import is_out_of_memory, prepare_retry
from predictor.networks import Inputs, Internals, OutputMap, PanelOutput, TFTForecaster

MAX_THREADS: Final = 4096
DEVICES: Final = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d+)?")


def choose_device(name: str) -> torch.device:
    """Resolve a device name; `auto` selects CUDA if available, else the CPU.

    Raises:
        ConfigurationError: the device does not exist, or is Apple's MPS, which has no float64.
    """
    if DEVICES.fullmatch(name) is None:
        raise ConfigurationError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N, xpu or xpu:N")
    if name == "mps":
        raise ConfigurationError(
            f"device {name!r} has no float64, which forecasts and explanations need; use --device cpu. Training on it "
            "works"
        )
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        gpus = ", ".join(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        hint = f"this machine has {gpus}" if gpus else "torch finds no usable CUDA GPU"
        raise ConfigurationError(f"device {name!r} is not available: {hint}; use --device auto or cpu") from error
    return device


def use_threads(count: int) -> None:
    """Set the number of CPU threads of every forward pass in this process.

    One thread is fastest for small networks, above all on a busy machine, where several threads wait for each other.

    Raises:
        ConfigurationError: `count` is not 1 to MAX_THREADS.
    """
    if not 1 <= count <= MAX_THREADS:
        raise ConfigurationError(f"threads is {count}, but must be 1 to {MAX_THREADS}")
    torch.set_num_threads(count)


def describe_engine(name: str = "eager") -> str:
    """An engine with torch's version and the processor, on which the last bits of forecasts depend."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{name}, torch {torch.__version__}, {platform.machine()} {capability}, {torch.get_num_threads()} threads"


def is_plain_thread() -> bool:
    """Whether this thread has torch's default state: autocast is off and the default device is the CPU."""
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return not autocast and torch.empty(0).is_cpu


def freeze(network: nn.Module) -> nn.Module:
    """Prepare a network for serving, in place: eval mode, no gradients, no dropout between RNN layers.

    Eval mode disables dropout, but an explanation runs the same weights in train mode, so the rate is also set to 0.
    """
    network.eval().requires_grad_(requires_grad=False)
    for module in network.modules():
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0
            module.flatten_parameters()
    return network


_TF32_ERROR = 5e-3


class Engine:
    """Runs one frozen network. Thread-safe, since it is immutable."""

    name = "eager"

    def __init__(
        self,
        network: nn.Module,
        output: OutputMap,
        *,
        device: torch.device,
        max_rows: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = network
        self.output = output
        self.device = device
        self.max_rows = max_rows
        self._dtype = dtype

    @property
    def relative_error(self) -> float:
        """Largest relative error compared with float32: cuDNN runs recurrent layers in TF32 (10 bits)."""
        return _TF32_ERROR if self.device.type == "cuda" else 0.0

    def in_float64(self) -> "Engine":
        """A copy with float64 weights on the CPU, which converts its inputs to float64."""
        wide = copy.deepcopy(self.network).cpu().double()
        return Engine(wide, self.output, device=torch.device("cpu"), max_rows=self.max_rows, dtype=torch.float64)

    @torch.inference_mode()
    def compute_units(self, inputs: Inputs, deadline: Deadline = NEVER) -> Tensor:
        """Compute quantiles [N, H, Q] in units of each window's scale, on the CPU.

        Raises:
            DeadlineExceededError, CallCancelledError: the deadline ended the work between two chunks.
        """
        return self._run_chunks(inputs, deadline)

    @torch.inference_mode()
    def compute_internals(self, inputs: Inputs, deadline: Deadline = NEVER) -> Internals | None:
        """Compute the network's internals for each window, on the CPU; None without any; raises as `compute_units`."""
        if not isinstance(self.network, TFTForecaster):
            return None
        chunks = [self.network.with_internals(chunk)[1] for chunk in self._split_rows(inputs, deadline)]
        return Internals(*(torch.cat(parts).cpu() for parts in zip(*chunks, strict=True)))

    @torch.inference_mode()
    def compute_panel(self, inputs: Inputs, nodes: Tensor) -> PanelOutput:
        """Compute quantiles and scores of one panel, on the CPU, with a network that relates its stocks.

        Args:
            inputs: N stocks of one day.
            nodes: int64 [N] indices of the stocks in the network's universe, -1 = unknown.
        """
        output: PanelOutput = self.network(self._move_inputs(inputs), nodes.to(self.device))
        return PanelOutput(output.quantiles.cpu(), output.scores.cpu())

    @torch.inference_mode()
    def compute_quantiles(self, inputs: Inputs, deadline: Deadline = NEVER) -> Tensor:
        """Compute calibrated float64 quantiles [N, H, Q] in the target's unit, ascending. Raises as `compute_units`."""
        return self.calibrate(self._run_chunks(inputs, deadline), inputs.location, inputs.scale)

    def _run_chunks(self, inputs: Inputs, deadline: Deadline) -> Tensor:
        """As `compute_units`, but already in inference mode, which takes as long to enter as a step of the network."""
        parts = [part for chunk in self._split_rows(inputs, deadline) for part in self._run_parts(chunk)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).cpu()

    def _run_parts(self, chunk: Inputs) -> Iterator[Tensor]:
        """Run the network on a chunk, and on each half of it if memory runs out.

        Raises:
            RuntimeError, MemoryError: a single row does not fit into memory.
        """
        rows = len(chunk.observed)
        try:
            output: Tensor = self.network(chunk)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            prepare_retry(error)
            if rows == 1:
                raise
        else:
            yield output
            return
        # outside `except`, whose traceback would keep the memory of the failed pass
        yield from self._run_parts(chunk.rows(0, rows // 2))
        yield from self._run_parts(chunk.rows(rows // 2, rows))

    def _split_rows(self, inputs: Inputs, deadline: Deadline) -> Iterator[Inputs]:
        """The inputs in chunks of at most `max_rows` rows, on the network's device."""
        rows = inputs.observed.shape[0]
        for first in range(0, rows, self.max_rows):
            deadline.check()
            yield self._move_inputs(inputs if rows <= self.max_rows else inputs.rows(first, first + self.max_rows))

    def _move_inputs(self, inputs: Inputs) -> Inputs:
        """The inputs on the network's device, features in the network's dtype."""
        if inputs.observed.dtype == self._dtype and inputs.observed.device == self.device:
            return inputs
        observed, known, static = (
            group.to(self.device, self._dtype) for group in (inputs.observed, inputs.known, inputs.static)
        )
        mask, location, scale = (group.to(self.device) for group in (inputs.mask, inputs.location, inputs.scale))
        return Inputs(observed, known, static, mask, location, scale)

    def calibrate(self, units: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Calibrate quantiles [N, H, Q] of windows with levels [N, H] on the CPU, in the target's unit."""
        return torch.from_numpy(self.output.map_arrays(units.numpy(), location.numpy(), scale.numpy()))


if TYPE_CHECKING:
    from onnxruntime import InferenceSession

TRIED_ROWS: Final = (1, 2, 4, 8, 16, 32)
"""Numbers of rows that are timed when a model is loaded."""
REPEATS: Final = 7


@final
class GraphEngine(Engine):
    """Runs one frozen network of independent rows on the CPU. Thread-safe, since it is immutable.

    Only `compute_quantiles` uses the graph, whose results differ from torch's by some 1e-7; torch computes everything
    else.
    """

    name = "onnxruntime"

    def __init__(self, eager: Engine, session: "InferenceSession", max_rows: int) -> None:
        """Store the parts.

        Args:
            eager: The engine of the same network.
            session: The model as `predictor.export` writes it, from `open_graph`.
            max_rows: Largest batch that the graph computes.
        """
        super().__init__(eager.network, eager.output, device=eager.device, max_rows=eager.max_rows)
        self._session = session
        self._ports = tuple(
            (port.name, Inputs._fields.index(port.name), len(port.shape) == 1) for port in session.get_inputs()
        )
        """Name of each input, its place in `Inputs`, and whether it has one value per row."""
        self.max_rows = max_rows

    @classmethod
    def timed(cls, eager: Engine, session: "InferenceSession", sample: Inputs) -> Self:
        """Use a graph up to the tried number of rows at which torch becomes faster.

        Args:
            eager: The engine of the same network.
            session: The model as `predictor.export` writes it, from `open_graph`.
            sample: Rows of inputs to time both with.
        """
        fastest = 0
        quick = cls(eager, session, TRIED_ROWS[-1])
        for rows in TRIED_ROWS:
            places = torch.arange(rows) % len(sample.location)
            inputs = Inputs(*(group.index_select(0, places) for group in sample))
            graph_s, eager_s = _time_calls(
                partial(quick.compute_quantiles, inputs), partial(eager.compute_quantiles, inputs)
            )
            if graph_s > eager_s:
                break
            fastest = rows
        return cls(eager, session, fastest)

    def compute_quantiles(self, inputs: Inputs, deadline: Deadline = NEVER) -> Tensor:
        """See `Engine.compute_quantiles`."""
        if inputs.location.shape[0] > self.max_rows:
            return super().compute_quantiles(inputs, deadline)
        deadline.check()
        arrays = ((name, inputs[index].numpy(), is_flat) for name, index, is_flat in self._ports)
        fed = {name: array[:, 0] if is_flat else array for name, array, is_flat in arrays}
        return torch.from_numpy(np.asarray(self._session.run(["values"], fed)[0]))


def open_graph(graph: bytes) -> "InferenceSession":
    """Open a graph with as many threads as torch has.

    Raises:
        MissingPackageError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("onnxruntime", "onnx", "the engine onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads must not use a core
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _time_calls(*calls: Callable[[], object]) -> list[float]:
    """Median seconds of each call, in turns, after one call to warm up."""
    seconds: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(REPEATS):
        for call, times in zip(calls, seconds, strict=True):
            begun_s = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun_s)
    return [median(times) for times in seconds]
