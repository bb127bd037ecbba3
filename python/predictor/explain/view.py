"""Gradients through recurrent networks without touching what is being served.

cuDNN keeps what an RNN's backward needs only if the forward ran in train mode; otherwise backward raises "cudnn RNN
backward can only be called in training mode". Train mode with dropout 0 asks for exactly that and changes no value.
Every other module stays in eval mode: dropout off, batch norm on its stored statistics.
"""

import copy
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from torch import nn

from predictor.errors import ConfigurationError, ExplainUnsupportedError


def attribution_view(network: nn.Module) -> nn.Module:
    """A second module tree over the network's own parameters and buffers, ready for input gradients.

    The view is in eval mode except for its RNNs, which are in train mode with dropout 0. It holds no weights of its
    own and shares no flags with the network: both may run at once, in any number of threads. Move the network to its
    device and dtype first; `load_state_dict(assign=True)` on the network leaves the view with the old weights.

    Args:
        network: an eager module (not compiled, scripted or exported), loaded outside `torch.inference_mode`.

    Raises:
        ConfigurationError: a parameter or buffer was made under `torch.inference_mode`.
        ExplainUnsupportedError: the module cannot be copied, for instance because it holds a lock.
    """
    tensors = list(chain(network.parameters(), network.buffers()))
    if any(tensor.is_inference() for tensor in tensors):
        raise ConfigurationError(
            f"{type(network).__name__} has weights made under torch.inference_mode, which no gradient can pass; "
            "load it outside"
        )
    view = _copy_around(network, {id(tensor): tensor for tensor in tensors})
    view.eval()
    for rnn in _rnns(view):
        rnn.dropout = 0.0
        rnn.training = True
    return view


def check_view(view: nn.Module) -> None:
    """Raise ConfigurationError unless every module is in the mode that `attribution_view` sets."""
    for name, module in view.named_modules():
        recurrent = isinstance(module, nn.RNNBase)
        if module.training != recurrent or (recurrent and module.dropout):
            raise ConfigurationError(
                f"module {name or type(module).__name__!r} is not in an attribution view's mode; "
                "pass attribution_view(network), not the network"
            )


@contextmanager
def rnn_backward_mode(module: nn.Module) -> Generator[nn.Module]:
    """Put only the RNNs of a module into train mode with dropout 0, and give each its own state back at the end.

    For a module that nobody else serves; beside live predictions use `attribution_view`. Nested and concurrent uses
    are counted for each RNN: the first to enter sets the mode, the last to leave restores it. The mode matters while
    the forward runs; backward may follow outside.
    """
    rnns = _rnns(module)
    _HELD.enter(rnns)
    try:
        yield module
    finally:
        _HELD.leave(rnns)


@dataclass(slots=True)
class _BackwardHold:
    """How many hold an RNN in backward mode, and what it was before."""

    count: int
    training: bool
    dropout: float


class _BackwardRnns:
    """The RNNs in backward mode, across all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds: dict[nn.RNNBase, _BackwardHold] = {}

    def enter(self, rnns: list[nn.RNNBase]) -> None:
        """Set dropout before the flag: a forward in another thread that reads in between must see no dropout."""
        with self._lock:
            for rnn in rnns:
                hold = self._holds.setdefault(rnn, _BackwardHold(0, rnn.training, rnn.dropout))
                hold.count += 1
                rnn.dropout = 0.0
                rnn.training = True

    def leave(self, rnns: list[nn.RNNBase]) -> None:
        """Restore in the opposite order, for the same reason."""
        with self._lock:
            for rnn in rnns:
                hold = self._holds[rnn]
                hold.count -= 1
                if hold.count == 0:
                    rnn.training = hold.training
                    rnn.dropout = hold.dropout
                    del self._holds[rnn]


_HELD = _BackwardRnns()


def _rnns(module: nn.Module) -> list[nn.RNNBase]:
    return [child for child in module.modules() if isinstance(child, nn.RNNBase)]


def _copy_around(network: nn.Module, shared: dict[int, object]) -> nn.Module:
    """A deep copy that keeps the shared objects, by id, as they are."""
    try:
        return copy.deepcopy(network, shared)
    except (TypeError, RuntimeError) as cause:
        raise ExplainUnsupportedError(
            f"{type(network).__name__} cannot be copied for explanations ({cause}); "
            "keep locks, handles and intermediate tensors out of modules"
        ) from cause
