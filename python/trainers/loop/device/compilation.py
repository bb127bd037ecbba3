"""Preparation of modules for a device: dense parameters, and compilation of all but recurrent layers."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter
from torch.nn.utils import parametrize

Backend = str | Callable[..., Any]


@contextmanager
def compiled(modules: Mapping[str, nn.Module], *, backend: Backend = "inductor") -> Generator[list[str]]:
    """Compile the parts without recurrent layers inside; afterwards every part is as it was.

    The modules stay the same objects, so optimizers, state-dict names, copies and saved files know nothing of it. A
    part is compiled when it is first called, and again for other kinds of inputs.

    Recurrent layers and what contains them run as they are: torch leaves the whole frame around an LSTM uncompiled
    (https://github.com/pytorch/pytorch/issues/141184) or takes it apart into something slower than the kernels of cuDNN
    and oneDNN (https://github.com/pytorch/pytorch/issues/140845).

    Args:
        modules: Modules by name.
        backend: What compiles, as `torch.compile` takes it.

    Yields:
        Names of the parts that are compiled, such as `net.head`.
    """
    parts = {path: part for name, module in modules.items() for path, part in compilable(module, name)}
    before = {path: part._compiled_call_impl for path, part in parts.items()}  # noqa: SLF001  torch has no public way back
    try:
        for path, part in parts.items():
            part._compiled_call_impl = torch.compile(_entry(part, path), backend=backend)  # noqa: SLF001  as above
        yield list(parts)
    finally:
        for path, part in parts.items():
            part._compiled_call_impl = before[path]  # noqa: SLF001  as above


def compilable(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The largest parts that can be called, hold a parameter and contain no recurrent layer, with their names."""
    callable_itself = type(module).forward is not nn.Module.forward  # a ModuleList, say, only holds others
    recurrent = any(isinstance(part, (nn.RNNBase, nn.RNNCellBase)) for part in module.modules())
    if callable_itself and not recurrent:
        if any(True for _ in module.parameters()):
            yield name, module
        return
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return
    for child_name, child in module.named_children():
        yield from compilable(child, f"{name}.{child_name}")


def _entry(part: nn.Module, path: str) -> Callable[..., Any]:
    """A call of the part, in a frame that belongs to it alone.

    `nn.Module.compile` begins in a frame of torch's own, which torch passes over, so that it compiles nothing of a
    `Sequential` or another of torch's modules. And torch compiles a piece of code eight times at most, so the parts
    must not share one.
    """

    def call(*inputs: Any, **named: Any) -> Any:
        return part._call_impl(*inputs, **named)  # noqa: SLF001  with hooks, and without the compiled call itself

    call.__code__ = call.__code__.replace(co_name=path)
    return call


def compact(module: nn.Module) -> None:
    """Make every parameter dense in memory, and the weights of recurrent layers one flat buffer where cuDNN wants it.

    To be called after the module was moved, loaded or copied. Parameters keep their identity and their values, so that
    optimizers and averages of them stay valid. Convolution weights that were put in the channels-last order keep it,
    except on Apple GPUs, which have computed convolutions wrongly from them
    (https://github.com/pytorch/pytorch/issues/192212).
    """
    for parameter in module.parameters():
        if not _is_dense(parameter):
            parameter.data = parameter.detach().contiguous()
    for part in module.modules():
        # The weights of a parametrized layer are computed, and made flat, in its every forward.
        if isinstance(part, nn.RNNBase) and not parametrize.is_parametrized(part):
            part.flatten_parameters()


def _is_dense(parameter: Parameter) -> bool:
    if parameter.is_contiguous():
        return True
    channels_last = parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last)  # noqa: PLR2004  N, C, H, W
    return channels_last and parameter.device.type != "mps"
