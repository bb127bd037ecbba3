"""The interface of the service that answers the calls."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from predictor.catalog import ModelInfo
from predictor.forecast import Explanation, Outcome
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import Deadline, PathQuery, Query
from predictor.service import (
    PredictionRequest,
    QueryRequest,
    Simulation,
)


class CallService(Protocol):
    """The part of predictor.service.PredictionService that the calls use."""

    def models(self) -> tuple[ModelInfo, ...]:
        """List every served version."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """Describe one version; raises ModelNotFoundError or VersionNotFoundError."""
        ...

    def predict(
        self, reference: str, request: PredictionRequest, deadline: Deadline, *, here: bool = False
    ) -> Future[tuple[Outcome, ...]]:
        """Forecast each instance, in order; raises at once if the model is unknown or the queue is full.

        `here` allows work in the calling thread if no other request waits.
        """
        ...

    def explain(self, reference: str, query: QueryRequest[Query], deadline: Deadline) -> Future[Explanation]:
        """Explain one forecast; never delays a prediction."""
        ...

    def simulate(self, reference: str, request: QueryRequest[PathQuery], deadline: Deadline) -> Future[Simulation]:
        """Simulate price paths; never delays a prediction."""
        ...

    def explain_global(
        self,
        reference: str,
        query: QueryRequest[GlobalQuery],
        report: Callable[[GlobalImportance], object],
        deadline: Deadline,
    ) -> Future[GlobalImportance]:
        """Explain many instances; `report` receives interim results, on a thread of the service."""
        ...
