"""What became of a request, as plain facts, and who is told: metrics, a ledger, the door that it came through."""

from dataclasses import dataclass
from typing import Final, Protocol

OK: Final = "OK"
"""The code of a request that has its answer; every other one is a `predictor.errors.Status`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One request that reached a model, once it has its answer or its error."""

    asked_at_s: float
    """When it was asked, in seconds since 1970 (UTC)."""
    method: str
    """`Predict`, `Explain` or `ExplainGlobal`, whatever the door calls it."""
    model: str
    """Of a model that is loaded, never what the caller sent."""
    version: int
    rows: int
    """Symbols that it asked about."""
    engine: str
    """What computes answers."""
    code: str
    """`OK`, or the name of a `predictor.errors.Status`."""
    reason: str
    """Of the error; empty if there is none."""
    refused: tuple[str, ...] = ()
    """The reasons of its instances that have an error of their own, while the request itself was answered."""
    took_s: float
    """From asking to the answer."""
    queue_s: float | None = None
    """How long it waited for its turn; None = it had none."""
    prepare_s: float | None = None
    """How long its batch took from instances to the network's inputs; None = that did not end, or is no forecast."""
    forward_s: float | None = None
    """How long its batch took in the network; None as with `prepare_s`."""
    batch_rows: int = 0
    """Symbols of its batch, its own among them; 0 = as with `prepare_s`."""


class Observer(Protocol):
    """Whoever is told of requests. Called on any thread, and must return at once and raise nothing."""

    def reached(self, model: str, version: int) -> None:
        """A request is about to wait for this model; its observation follows."""
        ...

    def observed(self, observation: Observation) -> None:
        """A request has its answer or its error."""
        ...
