"""Upper bound of an explanation's cost, known before its preparation."""

from dataclasses import dataclass
from typing import Final

from predictor.errors import RequestTooLargeError
from predictor.explain.integration import NODE_COUNTS

MOST_ROWS: Final = 5_000_000
"""Maximum number of rows of one explanation in the worst case; most windows need three nodes, a 255th of that.

It allows 100 symbols at every horizon for a network with eleven rows per window, and 500 symbols with twelve targets
for a network with one row. It does not allow 300 symbols with 24 targets.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationCost:
    """Size of an explanation request."""

    symbols: int
    targets: int
    """Number of distinct targets."""
    rows_per_window: int
    """Rows that the networks read per window: 1 each, or the number of stocks in its small panel."""

    @property
    def rows(self) -> int:
        """Rows of all forward and backward passes if every window and target needs the maximum number of nodes."""
        return self.symbols * self.targets * self.rows_per_window * sum(NODE_COUNTS)

    def check(self) -> None:
        """Reject a request that could block other explanations for too long.

        Raises:
            RequestTooLargeError: more than MOST_ROWS; the metadata has the number.
        """
        if self.rows > MOST_ROWS:
            raise RequestTooLargeError(
                f"explaining {self.targets} targets of {self.symbols} symbols may take {self.rows} rows of the "
                f"network, more than the limit of {MOST_ROWS} per request; ask for fewer targets or symbols",
                metadata={"have": str(self.rows), "most": str(MOST_ROWS)},
            )
