"""Forecasts from inputs: eval mode, frozen parameters, `torch.inference_mode()`, rows in bounded chunks."""

import copy
import re
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError
from predictor.instance import NEVER, Cancellation
from predictor.memory import is_out_of_memory, recover
from predictor.networks import Inputs, Internals, IntrospectiveNetwork, OutputMap, PanelOutput

MOST_THREADS: Final = 4096
_DEVICES: Final = re.compile(r"auto|cpu(:0)?|(cuda|xpu|mps)(:\d+)?")


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` takes CUDA where there is any, else the CPU.

    Raises:
        ConfigurationError: there is no such device, or it is Apple's, which has no float64.
    """
    if _DEVICES.fullmatch(name) is None:
        raise ConfigurationError(f"there is no device {name!r}; write auto, cpu, cuda, cuda:N for GPU number N, or mps")
    if name.startswith("mps"):
        raise ConfigurationError(
            f"device {name!r} has no float64, in which forecasts and explanations are computed after the network; "
            "use --device cpu. Models can still be trained on it"
        )
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"device {name!r} is not available: {_gpus()}; use --device auto or cpu") from error
    return device


def _gpus() -> str:
    """What torch can use of this machine's GPUs, in words."""
    count = torch.cuda.device_count()
    numbers = ", ".join(f"cuda:{number}" for number in range(count))
    return f"this machine has {numbers}" if count else "torch finds no CUDA GPU here that it can use"


def use_threads(count: int) -> None:
    """Let every forward of this process use `count` CPU threads.

    One is fastest for small networks, above all on a busy machine, where several threads wait for each other.

    Raises:
        ConfigurationError: `count` is not 1 to MOST_THREADS.
    """
    if not 1 <= count <= MOST_THREADS:
        raise ConfigurationError(f"threads is {count}, but must be 1 to {MOST_THREADS}")
    torch.set_num_threads(count)


def is_plain_thread() -> bool:
    """Whether torch computes in this thread as in a new one: without autocast, and on the CPU unless told otherwise."""
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return not autocast and torch.empty(0).is_cpu


def freeze(network: nn.Module) -> nn.Module:
    """Put a network into the state it is served in, for good: eval, no gradients, no dropout between RNN layers.

    Dropout between layers does nothing in eval mode; at 0 it also does nothing to whoever runs the same weights in
    train mode for an explanation.
    """
    network.eval().requires_grad_(requires_grad=False)
    for module in network.modules():
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0
            module.flatten_parameters()
    return network


_TF32_ERROR = 5e-3


class Engine:
    """Runs one frozen network. Thread-safe: nothing on it changes."""

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
        self._output = output
        self._device = device
        self._max_rows = max_rows
        self._dtype = dtype

    @property
    def relative_error(self) -> float:
        """How far this device's arithmetic may be off float32's: cuDNN runs recurrent layers in TF32 (10 bits)."""
        return _TF32_ERROR if self._device.type == "cuda" else 0.0

    def in_float64(self) -> "Engine":
        """The same network with float64 weights, on the CPU; what it reads is widened."""
        wide = copy.deepcopy(self.network).cpu().double()
        return Engine(wide, self._output, device=torch.device("cpu"), max_rows=self._max_rows, dtype=torch.float64)

    @torch.inference_mode()
    def units(self, inputs: Inputs, deadline: Cancellation = NEVER) -> Tensor:
        """Quantiles [N, H, Q] in units of each window's scale, on the CPU.

        Raises:
            DeadlineExceededError, CallCancelledError: between two chunks, when nobody waits any more.
        """
        return self._units(inputs, deadline)

    @torch.inference_mode()
    def internals(self, inputs: Inputs, deadline: Cancellation = NEVER) -> Internals | None:
        """The network's internals for each window, on the CPU; None if it has none; raises as `units`."""
        if not isinstance(self.network, IntrospectiveNetwork):
            return None
        chunks = [self.network.with_internals(chunk)[1] for chunk in self._chunks(inputs, deadline)]
        return Internals(*(torch.cat(parts).cpu() for parts in zip(*chunks, strict=True)))

    @torch.inference_mode()
    def panel(self, inputs: Inputs, nodes: Tensor) -> PanelOutput:
        """Quantiles and scores of one panel, on the CPU, from a network that looks across its stocks.

        Args:
            inputs: N stocks of one day.
            nodes: int64 [N] their places in the network's universe, -1 = unknown.
        """
        output: PanelOutput = self.network(self._moved(inputs), nodes.to(self._device))
        return PanelOutput(output.quantiles.cpu(), output.scores.cpu())

    @torch.inference_mode()
    def values(self, inputs: Inputs, deadline: Cancellation = NEVER) -> Tensor:
        """Calibrated quantiles float64 [N, H, Q] in the target's unit, never falling along Q; raises as `units`."""
        return self.calibrated(self._units(inputs, deadline), inputs.location, inputs.scale)

    def _units(self, inputs: Inputs, deadline: Cancellation) -> Tensor:
        """As `units`, for whoever is in inference mode already: each entry costs as much as a step of the network."""
        return torch.cat([part for chunk in self._chunks(inputs, deadline) for part in self._parts(chunk)]).cpu()

    def _parts(self, chunk: Inputs) -> Iterator[Tensor]:
        """The network's answer; where memory runs out, that of each half by itself.

        Raises:
            RuntimeError, MemoryError: one row by itself does not fit.
        """
        answer = self._unless_memory_lacks(chunk)
        if answer is not None:
            yield answer
            return
        rows = len(chunk.observed)
        yield from self._parts(chunk.rows(0, rows // 2))
        yield from self._parts(chunk.rows(rows // 2, rows))

    def _unless_memory_lacks(self, chunk: Inputs) -> Tensor | None:
        """None if the chunk did not fit; what it had allocated is free again by then."""
        try:
            answer: Tensor = self.network(chunk)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            recover(error)
            if len(chunk.observed) == 1:
                raise
            return None
        return answer

    def _chunks(self, inputs: Inputs, deadline: Cancellation) -> Iterator[Inputs]:
        """The windows in as many rows as one forward may have, where the network is."""
        for first in range(0, len(inputs.observed), self._max_rows):
            deadline.check()
            yield self._moved(inputs.rows(first, first + self._max_rows))

    def _moved(self, inputs: Inputs) -> Inputs:
        """The inputs where the network is, features in its own type."""
        observed, known, static = (
            group.to(self._device, self._dtype) for group in (inputs.observed, inputs.known, inputs.static)
        )
        mask, location, scale = (group.to(self._device) for group in (inputs.mask, inputs.location, inputs.scale))
        return Inputs(observed, known, static, mask, location, scale)

    def calibrated(self, units: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """The network's quantiles [N, H, Q] of windows with these levels [N, H], calibrated, in the target's unit."""
        return self._output.values(units, location, scale)
