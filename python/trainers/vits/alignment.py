"""Monotonic alignment search: which token each frame belongs to, where tokens come in order and none is left out.

Kim et al., "Glow-TTS" (2020), algorithm 1. The recursion over frames is sequential; each of its steps is one
operation over all utterances and tokens. NumPy on the host is several times faster at it than small torch operations.
"""

import numpy as np
import torch
from torch import Tensor

IMPOSSIBLE = np.float32(-1e30)


@torch.no_grad()
def monotonic_path(scores: Tensor, tokens: Tensor, frames: Tensor) -> Tensor:
    """The path of the largest sum of scores that begins at the first token, ends at the last and skips none.

    Args:
        scores: log-likelihood of every frame under every token, float [N, frames, tokens].
        tokens: how many each utterance has, int64 [N].
        frames: how many each utterance has, at least as many as tokens, int64 [N].

    Returns:
        1 where a frame belongs to a token and 0 elsewhere, padding included: float32 [N, frames, tokens], on the
        device of the scores.

    Raises:
        ValueError: an utterance has fewer frames than tokens, so that no path exists.
    """
    token_counts, frame_counts = tokens.cpu().numpy(), frames.cpu().numpy()
    short = np.flatnonzero(frame_counts < token_counts)
    if len(short):
        first = short[0]
        raise ValueError(
            f"utterance {first} of the batch has {frame_counts[first]} frames for {token_counts[first]} tokens; each "
            "token needs one: leave the clip out, or shorten its text"
        )
    values = scores.detach().float().cpu().numpy()
    return torch.from_numpy(_traced(_advances(values), token_counts, frame_counts)).to(scores.device)


def _advances(scores: np.ndarray) -> np.ndarray:
    """Whether the best path that ends at a frame and token came from the token before: bool [frames, N, tokens]."""
    count, frames, tokens = scores.shape
    advances = np.zeros((frames, count, tokens), np.bool_)
    best = np.full((count, tokens), IMPOSSIBLE, np.float32)
    before = np.full((count, tokens), IMPOSSIBLE, np.float32)
    best[:, 0] = scores[:, 0, 0]
    for frame in range(1, frames):
        before[:, 1:] = best[:, :-1]
        np.greater(before, best, out=advances[frame])
        np.maximum(before, best, out=best)
        best += scores[:, frame]
    return advances


def _traced(advances: np.ndarray, tokens: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """The path back from each utterance's last frame and token: float32 [N, frames, tokens]."""
    length, count, width = advances.shape
    path = np.zeros((count, length, width), np.float32)
    rows, token = np.arange(count), tokens - 1
    for frame in range(length - 1, -1, -1):
        within = frame < frames
        path[rows, frame, token] = within
        token = token - (within & advances[frame, rows, token])
    return path
