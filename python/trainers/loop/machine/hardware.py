"""What this machine can compute on, and the device that a run uses."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Self

import torch

from trainers.loop.errors import DeviceUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The devices of a machine.

    Attributes:
        cuda: Names of the CUDA devices, in order of their index.
        cuda_bf16: Whether the first CUDA device multiplies bfloat16 natively; emulation is slow and does not count.
        xpu: Names of the Intel GPUs.
        mps: Whether there is an Apple GPU.
    """

    cuda: tuple[str, ...] = ()
    cuda_bf16: bool = False
    xpu: tuple[str, ...] = ()
    mps: bool = False

    @classmethod
    def detect(cls) -> Self:
        """Ask torch what this machine has."""
        cuda = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return cls(
            cuda=cuda,
            cuda_bf16=bool(cuda) and torch.cuda.is_bf16_supported(including_emulation=False),
            xpu=tuple(torch.xpu.get_device_name(index) for index in range(torch.xpu.device_count())),
            mps=torch.backends.mps.is_available(),
        )

    def devices(self) -> tuple[str, ...]:
        """Every device by the name that `choose_device` takes, the fastest kind first."""
        return (
            *(f"cuda:{index}" for index in range(len(self.cuda))),
            *(f"xpu:{index}" for index in range(len(self.xpu))),
            *(("mps",) if self.mps else ()),
            "cpu",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """The device of a run, and why it is this one."""

    device: torch.device
    reason: str


def choose_device(requested: str, hardware: Hardware, local_rank: int = 0) -> DeviceChoice:
    """Turn `auto`, `cpu`, `cuda[:N]`, `xpu[:N]` or `mps` into a device.

    Args:
        requested: As above.
        hardware: The machine's.
        local_rank: The number of this process among those that train together on this machine; each takes its own GPU.

    Raises:
        DeviceUnavailableError: The machine has no such device; the message names those it has.
    """
    present = hardware.devices()
    kind = present[0].partition(":")[0] if requested == "auto" else requested
    name = f"{kind}:{local_rank}" if kind in ("cuda", "xpu") else kind
    if name in present and requested == "auto":
        return DeviceChoice(device=torch.device(name), reason=_why_automatic(name, hardware))
    if name not in present:
        raise DeviceUnavailableError(
            f"device {requested!r} was asked for{_by_whom(local_rank)}, but this machine has {', '.join(present)}; "
            f"take one of them or 'auto'{_why_no_accelerator(requested, hardware)}"
        )
    return DeviceChoice(device=torch.device(name), reason=f"{requested!r} was asked for")


def made_current(device: torch.device) -> AbstractContextManager[None]:
    """Inside, `device` is the one that torch takes where only a kind is named, such as `cuda`; afterwards as before.

    Without it every process of a group would put on the first GPU what it does not place by number: NCCL's and cuBLAS's
    workspaces, and tensors that a loss makes on `cuda`.
    """
    if device.type in ("cuda", "xpu"):
        return torch.accelerator.device_index(device.index)
    return nullcontext()


def _by_whom(local_rank: int) -> str:
    return f" by process {local_rank} of its group" if local_rank else ""


def _why_automatic(name: str, hardware: Hardware) -> str:
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


def _why_no_accelerator(requested: str, hardware: Hardware) -> str:
    if requested.startswith("cuda") and not hardware.cuda:
        built = torch.version.cuda
        return f" (this torch was built {f'for CUDA {built}, so look at the driver' if built else 'without CUDA'})"
    return ""
