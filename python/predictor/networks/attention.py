"""Interpretable multi-head attention (Lim et al. 2021, section 4.4)."""

from math import sqrt

from torch import Tensor, nn


class InterpretableAttention(nn.Module):
    """Heads with queries and keys of their own and one shared value (equations 13 to 16).

    As the value is shared, the mean over the heads' results is the result of their mean attention: that one matrix
    of weights is all that moves values between sessions, and can be read.

    Args:
        width: Of queries, keys and the result.
        heads: They divide the width.
    """

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width // heads, bias=False)
        self.out = nn.Linear(width // heads, width, bias=False)

    def forward(self, queries: Tensor, sessions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from some sessions to all of them.

        Args:
            queries: [N, P, W] the sessions that ask.
            sessions: [N, S, W] those that may be looked at.
            mask: [P, S] added to the scores: 0 where a session may be looked at, minus infinity elsewhere.

        Returns:
            [N, P, W] the result and [N, P, S] the mean attention of the heads.
        """
        asked = self._split(self.query(queries) / sqrt(self.out.in_features))
        scores = asked @ self._split(self.key(sessions)).transpose(-1, -2)
        attention = (scores + mask).softmax(dim=-1).mean(dim=1)
        return self.out(attention @ self.value(sessions)), attention

    def _split(self, x: Tensor) -> Tensor:
        """[N, P, W] to [N, heads, P, W / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
