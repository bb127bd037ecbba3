"""What an explanation costs at most, known before anything of it is prepared."""

from dataclasses import dataclass
from typing import Final

from predictor.errors import RequestTooLargeError
from predictor.explain.integration import NODE_COUNTS

MOST_ROWS: Final = 5_000_000
"""Rows of one explanation, whatever it turns out to need; most windows settle with three nodes, a 255th of it.

A hundred symbols at every horizon pass, for a network of eleven rows a window too, and so do 500 symbols with twelve
targets for a network of one; 300 symbols with 24 targets do not.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationCost:
    """How much one explanation asks for."""

    symbols: int
    targets: int
    """Different ones."""
    rows_per_window: int
    """Rows that the networks read for one window: 1 each, or as many as there are stocks in a small panel."""

    @property
    def rows(self) -> int:
        """Rows of a forward and backward if no window and target settles before the most nodes."""
        return self.symbols * self.targets * self.rows_per_window * sum(NODE_COUNTS)

    def check(self) -> None:
        """Refuse what might keep every other explanation waiting for too long.

        Raises:
            RequestTooLargeError: more than MOST_ROWS; the metadata says how many.
        """
        if self.rows > MOST_ROWS:
            raise RequestTooLargeError(
                f"explaining {self.targets} targets of {self.symbols} symbols may take {self.rows} rows of the "
                f"network, at most {MOST_ROWS} in one request; ask for fewer targets or symbols",
                metadata={"have": str(self.rows), "most": str(MOST_ROWS)},
            )
