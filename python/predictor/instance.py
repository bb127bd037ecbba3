"""What is asked: bars or the feature windows of a caller that computes features itself, and until when."""

import threading
import time
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from predictor.bars import BarPanel, Frame
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import (
    CallCancelledError,
    CovariatesError,
    DeadlineExceededError,
    InvalidInputError,
    QuantraError,
)
from predictor.forecast import Detail, TargetPoint
from predictor.observation import Observer


class GapPolicy(StrEnum):
    """What to do about sessions that the exchange held and the bars lack."""

    REFUSE = "refuse"
    """Raise SessionGapError and name them."""
    MASK = "mask"
    """Count them as sessions without a bar."""
    IGNORE = "ignore"
    """Take the bars as consecutive."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureWindow:
    """Inputs of the network for S symbols, made with the schema that `schema_hash` names."""

    symbols: tuple[str, ...]
    observed: NDArray[np.float32]
    """[S, encoder_length, F] scaled features; 0 where `mask` is False."""
    known: NDArray[np.float32]
    """[S, encoder_length + future_length, K]"""
    static: NDArray[np.float32]
    """[S, C]"""
    mask: NDArray[np.bool_]
    """[S, encoder_length, F] True where the cell is known."""
    location: NDArray[np.float64]
    """[S] the window's own level of the target; [S, H], one per horizon, of a model whose levels are fitted."""
    scale: NDArray[np.float64]
    """The window's own volatility, positive, in the shape of `location`."""
    schema_hash: str
    anchor_price: NDArray[np.float64] | None = None
    """[S] last close; None gives no prices."""
    as_of_session: date | None = None
    """Session of the last row; None = unknown."""
    features: tuple[str, ...] = ()
    """Names of the F observed features, in order; empty = `schema_hash` alone says which they are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """One question: a panel of bars or of windows, and how strictly its calendar is read."""

    input: BarPanel | FeatureWindow
    covariates: Covariates = NO_COVARIATES
    """What the model reads beside bars; windows hold it already."""
    request_id: str = ""
    allow_incomplete_last_bar: bool = False
    gap_policy: GapPolicy = GapPolicy.REFUSE
    max_age_sessions: int | None = None
    """Sessions of the model's calendar that may have closed since the last bar; None: any number."""

    def __post_init__(self) -> None:
        """Refuse covariates beside windows, which hold them already, and an age below 0."""
        if self.max_age_sessions is not None and self.max_age_sessions < 0:
            raise InvalidInputError(f"max_age_sessions is {self.max_age_sessions}, but must be 0 or more")
        if self.covariates.names and not isinstance(self.input, BarPanel):
            raise CovariatesError("covariates go with bars; feature windows hold their own static and known inputs")


def no_older(instance: Instance, most: int) -> Instance:
    """The same, refused where more than `most` sessions have closed since its last bar; its own bound may be less."""
    own = instance.max_age_sessions
    return instance if own is not None and own <= most else replace(instance, max_age_sessions=most)


Question = BarPanel | FeatureWindow | Instance | Frame
"""Whatever a caller may ask about; a table in memory is read as `BarPanel.of` does."""
ReadInstance = Instance | QuantraError
"""An instance, or the error of one that could not be read."""


class Cancellation(Protocol):
    """What long work asks, between two steps, whether it may go on."""

    def check(self) -> None:
        """Return if it may; raises CallCancelledError or DeadlineExceededError if nobody can use the result now."""
        ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock, and a flag that the caller went away. Without either it never expires."""

    expires_at_s: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    observer: Observer | None = None
    """The caller's own, told of each request that has this deadline."""

    @classmethod
    def after(cls, seconds: float | None, observer: Observer | None = None) -> "Deadline":
        """Expire `seconds` from now; None never expires."""
        return cls(None if seconds is None else time.monotonic() + seconds, observer=observer)

    def is_over(self, now_s: float) -> bool:
        """Whether nobody can use the result any more at this time of the monotonic clock."""
        return self.cancelled.is_set() or (self.expires_at_s is not None and now_s >= self.expires_at_s)

    def check(self) -> None:
        """Stop work that nobody can use any more.

        Raises:
            CallCancelledError: the caller went away.
            DeadlineExceededError: the time is over.
        """
        if self.cancelled.is_set():
            raise CallCancelledError("the call was cancelled before its answer was there")
        if self.expires_at_s is not None and time.monotonic() >= self.expires_at_s:
            raise DeadlineExceededError("the call's deadline passed before its answer was there; allow more time")


NEVER: Final = Deadline()
"""For work that somebody always waits for."""


def instance_of(asked: Question, covariates: Covariates | None = None) -> Instance:
    """The question about a panel, a table of bars or windows alone; an instance stays as it is.

    Raises:
        CovariatesError: covariates are given beside an instance, which holds its own, or beside windows.
        BarsError: a table does not hold bars.
    """
    if not isinstance(asked, Instance | BarPanel | FeatureWindow):
        asked = BarPanel.of(asked)
    if not isinstance(asked, Instance):
        return Instance(input=asked, covariates=covariates or NO_COVARIATES)
    if covariates is not None:
        raise CovariatesError("an instance holds its covariates itself: Instance(input=bars, covariates=...)")
    return asked


INTEGRATED_GRADIENTS = "integrated-gradients"

LEAST_TOLERANCE: Final = 1e-4
"""The finest relative completeness gap that may be asked for; below it, a network's float32 decides what is left."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Query:
    """A question for the reasons behind a forecast."""

    instance: Instance
    targets: tuple[TargetPoint, ...] = ()
    """Empty = every horizon, at the quantile nearest to 0.5."""
    method: str = INTEGRATED_GRADIENTS
    detail: Detail = Detail.FEATURES
    tolerance: float = 0.01
    """Largest relative completeness gap that counts as converged, in [LEAST_TOLERANCE, 1)."""
    symbols: tuple[str, ...] = ()
    """Whose reasons, in this order; empty = all of the instance's. All of its bars are read in any case."""


def importance_query(asked: Question, horizon: int, quantile: float, covariates: Covariates | None) -> Query:
    """The reasons behind one quantile of one horizon; raises as `instance_of`."""
    return Query(instance=instance_of(asked, covariates), targets=(TargetPoint(horizon, quantile),))
