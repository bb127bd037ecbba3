"""The interface of the service that answers the calls."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from predictor.catalog import ModelInfo
from predictor.forecast import Explanation, Outcome
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import Deadline, PathQuery, Query
from predictor.service import (
    PredictionRequest,
    QueryRequest,
    Simulation,
)

AnswerT = TypeVar("AnswerT")


class CallService(Protocol):
    """The part of predictor.service.PredictionService that the calls use."""

    def models(self) -> tuple[ModelInfo, ...]:
        """List every served version."""
        ...

    def model(self, reference: str) -> ModelInfo:
        """Describe one version; raises ModelNotFoundError or VersionNotFoundError."""
        ...

    def answer(
        self,
        reference: str,
        request: PredictionRequest,
        deadline: Deadline,
        encode: Callable[[tuple[Outcome, ...]], AnswerT],
        *,
        here: bool = False,
    ) -> Future[AnswerT]:
        """Forecast each instance, in order, and encode the outcomes; the future fails only with a QuantraError.

        It raises at once if the model is unknown or the queue is full. `here` allows work in the calling thread if no
        other request waits.
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
