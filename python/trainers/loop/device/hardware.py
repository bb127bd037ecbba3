"""The available devices, the choice of a device and a precision, a self-test, and the preparation of modules."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import parametrize

from trainers.loop.errors import DeviceUnavailableError, PrecisionError, SelfTestError, join_names

CPU = torch.device("cpu")
# NVIDIA GPUs may multiply float32 in TF32, which keeps 10 bits of every factor, a relative error of about 0.0005. Over
# the probe's time steps this grows to about 0.002 of the largest value; the error of a wrong kernel is far larger.
TOLERANCE = 0.02
BATCH, STEPS, FEATURES, HIDDEN = 4, 6, 8, 16

ProbeResults = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The devices of a machine.

    Attributes:
        cuda: Names of the CUDA devices, in order of their index.
        cuda_bf16: Whether the first CUDA device supports bfloat16 natively; emulation is slow and does not count.
        xpu: Names of the Intel GPUs.
        mps: Whether there is an Apple GPU.
    """

    cuda: tuple[str, ...] = ()
    cuda_bf16: bool = False
    xpu: tuple[str, ...] = ()
    mps: bool = False

    @classmethod
    def detect(cls) -> Self:
        """Detect the devices of this machine with torch."""
        cuda = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return cls(
            cuda=cuda,
            cuda_bf16=bool(cuda) and torch.cuda.is_bf16_supported(including_emulation=False),
            xpu=tuple(torch.xpu.get_device_name(index) for index in range(torch.xpu.device_count())),
            mps=torch.backends.mps.is_available(),
        )

    def devices(self) -> tuple[str, ...]:
        """Return the names of all devices for `choose_device`, the fastest kind first."""
        return (
            *(f"cuda:{index}" for index in range(len(self.cuda))),
            *(f"xpu:{index}" for index in range(len(self.xpu))),
            *(("mps",) if self.mps else ()),
            "cpu",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """The device of a run, with the reason for the choice."""

    device: torch.device
    reason: str


def choose_device(requested: str, hardware: Hardware, local_rank: int = 0) -> DeviceChoice:
    """Return the device for `auto`, `cpu`, `cuda[:N]`, `xpu[:N]` or `mps`.

    Args:
        requested: One of the names above.
        hardware: The hardware of this machine.
        local_rank: Number of this process on this machine; each process of a group uses a separate GPU.

    Raises:
        DeviceUnavailableError: The machine has no such device; the message lists its devices.
    """
    present = hardware.devices()
    kind = present[0].partition(":")[0] if requested == "auto" else requested
    name = f"{kind}:{local_rank}" if kind in ("cuda", "xpu") else kind
    if name in present and requested == "auto":
        return DeviceChoice(device=torch.device(name), reason=_explain_choice(name, hardware))
    if name not in present:
        process = f" by process {local_rank} of its group" if local_rank else ""
        build = ""
        if requested.startswith("cuda") and not hardware.cuda:
            cuda = torch.version.cuda
            build = f" (this torch was built {f'for CUDA {cuda}, so check the driver' if cuda else 'without CUDA'})"
        raise DeviceUnavailableError(
            f"device {requested!r} was requested{process}, but this machine has {', '.join(present)}; "
            f"use one of them or 'auto'{build}"
        )
    return DeviceChoice(device=torch.device(name), reason=f"{requested!r} was requested")


def use_device(device: torch.device) -> AbstractContextManager[None]:
    """Make `device` torch's current device inside the context, which names without an index, such as `cuda`, refer to.

    Without it, every process of a group would use the first GPU for everything without an index: the workspaces of NCCL
    and cuBLAS, and tensors that a loss creates on `cuda`.
    """
    if device.type in ("cuda", "xpu"):
        return torch.accelerator.device_index(device.index)
    return nullcontext()


def _explain_choice(name: str, hardware: Hardware) -> str:
    kind, _, index = name.partition(":")
    match kind:
        case "cuda":
            return f"automatic: CUDA device {index}, {hardware.cuda[int(index)]}"
        case "xpu":
            return f"automatic: Intel GPU {index}, {hardware.xpu[int(index)]}"
        case "mps":
            return "automatic: the Apple GPU"
        case _:
            return "automatic: no accelerator that this build of torch can use"


PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
PRECISIONS: tuple[str, ...] = ("auto", "fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The precision of the forward; weights and optimizer states keep their dtypes.

    Attributes:
        name: `fp32`, `bf16` or `fp16`.
        dtype: The dtype of autocast; None disables autocast.
        scaler: Creates the scaler of a phase; None if gradients do not underflow, as in all precisions but float16.
        reason: The reason for the choice.
    """

    name: str
    dtype: torch.dtype | None
    scaler: Callable[[], GradScaler] | None
    reason: str


def choose_precision(requested: str, device: torch.device, hardware: Hardware) -> Precision:
    """Return the precision for `auto`, `fp32`, `bf16` or `fp16` on `device`.

    `auto` selects bfloat16 on GPUs that support it natively, float16 with a scaler on older CUDA devices, and float32
    elsewhere: Apple GPUs gain little from fewer bits, and CPUs only if the processor has instructions for them.

    Raises:
        PrecisionError: The name is unknown, or the device does not support the precision.
    """
    if requested not in PRECISIONS:
        raise PrecisionError(f"{requested!r} is not a precision; use one of {', '.join(PRECISIONS)}")
    if requested == "fp16" and device.type == "cpu":
        raise PrecisionError(
            "fp16 was requested on a CPU, where recurrent layers have no float16 kernel (torch: 'could not create a "
            "primitive descriptor for the LSTM forward propagation primitive'); use fp32 or bf16"
        )
    name, reason = requested, f"{requested!r} was requested"
    if requested == "auto":
        name, reason = _choose_automatically(device, hardware)
    elif requested == "bf16" and device.type == "cuda" and not hardware.cuda_bf16:
        reason = "'bf16' was requested; this GPU emulates it, which is slow: fp16 would be faster"
    match name:
        case "bf16":
            return Precision(name=name, dtype=torch.bfloat16, scaler=None, reason=reason)
        case "fp16":
            scaler = partial(GradScaler, device.type)
            return Precision(name=name, dtype=torch.float16, scaler=scaler, reason=reason)
        case _:
            return Precision(name=name, dtype=None, scaler=None, reason=reason)


def _choose_automatically(device: torch.device, hardware: Hardware) -> tuple[str, str]:
    match device.type:
        case "cuda" if hardware.cuda_bf16:
            return "bf16", "automatic: this GPU supports bfloat16 natively"
        case "cuda":
            return "fp16", "automatic: this GPU has no native bfloat16, so float16 with a loss scaler"
        case "xpu":
            return "bf16", "automatic: Intel GPUs support bfloat16 natively"
        case "mps":
            return "fp32", "automatic: Apple GPUs gain little from a lower precision"
        case _:
            return "fp32", "automatic: the safe choice on a CPU; bf16 may be faster where the processor supports it"


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast, for operations that need float32, such as spectra, divergences and logarithms.

    Tensors from outside the context may still have 16 bits; convert them with `.float()`.

    Args:
        device: The device of the computation.
    """
    return torch.autocast(device.type, enabled=False)


@final
class Probe(nn.Module):
    """Two recurrent layers and a linear one with fixed initial weights, on the CPU.

    Args:
        dropout: Dropout between the recurrent layers, 0 to 1.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(
            FEATURES, HIDDEN, num_layers=2, dropout=dropout, batch_first=True, device=CPU, dtype=torch.float32
        )
        self.head = nn.Linear(HIDDEN, 1, device=CPU, dtype=torch.float32)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-0.5, 0.5, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute one number per sequence: float32 [N, steps, features] to [N, 1]."""
        hidden: Tensor = self.recurrent(inputs)[0]
        return self.head(hidden[:, -1])


def run_probe(device: torch.device, make: Callable[[float], nn.Module] = Probe) -> dict[str, Tensor]:
    """Compute a training step and an evaluation on a device, without changing the global generators.

    Args:
        device: The device to compute on.
        make: Creates the network with a given dropout, on the CPU.

    Returns:
        The results, of any shape, by description, on the CPU.
    """
    accelerators = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=accelerators, device_type=device.type), torch.enable_grad():
        results = _run_training_step(make(0.0).to(device), device)
        results["the output in evaluation, after training with dropout"] = _run_evaluation(make(0.5).to(device), device)
        return {name: tensor.detach().to(CPU) for name, tensor in results.items()}


def check_device(device: torch.device, *, compute: Callable[[torch.device], ProbeResults] = run_probe) -> None:
    """Compare a training step on the device with one on the CPU, in float32; on the CPU do nothing.

    Some drivers and releases silently compute wrong results. One on Apple GPUs continued to apply dropout in evaluation
    after training (https://github.com/pytorch/pytorch/issues/180744).

    Args:
        device: The device of the training.
        compute: Computes the device's results: tensors of any shape, by description.

    Raises:
        SelfTestError: A result differs by more than rounding; the message names the results and the errors.
    """
    if device.type == "cpu":
        return
    wrong = _describe_differences(compute(device), run_probe(CPU))
    if wrong:
        raise SelfTestError(
            f"{device} computes incorrectly: in a small training step of recurrent layers, compared with the CPU, "
            f"{join_names(wrong)}; up to {TOLERANCE} of the largest value counts as rounding. Update the driver and "
            f"torch {torch.__version__}, or train on device 'cpu'"
        )


def _run_training_step(network: nn.Module, device: torch.device) -> dict[str, Tensor]:
    # A large epsilon makes the step a smooth function of the gradient, so that it does not amplify rounding errors.
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, eps=0.01)
    output = network(_draw_inputs(device))
    output.square().mean().backward()
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in network.named_parameters()
    }
    optimizer.step()
    return {
        "the output": output,
        **{f"the gradient of {name}": gradient for name, gradient in gradients.items()},
        **{f"the step of {name}": parameter - before[name] for name, parameter in network.named_parameters()},
    }


def _run_evaluation(network: nn.Module, device: torch.device) -> Tensor:
    """Return the output in evaluation mode, after a training step with the same shapes."""
    inputs = _draw_inputs(device)
    network.train()
    network(inputs).sum().backward()
    network.eval()
    with torch.no_grad():
        return network(inputs)


def _draw_inputs(device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(BATCH, STEPS, FEATURES, generator=generator, device=CPU, dtype=torch.float32).to(device)


def _describe_differences(results: ProbeResults, expected: ProbeResults) -> list[str]:
    """Describe the results that differ by more than rounding."""
    wrong: list[str] = []
    for name, tensor in results.items():
        error = float((tensor - expected[name]).abs().max())
        largest = float(expected[name].abs().max())
        if not error <= TOLERANCE * largest:  # NaN is wrong too
            wrong.append(f"{name} is off by {error:.3g} where the largest value is {largest:.3g}")
    return wrong


Backend = str | Callable[..., Any]


@contextmanager
def compile_modules(modules: Mapping[str, nn.Module], *, backend: Backend = "inductor") -> Generator[list[str]]:
    """Compile the parts of modules that contain no recurrent layer, and undo it at the end of the context.

    The modules stay the same objects, so optimizers, state-dict names, copies and saved files are not affected. A part
    is compiled in its first call, and again for other kinds of inputs.

    Recurrent layers and modules that contain them are not compiled: torch leaves the frame around an LSTM uncompiled
    (https://github.com/pytorch/pytorch/issues/141184) or decomposes it into operations that are slower than the kernels
    of cuDNN and oneDNN (https://github.com/pytorch/pytorch/issues/140845).

    Args:
        modules: Modules by name.
        backend: The backend of `torch.compile`.

    Yields:
        Names of the parts that are compiled, such as `net.head`.
    """
    parts = {path: part for name, module in modules.items() for path, part in find_compilable(module, name)}
    before = {path: part._compiled_call_impl for path, part in parts.items()}  # noqa: SLF001  torch has no public way to undo it
    try:
        for path, part in parts.items():
            part._compiled_call_impl = torch.compile(_build_entry(part, path), backend=backend)  # noqa: SLF001  as above
        yield list(parts)
    finally:
        for path, part in parts.items():
            part._compiled_call_impl = before[path]  # noqa: SLF001  as above


def find_compilable(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the largest callable parts that have a parameter and contain no recurrent layer, with their names."""
    callable_itself = type(module).forward is not nn.Module.forward  # false for containers such as ModuleList
    recurrent = any(isinstance(part, (nn.RNNBase, nn.RNNCellBase)) for part in module.modules())
    if callable_itself and not recurrent:
        if any(True for _ in module.parameters()):
            yield name, module
        return
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return
    for child_name, child in module.named_children():
        yield from find_compilable(child, f"{name}.{child_name}")


def _build_entry(part: nn.Module, path: str) -> Callable[..., Any]:
    """Return a function that calls the part, with a separate code object.

    `nn.Module.compile` starts in a frame of torch, which torch skips, so that it does not compile a `Sequential` or
    another module of torch. In addition, torch compiles a code object at most eight times, so parts must not share one.
    """

    def call(*inputs: Any, **keywords: Any) -> Any:
        return part._call_impl(*inputs, **keywords)  # noqa: SLF001  calls hooks, but not the compiled call

    call.__code__ = call.__code__.replace(co_name=path)
    return call


def compact_parameters(module: nn.Module) -> None:
    """Make every parameter contiguous, and the weights of recurrent layers one flat buffer if cuDNN needs it.

    Call it after the module was moved, loaded or copied. Parameters keep their identity and values, so that optimizers
    and averages stay valid. Convolution weights in channels-last order keep it, except on Apple GPUs, which compute
    wrong convolutions from them (https://github.com/pytorch/pytorch/issues/192212).
    """
    for parameter in module.parameters():
        channels_last = (
            parameter.ndim == 4  # noqa: PLR2004  N, C, H, W
            and parameter.device.type != "mps"
            and parameter.is_contiguous(memory_format=torch.channels_last)
        )
        if not parameter.is_contiguous() and not channels_last:
            parameter.data = parameter.detach().contiguous()
    for part in module.modules():
        # Every forward of a parametrized layer computes its weights and flattens them.
        if isinstance(part, nn.RNNBase) and not parametrize.is_parametrized(part):
            part.flatten_parameters()
