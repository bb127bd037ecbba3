"""Gradients through recurrent networks without changes to the served network.

cuDNN saves the tensors for an RNN's backward only if the forward runs in train mode; otherwise backward raises "cudnn
RNN backward can only be called in training mode". Train mode with dropout 0 saves them and does not change the values.
All other modules stay in eval mode.
"""

import copy
from itertools import chain

from torch import nn

from predictor.errors import ConfigurationError, ExplainUnsupportedError


def build_attribution_view(network: nn.Module) -> nn.Module:
    """A second module tree over the network's parameters and buffers, for input gradients.

    The view is in eval mode except for its RNNs, which are in train mode with dropout 0. It shares weights but no flags
    with the network, so both can run at once in any number of threads. Move the network to its device and dtype first.
    After `load_state_dict(assign=True)` on the network, the view keeps the old weights.

    Args:
        network: an eager module (not compiled, scripted or exported), loaded outside `torch.inference_mode`.

    Raises:
        ConfigurationError: a parameter or buffer was created in `torch.inference_mode`.
        ExplainUnsupportedError: the module cannot be copied, for instance because it holds a lock.
    """
    tensors = list(chain(network.parameters(), network.buffers()))
    if any(tensor.is_inference() for tensor in tensors):
        raise ConfigurationError(
            f"{type(network).__name__} has weights created in torch.inference_mode, which block gradients; "
            "load it outside of it"
        )
    view = _copy_around(network, {id(tensor): tensor for tensor in tensors})
    view.eval()
    for rnn in [child for child in view.modules() if isinstance(child, nn.RNNBase)]:
        rnn.dropout = 0.0
        rnn.training = True
    return view


def check_view(view: nn.Module) -> None:
    """Raise ConfigurationError unless every module is in the mode that `build_attribution_view` sets."""
    for name, module in view.named_modules():
        recurrent = isinstance(module, nn.RNNBase)
        if module.training != recurrent or (recurrent and module.dropout):
            raise ConfigurationError(
                f"module {name or type(module).__name__!r} is not in an attribution view's mode; "
                "pass build_attribution_view(network), not the network"
            )


def _copy_around(network: nn.Module, shared: dict[int, object]) -> nn.Module:
    """A deep copy that shares these objects, by id."""
    try:
        return copy.deepcopy(network, shared)
    except (TypeError, RuntimeError) as cause:
        raise ExplainUnsupportedError(
            f"{type(network).__name__} cannot be copied for explanations ({cause}); "
            "keep locks, handles and intermediate tensors out of modules"
        ) from cause
