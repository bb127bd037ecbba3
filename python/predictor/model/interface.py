"""What the doors ask of a model, whatever it consists of."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from predictor.catalog import ModelInfo
from predictor.deadline import Cancellation
from predictor.errors import QuantraError
from predictor.forecast import Attribution, Forecast, Outcome, TargetPoint
from predictor.instance import Instance, Query, ReadInstance
from predictor.model.outputs import Identity

PreparedT = TypeVar("PreparedT")


class Answering(Protocol):
    """A model that can be asked: one network, or an ensemble. Nothing on it changes, so any thread may use it."""

    @property
    def identity(self) -> Identity:
        """Its name, version and weights."""
        ...

    def predict(self, instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation) -> tuple[Outcome, ...]:
        """One outcome per instance, in order: a bad one, or one that could not be read, is answered with its error.

        Raises:
            DeadlineExceededError, CallCancelledError: nobody waits for the answers any more.
        """
        ...

    def explain(self, query: Query, now: datetime, deadline: Cancellation) -> tuple[Attribution, ...]:
        """Attributions of one query, one per target.

        Raises:
            QuantraError: the instance cannot be forecast, or the query asks for what the model does not have.
        """
        ...

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """Every horizon at the quantile nearest to the median."""
        ...

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """What the model is, for people and programs."""
        ...


class Staged(Protocol[PreparedT]):
    """A model that answers in two steps: it checks and encodes each instance, then forecasts all that passed."""

    def prepare(self, instance: Instance, now: datetime) -> PreparedT:
        """Check an instance and compute its inputs; raises the error that belongs to this instance."""
        ...

    def forecast(self, prepared: Sequence[PreparedT], deadline: Cancellation) -> list[Forecast]:
        """Forecasts of several instances; raises when nobody waits for them any more."""
        ...


def outcomes(
    model: Staged[PreparedT], instances: Sequence[ReadInstance], now: datetime, deadline: Cancellation
) -> tuple[Outcome, ...]:
    """The outcome of each instance, in order; see `Answering.predict`."""
    prepared = [_prepared(model, instance, now, deadline) for instance in instances]
    good = [p for p in prepared if not isinstance(p, QuantraError)]
    forecasts = iter(model.forecast(good, deadline) if good else ())
    return tuple(p if isinstance(p, QuantraError) else next(forecasts) for p in prepared)


def _prepared(
    model: Staged[PreparedT], instance: ReadInstance, now: datetime, deadline: Cancellation
) -> PreparedT | QuantraError:
    if isinstance(instance, QuantraError):
        return instance
    deadline.check()
    try:
        return model.prepare(instance, now)
    except QuantraError as error:
        return error
