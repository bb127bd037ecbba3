"""What the explaining thread works on: one query, or many instances one after the other."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Final, Protocol, final

from predictor.forecast import Explanation
from predictor.global_importance import GlobalImportance, GlobalQuery
from predictor.instance import NEVER, Cancellation, Query
from predictor.model import Predictor, explain_each
from predictor.service.workers import rows_of

MOST_REPORTS: Final = 100
"""Reports of one global explanation, about; they hold the same rows each time."""

Report = Callable[[GlobalImportance], None]
"""Takes what is known after some of the instances; called on the explaining thread."""


class ExplanationRequest(Protocol):
    """A query, which may be read only when its turn comes."""

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...

    def query(self) -> Query:
        """What is asked; raises QuantraError where it cannot be read."""
        ...


class GlobalExplanationRequest(Protocol):
    """A question about many instances, which may be read only when its turn comes."""

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        ...

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        ...

    def query(self) -> GlobalQuery:
        """What is asked; raises QuantraError where it cannot be read."""
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class SingleExplanation:
    """One query to one model."""

    model: Predictor
    asked: ExplanationRequest
    asked_s: float = field(default_factory=time.perf_counter)

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        return self.asked.rows

    @property
    def size(self) -> int:
        """Bytes that the query holds."""
        return self.asked.size

    def step(self, now: datetime, deadline: Cancellation) -> Explanation:
        """The whole answer."""
        begun_s = time.perf_counter()
        attributions = self.model.explain(self.asked.query(), now, deadline)
        return Explanation(
            attributions=attributions,
            queue_ms=1e3 * (begun_s - self.asked_s),
            compute_ms=1e3 * (time.perf_counter() - begun_s),
        )


@final
class GlobalExplanation:
    """Many instances of one model, one in each step.

    Args:
        model: whose forecasts are explained.
        asked: the instances.
        report: told what is known after each instance, or after several where there are many; not of the last one,
            which is the answer.
    """

    def __init__(self, model: Predictor, asked: GlobalExplanationRequest, report: Report) -> None:
        self.rows, self.size = asked.rows, asked.size
        self._model = model
        self._asked: GlobalExplanationRequest | None = asked
        self._report = report
        self._turn = _StepDeadline()
        self._steps: Iterator[GlobalImportance] = iter(())

    def step(self, now: datetime, deadline: Cancellation) -> GlobalImportance | None:
        """The next instance; what is known after the last of them."""
        self._turn.deadline = deadline
        if self._asked is not None:
            self._steps = explain_each(self._model, self._asked.query(), now, self._turn)
            self._asked = None
        known = next(self._steps)
        if known.done == known.total:
            return known
        if known.done % ceil(known.total / MOST_REPORTS) == 0:
            self._report(known)
        return None


@final
class _StepDeadline:
    """The deadline of the present step."""

    def __init__(self) -> None:
        self.deadline: Cancellation = NEVER

    def check(self) -> None:
        """Raises as the present step's."""
        self.deadline.check()


@final
@dataclass(frozen=True, slots=True)
class DecodedQuery:
    """A query of the same process."""

    given: Query

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        return len(self.given.instance.input.symbols)

    @property
    def size(self) -> int:
        """None: it is the caller's own, who holds it in any case."""
        return 0

    def query(self) -> Query:
        """As it was given."""
        return self.given


@final
@dataclass(frozen=True, slots=True)
class DecodedGlobalQuery:
    """A question of the same process."""

    given: GlobalQuery

    @property
    def rows(self) -> int:
        """Symbols that are read."""
        return rows_of(self.given.instances)

    @property
    def size(self) -> int:
        """None, as with `DecodedQuery`."""
        return 0

    def query(self) -> GlobalQuery:
        """As it was given."""
        return self.given
