"""Everything that can go wrong, as one tree, and the one table that gives each its status on every door.

    QuantraError
    ├── InvalidInputError              the caller sent something that cannot be right
    │   ├── MalformedRequestError      bytes that are no request, or a request that breaks its own rules
    │   ├── BarsError                  a bar that no market can have made
    │   ├── TooFewBarsError            a shorter history than the model reads
    │   ├── NoUsableSymbolError        a panel in which no symbol can be forecast
    │   ├── ExpressionError            a feature's text that does not parse or is not allowed
    │   ├── FeatureMismatchError       feature windows made for another schema
    │   ├── WindowShapeError           a feature window of another shape than the model's
    │   ├── UnknownHorizonError        a horizon that the model does not forecast
    │   ├── UnknownQuantileError       a quantile that the model does not forecast
    │   ├── UnknownFeatureError        a feature that the model does not read
    │   ├── CovariatesError            covariates that cannot be what they claim
    │   ├── CovariateMissingError      a covariate that the model reads was not sent
    │   ├── UnknownCovariateError      a covariate that the model does not read
    │   ├── UnknownSessionError        a session of a stream that is not open
    │   ├── DuplicateIdError           an id that a request under way, or an open session, has already
    │   └── ConfigurationError         settings that contradict themselves
    │       └── InSampleError          days that the model was trained, selected or calibrated on
    ├── ModelNotFoundError             no model of that name
    ├── VersionNotFoundError           the model has no such version or alias
    ├── ArtifactError                  an artifact that is damaged, incomplete, foreign or newer
    ├── BarIncompleteError             the last bar's session has not closed yet
    ├── SessionGapError                sessions are missing between the bars
    ├── CalendarEndedError             dates beyond the calendar that the artifact carries
    ├── BarsStaleError                 the last bar is older than allowed
    ├── ResubscribeError               a session cannot go on; open it again with its whole history
    ├── ExplainUnsupportedError        an explanation method that the model does not have
    ├── UnauthenticatedError           no token, or one that the server does not know
    ├── PermissionDeniedError          a token without the role that the call needs
    ├── RetryableError                 asking again, unchanged, may help
    │   ├── QueueFullError             too much work is waiting already
    │   └── UnavailableError           nobody answers at that address, or the server is stopping
    ├── RequestTooLargeError           more rows or bytes than the door accepts
    ├── DeadlineExceededError          the caller's time ran out first
    ├── CallCancelledError             the caller went away
    ├── MissingPackageError            an optional package is needed and not installed
    └── InternalError                  our own bug; the log holds the rest

Every message says what is wrong, with which value, and what to do. `metadata` holds the same facts for programs.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from logging import Logger
from typing import Final, Self


def shown_date(day: int) -> str:
    """A date yyyymmdd as messages show it: 2024-03-28."""
    return f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"


MOST_LISTED: Final = 5


def listed(names: Sequence[str], count: int = 0) -> str:
    """The first few names, and how many more there are, as messages show them; `count` if `names` are not all."""
    more = max(len(names), count) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


class Status(StrEnum):
    """gRPC's canonical codes, by name, so that doors without gRPC speak of the same ones."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


class QuantraError(Exception):
    """The root of the tree. `metadata` repeats the message's facts as text, for programs."""

    def __init__(self, message: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})


class InvalidInputError(QuantraError):
    """The caller sent something that cannot be right; asking again unchanged fails again."""


class MalformedRequestError(InvalidInputError):
    """Bytes that are no request, or a request that breaks its own rules."""


class BarsError(InvalidInputError):
    """A bar that no market can have made."""

    @classmethod
    def at(cls, symbol: str, session: int, field: str, value: float, rule: str) -> Self:
        """Name the one cell that breaks a rule; `session` is yyyymmdd."""
        day = shown_date(session)
        return cls(
            f"{symbol} {day}: {field} is {value:g}, but {rule}",
            metadata={"symbol": symbol, "date": day, "field": field, "value": repr(float(value))},
        )


class BarsWarning(UserWarning):
    """Something in a table of bars that its reader should look at, such as rows that were left out."""


class TooFewBarsError(InvalidInputError):
    """Too little of a symbol's history; `metadata` has `symbol`, `have` and `need`."""

    @classmethod
    def of(cls, symbol: str, *, have: int, need: int, what: str, best: int) -> Self:
        """Say how much there is, how much is needed, and how many bars are best."""
        return cls(
            f"{symbol}: have {have} {what}, need {need}; send its earlier bars too, {best} sessions are best",
            metadata={"symbol": symbol, "have": str(have), "need": str(need)},
        )


class NoUsableSymbolError(InvalidInputError):
    """A panel in which no symbol can be forecast."""


class ExpressionError(InvalidInputError):
    """A feature's text that does not parse or is not allowed; `metadata["position"]` counts from 0."""

    @classmethod
    def at(cls, text: str, position: int, problem: str) -> Self:
        """Show the text with a caret under the place."""
        line = " ".join(text.split("\n"))
        start = max(0, position - 60)
        pointer = " " * (position - start) + "^"
        shown = line[start : start + 120]
        return cls(
            f"{problem} (column {position + 1})\n  {shown}\n  {pointer}",
            metadata={"position": str(position), "problem": problem},
        )


class FeatureMismatchError(InvalidInputError):
    """Feature windows made for another schema than the model's."""


class WindowShapeError(InvalidInputError):
    """A feature window of another shape than the model's."""


class UnknownHorizonError(InvalidInputError):
    """A horizon that the model does not forecast."""


class UnknownQuantileError(InvalidInputError):
    """A quantile that the model does not forecast."""


class UnknownFeatureError(InvalidInputError):
    """A feature that the model does not read."""


class CovariatesError(InvalidInputError):
    """Covariates that cannot be what they claim: a file's row, or arrays that fit neither bars nor each other."""


class CovariateMissingError(InvalidInputError):
    """A covariate that the model reads was not sent; `metadata["covariate"]` names it."""


class UnknownCovariateError(InvalidInputError):
    """A covariate that the model does not read; `metadata["covariate"]` names it."""


class UnknownSessionError(InvalidInputError):
    """A session of a stream that is not open."""


class DuplicateIdError(InvalidInputError):
    """An id that a request under way, or an open session of the same stream, has already."""


class ConfigurationError(InvalidInputError):
    """Settings that contradict themselves or each other."""


class InSampleError(ConfigurationError):
    """A score is asked for on days that the model was trained, selected or calibrated on."""


class ModelNotFoundError(QuantraError):
    """No model of that name; the message lists those that exist."""


class VersionNotFoundError(QuantraError):
    """The model has no such version or alias; the message lists those that exist."""


class ArtifactError(QuantraError):
    """An artifact that is damaged, incomplete, foreign or newer; the message names file and cause."""

    @classmethod
    def of(cls, file: str, problem: str) -> Self:
        """Name the file, relative to the artifact's folder, and what is wrong with it."""
        return cls(f"{file}: {problem}", metadata={"file": file})


class BarIncompleteError(QuantraError):
    """The last bar's session has not closed yet, so its close is no close."""


class SessionGapError(QuantraError):
    """Sessions are missing between the bars."""


class CalendarEndedError(QuantraError):
    """Dates beyond the calendar that the artifact carries."""


class BarsStaleError(QuantraError):
    """The last bar is older than allowed; `metadata` has `have` and `most`, in sessions of the model's calendar."""

    @classmethod
    def of(cls, last: int, *, have: int, most: int) -> Self:
        """Say how old the bars are, `last` being their last session, yyyymmdd, and how old they may be."""
        return cls(
            f"the last bar is of {shown_date(last)}, and {have} sessions have closed since, at most {most} may; send "
            "newer bars, or allow an older one",
            metadata={"date": shown_date(last), "have": str(have), "most": str(most)},
        )


class ResubscribeError(QuantraError):
    """A session of a stream cannot go on as it is; open it again with its whole history."""


class ExplainUnsupportedError(QuantraError):
    """An explanation method that the model does not have; the message lists those it has."""


class UnauthenticatedError(QuantraError):
    """No token, or one that the server does not know."""


class PermissionDeniedError(QuantraError):
    """A token without the role that the call needs; `metadata["role"]` names it."""


class RetryableError(QuantraError):
    """The call changed nothing, and asking again, unchanged, may help."""


class QueueFullError(RetryableError):
    """Too much work is waiting already; `metadata["retry_after_ms"]` says when to ask again."""

    @classmethod
    def of(cls, what: str, have: int, most: int, *, retry_after_s: float = 0.1) -> Self:
        """Say what there is too much of, how much, and when to try again."""
        return cls(
            f"{have} {what} already, at most {most}; ask again in a moment",
            metadata={"have": str(have), "most": str(most), "retry_after_ms": str(round(1000 * retry_after_s))},
        )

    @property
    def retry_after_s(self) -> float:
        """Seconds until another try makes sense; as the server said, or else a tenth."""
        told = self.metadata.get("retry_after_ms", "")
        return int(told) / 1000 if told.isdecimal() else 0.1


class UnavailableError(RetryableError):
    """Nobody answers at that address, or the server is stopping."""


class RequestTooLargeError(QuantraError):
    """More rows or bytes than the door accepts."""


class DeadlineExceededError(QuantraError):
    """The caller's time ran out before the answer was there."""


class CallCancelledError(QuantraError):
    """The caller went away before the answer was there."""


class MissingPackageError(QuantraError):
    """An optional package is needed and not installed."""

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> Self:
        """Say which extra brings the package."""
        return cls(
            f"{purpose} needs the package {package}: pip install 'quantra[{extra}]'",
            metadata={"package": package, "extra": extra},
        )


class InternalError(QuantraError):
    """Our own bug. The message carries an id under which the log tells more."""

    @classmethod
    def of(cls, call: str, error: Exception, log: Logger) -> Self:
        """Put everything into the log, and nothing but the name of that entry into the answer."""
        incident = uuid.uuid4().hex[:12]
        log.error("%s failed, incident %s", call, incident, exc_info=error)
        return cls(
            f"the server failed on this call; its log tells more under incident {incident}",
            metadata={"incident": incident},
        )


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """How an error looks from outside: a canonical code, and a reason that stays the same between versions."""

    status: Status
    reason: str


ANSWERS: Mapping[type[QuantraError], ErrorStatus] = {
    QuantraError: ErrorStatus(Status.INTERNAL, "ERROR"),
    InvalidInputError: ErrorStatus(Status.INVALID_ARGUMENT, "INVALID_INPUT"),
    MalformedRequestError: ErrorStatus(Status.INVALID_ARGUMENT, "MALFORMED_REQUEST"),
    BarsError: ErrorStatus(Status.INVALID_ARGUMENT, "BARS_INVALID"),
    TooFewBarsError: ErrorStatus(Status.INVALID_ARGUMENT, "TOO_FEW_BARS"),
    NoUsableSymbolError: ErrorStatus(Status.INVALID_ARGUMENT, "NO_USABLE_SYMBOL"),
    ExpressionError: ErrorStatus(Status.INVALID_ARGUMENT, "EXPRESSION_INVALID"),
    FeatureMismatchError: ErrorStatus(Status.INVALID_ARGUMENT, "FEATURE_MISMATCH"),
    WindowShapeError: ErrorStatus(Status.INVALID_ARGUMENT, "WINDOW_SHAPE"),
    UnknownHorizonError: ErrorStatus(Status.INVALID_ARGUMENT, "UNKNOWN_HORIZON"),
    UnknownQuantileError: ErrorStatus(Status.INVALID_ARGUMENT, "UNKNOWN_QUANTILE"),
    UnknownFeatureError: ErrorStatus(Status.INVALID_ARGUMENT, "UNKNOWN_FEATURE"),
    CovariatesError: ErrorStatus(Status.INVALID_ARGUMENT, "COVARIATES_INVALID"),
    CovariateMissingError: ErrorStatus(Status.INVALID_ARGUMENT, "COVARIATE_MISSING"),
    UnknownCovariateError: ErrorStatus(Status.INVALID_ARGUMENT, "UNKNOWN_COVARIATE"),
    UnknownSessionError: ErrorStatus(Status.INVALID_ARGUMENT, "UNKNOWN_SESSION"),
    DuplicateIdError: ErrorStatus(Status.INVALID_ARGUMENT, "DUPLICATE_ID"),
    ConfigurationError: ErrorStatus(Status.INVALID_ARGUMENT, "CONFIGURATION_INVALID"),
    InSampleError: ErrorStatus(Status.INVALID_ARGUMENT, "IN_SAMPLE"),
    ModelNotFoundError: ErrorStatus(Status.NOT_FOUND, "MODEL_NOT_FOUND"),
    VersionNotFoundError: ErrorStatus(Status.NOT_FOUND, "VERSION_NOT_FOUND"),
    ArtifactError: ErrorStatus(Status.DATA_LOSS, "ARTIFACT_INVALID"),
    BarIncompleteError: ErrorStatus(Status.FAILED_PRECONDITION, "BAR_INCOMPLETE"),
    SessionGapError: ErrorStatus(Status.FAILED_PRECONDITION, "SESSION_GAP"),
    CalendarEndedError: ErrorStatus(Status.FAILED_PRECONDITION, "CALENDAR_ENDED"),
    BarsStaleError: ErrorStatus(Status.FAILED_PRECONDITION, "BARS_STALE"),
    ResubscribeError: ErrorStatus(Status.FAILED_PRECONDITION, "RESUBSCRIBE"),
    ExplainUnsupportedError: ErrorStatus(Status.UNIMPLEMENTED, "EXPLAIN_UNSUPPORTED"),
    UnauthenticatedError: ErrorStatus(Status.UNAUTHENTICATED, "UNAUTHENTICATED"),
    PermissionDeniedError: ErrorStatus(Status.PERMISSION_DENIED, "PERMISSION_DENIED"),
    RetryableError: ErrorStatus(Status.UNAVAILABLE, "TRY_AGAIN"),
    QueueFullError: ErrorStatus(Status.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
    RequestTooLargeError: ErrorStatus(Status.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE"),
    DeadlineExceededError: ErrorStatus(Status.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    CallCancelledError: ErrorStatus(Status.CANCELLED, "CANCELLED"),
    UnavailableError: ErrorStatus(Status.UNAVAILABLE, "UNAVAILABLE"),
    MissingPackageError: ErrorStatus(Status.FAILED_PRECONDITION, "PACKAGE_MISSING"),
    InternalError: ErrorStatus(Status.INTERNAL, "INTERNAL"),
}
"""The one table of statuses; a test holds that every error type has a row."""


def answer_of(error: QuantraError) -> ErrorStatus:
    """The row of this error's own type."""
    return ANSWERS[type(error)]


def from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> QuantraError:
    """The error that a server meant; a reason of a newer server becomes a plain QuantraError."""
    kind = next((kind for kind, answer in ANSWERS.items() if answer.reason == reason), QuantraError)
    return kind(message, metadata=metadata)
