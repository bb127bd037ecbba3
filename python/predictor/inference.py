"""The inference engine, which runs a frozen network in bounded chunks, and the choice of its device."""

import copy
import platform
import re
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn

from predictor.call_context import NEVER, Deadline
from predictor.errors import ConfigurationError
from predictor.memory import is_out_of_memory, prepare_retry
from predictor.networks import Inputs, Internals, OutputMap, PanelOutput, TFTForecaster

MAX_THREADS: Final = 4096
_DEVICES: Final = re.compile(r"auto|cpu(:0)?|(cuda|xpu|mps)(:\d+)?")


def choose_device(name: str) -> torch.device:
    """Resolve a device name; `auto` selects CUDA if available, else the CPU.

    Raises:
        ConfigurationError: the device does not exist, or is Apple's MPS, which has no float64.
    """
    if _DEVICES.fullmatch(name) is None:
        raise ConfigurationError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N for GPU number N, or xpu")
    if name.startswith("mps"):
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
        raise ConfigurationError(
            f"device {name!r} is not available: {_describe_gpus()}; use --device auto or cpu"
        ) from error
    return device


def _describe_gpus() -> str:
    """The GPUs that torch can use, for messages."""
    count = torch.cuda.device_count()
    numbers = ", ".join(f"cuda:{number}" for number in range(count))
    return f"this machine has {numbers}" if count else "torch finds no usable CUDA GPU"


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
    def units(self, inputs: Inputs, deadline: Deadline = NEVER) -> Tensor:
        """Compute quantiles [N, H, Q] in units of each window's scale, on the CPU.

        Raises:
            DeadlineExceededError, CallCancelledError: the deadline ended the work between two chunks.
        """
        return self._compute_units(inputs, deadline)

    @torch.inference_mode()
    def internals(self, inputs: Inputs, deadline: Deadline = NEVER) -> Internals | None:
        """Compute the network's internals for each window, on the CPU; None if it has none. Raises as `units`."""
        if not isinstance(self.network, TFTForecaster):
            return None
        chunks = [self.network.with_internals(chunk)[1] for chunk in self._split_rows(inputs, deadline)]
        return Internals(*(torch.cat(parts).cpu() for parts in zip(*chunks, strict=True)))

    @torch.inference_mode()
    def panel(self, inputs: Inputs, nodes: Tensor) -> PanelOutput:
        """Compute quantiles and scores of one panel, on the CPU, with a network that relates its stocks.

        Args:
            inputs: N stocks of one day.
            nodes: int64 [N] indices of the stocks in the network's universe, -1 = unknown.
        """
        output: PanelOutput = self.network(self._move_inputs(inputs), nodes.to(self.device))
        return PanelOutput(output.quantiles.cpu(), output.scores.cpu())

    @torch.inference_mode()
    def values(self, inputs: Inputs, deadline: Deadline = NEVER) -> Tensor:
        """Compute calibrated float64 quantiles [N, H, Q] in the target's unit, sorted along Q; raises as `units`."""
        return self.calibrated(self._compute_units(inputs, deadline), inputs.location, inputs.scale)

    def _compute_units(self, inputs: Inputs, deadline: Deadline) -> Tensor:
        """As `units`, for callers already in inference mode: entering it costs as much as a step of the network."""
        parts = [part for chunk in self._split_rows(inputs, deadline) for part in self._run_parts(chunk)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).cpu()

    def _run_parts(self, chunk: Inputs) -> Iterator[Tensor]:
        """Run the network on a chunk, and on each half of it if memory runs out.

        Raises:
            RuntimeError, MemoryError: a single row does not fit into memory.
        """
        output = self._try_forward(chunk)
        if output is not None:
            yield output
            return
        rows = len(chunk.observed)
        yield from self._run_parts(chunk.rows(0, rows // 2))
        yield from self._run_parts(chunk.rows(rows // 2, rows))

    def _try_forward(self, chunk: Inputs) -> Tensor | None:
        """Run the network; None if memory ran out, in which case the allocated memory is free again."""
        try:
            output: Tensor = self.network(chunk)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            prepare_retry(error)
            if len(chunk.observed) == 1:
                raise
            return None
        return output

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

    def calibrated(self, units: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Calibrate quantiles [N, H, Q] of windows with levels [N, H] on the CPU, in the target's unit."""
        return torch.from_numpy(self.output.map_arrays(units.numpy(), location.numpy(), scale.numpy()))
