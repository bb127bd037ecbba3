"""Stage times of a batch."""

from dataclasses import dataclass
from itertools import pairwise
from typing import final


@final
@dataclass(slots=True)
class StageTimes:
    """End of each stage of a batch, in seconds of `perf_counter`; 0 = not yet.

    `arrived_at_s` is the arrival of the first request.
    """

    arrived_at_s: float
    begun_at_s: float
    decoded_at_s: float = 0.0
    prepared_at_s: float = 0.0
    forecast_at_s: float = 0.0
    encoded_at_s: float = 0.0
    rows: int = 0
    """Symbols of the batch."""

    @property
    def prepare_s(self) -> float | None:
        """Seconds from instances to network inputs; None if not finished."""
        return self.prepared_at_s - self.decoded_at_s if self.prepared_at_s else None

    @property
    def forward_s(self) -> float | None:
        """Seconds in the network; None if not finished."""
        return self.forecast_at_s - self.prepared_at_s if self.forecast_at_s else None

    def __str__(self) -> str:
        """List the duration of each stage."""
        ends = (
            self.arrived_at_s,
            self.begun_at_s,
            self.decoded_at_s,
            self.prepared_at_s,
            self.forecast_at_s,
            self.encoded_at_s,
        )
        names = ("queue", "decode", "prepare", "forward", "encode")
        spans = zip(names, pairwise(ends), strict=True)
        return ", ".join(f"{name} {1e3 * (end - begin):.2f} ms" for name, (begin, end) in spans)
