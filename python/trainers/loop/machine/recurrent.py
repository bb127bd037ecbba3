"""Parameters laid out as the device's kernels want them: dense, and those of recurrent layers in one piece."""

import torch
from torch import nn
from torch.nn import Parameter
from torch.nn.utils import parametrize


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
