"""Observations of requests, and the protocol of their observers, such as metrics and the prediction ledger."""

from dataclasses import dataclass
from typing import Final, Protocol

OK: Final = "OK"
"""The code of a successful request; every other code is a `predictor.errors.Status`."""


@dataclass(slots=True, kw_only=True)  # not frozen: each call creates one, and freezing is slow
class Observation:
    """One request to a model, with its result."""

    method: str
    """`Predict`, `Explain` or `ExplainGlobal`, on every interface."""
    model: str
    """Name of a loaded model, never the caller's text."""
    version: int
    rows: int
    """Symbols of the request."""
    code: str
    """`OK`, or the name of a `predictor.errors.Status`."""
    reason: str
    """Reason of the error; empty without an error."""
    refused: tuple[str, ...] = ()
    """Error reasons of single instances in a request that succeeded."""
    took_s: float
    """Seconds from arrival to the response."""
    queue_s: float | None = None
    """Seconds in the queue; None = it never left the queue."""
    prepare_s: float | None = None
    """Seconds that its batch took to compute the network's inputs; None = unfinished, or not a forecast."""
    forward_s: float | None = None
    """Seconds that its batch took in the network; None as in `prepare_s`."""
    batch_rows: int = 0
    """Symbols of its batch, its own included; 0 where `prepare_s` is None."""


class Observer(Protocol):
    """Receives observations. Called on any thread; must not block or raise."""

    def on_queued(self, model: str, version: int) -> None:
        """A request enters the queue of this model; its observation follows."""
        ...

    def on_finished(self, observation: Observation) -> None:
        """A request has its response or its error."""
        ...
