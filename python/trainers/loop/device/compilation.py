"""Preparation of modules for a device: dense parameters, and compilation except for recurrent layers."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter
from torch.nn.utils import parametrize

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

    def call(*inputs: Any, **named: Any) -> Any:
        return part._call_impl(*inputs, **named)  # noqa: SLF001  calls hooks, but not the compiled call

    call.__code__ = call.__code__.replace(co_name=path)
    return call


def compact_parameters(module: nn.Module) -> None:
    """Make every parameter contiguous, and the weights of recurrent layers one flat buffer if cuDNN needs it.

    Call it after the module was moved, loaded or copied. Parameters keep their identity and values, so that optimizers
    and averages stay valid. Convolution weights in channels-last order keep it, except on Apple GPUs, which compute
    wrong convolutions from them (https://github.com/pytorch/pytorch/issues/192212).
    """
    for parameter in module.parameters():
        if not _is_dense(parameter):
            parameter.data = parameter.detach().contiguous()
    for part in module.modules():
        # Every forward of a parametrized layer computes its weights and flattens them.
        if isinstance(part, nn.RNNBase) and not parametrize.is_parametrized(part):
            part.flatten_parameters()


def _is_dense(parameter: Parameter) -> bool:
    if parameter.is_contiguous():
        return True
    channels_last = parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last)  # noqa: PLR2004  N, C, H, W
    return channels_last and parameter.device.type != "mps"
