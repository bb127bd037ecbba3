"""What a recurrent encoder reads of each session."""

from typing import Final

import torch
from torch import Tensor

from predictor.networks.inputs import Inputs, InputSizes

ROW_ARITHMETIC: Final = "observed, known, share of known cells"


def row_width(sizes: InputSizes) -> int:
    """Numbers in one session's row."""
    return sizes.observed + sizes.known + 1


def session_rows(inputs: Inputs) -> Tensor:
    """[N, T, F + K + 1] observed and known features, and the share of observed cells that are known."""
    length = inputs.observed.shape[1]
    # a sum of truth values is fast on a CPU, their mean is not
    share_known = inputs.mask.sum(-1, keepdim=True).to(inputs.observed.dtype) / inputs.mask.shape[-1]
    return torch.cat([inputs.observed, inputs.known[:, :length], share_known], dim=-1)
