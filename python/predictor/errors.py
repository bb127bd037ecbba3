"""All error types, and the table that maps each to its status on every interface.

    QuantraError
    ├── InvalidInputError              the caller sent invalid input
    │   ├── MalformedRequestError      the request cannot be decoded or violates the protocol
    │   ├── BarsError                  a bar is impossible
    │   ├── TooFewBarsError            the history is shorter than the model reads
    │   ├── NoUsableSymbolError        no symbol of the panel can be forecast
    │   ├── ExpressionError            a feature expression does not parse or is not allowed
    │   ├── FeatureMismatchError       feature windows have another schema than the model
    │   ├── WindowShapeError           a feature window has another shape than the model reads
    │   ├── UnknownHorizonError        the model does not forecast this horizon
    │   ├── UnknownQuantileError       the model does not forecast this quantile
    │   ├── UnknownFeatureError        the model does not read this feature
    │   ├── CovariatesError            covariates are malformed
    │   ├── CovariateMissingError      a covariate that the model reads is missing
    │   ├── UnknownCovariateError      the model does not read this covariate
    │   ├── UnknownSessionError        the stream has no such open session
    │   ├── DuplicateIdError           the id is in use by another request or session of the stream
    │   └── ConfigurationError         settings are invalid or contradict each other
    │       └── InSampleError          an evaluation covers days that the model has seen
    ├── ModelNotFoundError             there is no model of that name
    ├── VersionNotFoundError           the model has no such version or alias
    ├── ArtifactError                  the artifact is damaged, incomplete, foreign or too new
    ├── LedgerError                    the ledger is missing, damaged, foreign, too new or cannot be written
    ├── NoLedgerError                  the server has no ledger
    ├── LifecycleUnavailableError      the server cannot compare or promote versions
    ├── BarIncompleteError             the last bar's session has not closed yet
    ├── BarSuspectError                bars that contradict the history of their symbol
    ├── SessionGapError                sessions are missing between the bars
    ├── CalendarEndedError             a date is outside the artifact's calendar
    ├── BarsStaleError                 the last bar is older than allowed
    ├── ResubscribeError               the session cannot continue; open it again with its full history
    ├── ExplainUnsupportedError        the model does not support this explanation method
    ├── UnauthenticatedError           the token is missing or unknown
    ├── PermissionDeniedError          the token lacks the role that the call needs
    ├── RetryableError                 retrying the same call may succeed
    │   ├── QueueFullError             the server has too much work
    │   └── UnavailableError           the server is unreachable or is stopping
    ├── RequestTooLargeError           the request has more rows or bytes than allowed
    ├── DeadlineExceededError          the deadline passed before the response was ready
    ├── CallCancelledError             the caller cancelled the call
    ├── MissingPackageError            an optional package is not installed
    └── InternalError                  a bug of Quantra; details are in the log

Every message says what is wrong, with which value, and what to do. `metadata` holds the same facts for programs.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from logging import Logger
from typing import Final, Self


def format_date(day: int) -> str:
    """Format a date yyyymmdd for messages, as 2024-03-28."""
    return f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"


SIGNIFICANT: Final = 4
"""Digits of a price below 1."""


def format_price(price: float) -> str:
    """A price for people: two decimals, or four significant digits below 1, such as 202.94 and 0.00001234."""
    if not 0 < abs(price) < 1:
        return f"{price:,.2f}"
    return f"{price:.{SIGNIFICANT - 1 - math.floor(math.log10(abs(price)))}f}"


MAX_LISTED: Final = 5


def format_names(names: Sequence[str], count: int = 0) -> str:
    """Join the first MAX_LISTED names for messages, with the number of the others; `count` if `names` is truncated."""
    rest_count = max(len(names), count) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {rest_count} more" if rest_count > 0 else "")


def format_count(count: int, noun: str) -> str:
    """A number and its noun, such as `1 session` or `2 sessions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class Status(StrEnum):
    """gRPC's canonical codes by name, also for interfaces that do not use gRPC."""

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
    """Base class of all errors. `metadata` repeats the facts of the message for programs."""

    def __init__(self, message: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})

    def without_frames(self) -> Self:
        """Drop the traceback and the context, whose frames keep the request in memory until garbage collection."""
        self.__context__ = None
        return self.with_traceback(None)


class InvalidInputError(QuantraError):
    """The caller sent invalid input; retrying the same call fails again."""


class MalformedRequestError(InvalidInputError):
    """The request cannot be decoded or violates the protocol."""


class BarsError(InvalidInputError):
    """A bar is impossible, or a table does not hold daily bars."""

    @classmethod
    def at(cls, symbol: str, session: int, field: str, value: float, rule: str) -> Self:
        """The error for one cell that breaks a rule; `session` is yyyymmdd."""
        day = format_date(session)
        return cls(
            f"{symbol} {day}: {field} is {value:g}, but {rule}",
            metadata={"symbol": symbol, "date": day, "field": field, "value": repr(float(value))},
        )


class BarsWarning(UserWarning):
    """A table of bars has a doubtful property, for example rows that were dropped."""


class TooFewBarsError(InvalidInputError):
    """The history of a symbol is shorter than the model reads; `metadata` has `symbol`, `have` and `need`."""

    @classmethod
    def of(cls, symbol: str, *, have: int, need: int, unit: str, best: int) -> Self:
        """The error for `have` of `need` units, such as "sessions"; `best` is the recommended number of sessions."""
        return cls(
            f"{symbol}: have {have} {unit}, need {need}; send earlier bars too, ideally {best} sessions",
            metadata={"symbol": symbol, "have": str(have), "need": str(need)},
        )


class NoUsableSymbolError(InvalidInputError):
    """No symbol of the panel can be forecast."""


class ExpressionError(InvalidInputError):
    """A feature expression does not parse or is not allowed; `metadata["position"]` counts from 0."""

    @classmethod
    def at(cls, text: str, position: int, problem: str) -> Self:
        """The error for one position; the message shows the expression with a caret below it."""
        line = " ".join(text.split("\n"))
        start = max(0, position - 60)
        pointer = " " * (position - start) + "^"
        excerpt = line[start : start + 120]
        return cls(
            f"{problem} (column {position + 1})\n  {excerpt}\n  {pointer}",
            metadata={"position": str(position), "problem": problem},
        )


class FeatureMismatchError(InvalidInputError):
    """Feature windows have another schema than the model."""


class WindowShapeError(InvalidInputError):
    """A feature window has another shape than the model reads."""


class UnknownHorizonError(InvalidInputError):
    """The model does not forecast this horizon."""


class UnknownQuantileError(InvalidInputError):
    """The model does not forecast this quantile."""


class UnknownFeatureError(InvalidInputError):
    """The model does not read this feature."""


class CovariatesError(InvalidInputError):
    """Covariates are malformed: a row of a file is invalid, or arrays match neither the bars nor each other."""


class CovariateMissingError(InvalidInputError):
    """A covariate that the model reads is missing; `metadata["covariate"]` names it."""


class UnknownCovariateError(InvalidInputError):
    """The model does not read this covariate; `metadata["covariate"]` names it."""


class UnknownSessionError(InvalidInputError):
    """The stream has no such open session."""


class DuplicateIdError(InvalidInputError):
    """The id is in use by another request or open session of the stream."""


class ConfigurationError(InvalidInputError):
    """Settings are invalid or contradict each other."""


class InSampleError(ConfigurationError):
    """An evaluation covers days on which the model was trained, selected or calibrated."""


class ModelNotFoundError(QuantraError):
    """There is no model of that name; the message lists the existing models."""


class VersionNotFoundError(QuantraError):
    """The model has no such version or alias; the message lists the existing ones."""


class ArtifactError(QuantraError):
    """The artifact is damaged, incomplete, foreign or too new; the message names the file and the cause."""

    @classmethod
    def of(cls, file: str, problem: str) -> Self:
        """The error for one file, named relative to the artifact's folder."""
        return cls(f"{file}: {problem}", metadata={"file": file})


class LedgerError(QuantraError):
    """The ledger is missing, damaged, foreign, too new or cannot be written; the message begins with its address."""

    def without_address(self) -> "LedgerError":
        """The error for clients and logs, which must not show where the ledger is."""
        return LedgerError(f"the ledger: {self.message.removeprefix(self.metadata.get('file', '') + ': ')}")


class NoLedgerError(QuantraError):
    """The server has no ledger."""


class LifecycleUnavailableError(QuantraError):
    """The server cannot compare or promote versions."""


class BarIncompleteError(QuantraError):
    """The last bar's session has not closed yet, so its close is not final."""


class BarSuspectError(QuantraError):
    """Bars that contradict the history of their symbol.

    `metadata` has `symbol`, `date`, `field`, `value`, and `low` and `high`, the range that its other bars suggest.
    """


class SessionGapError(QuantraError):
    """Sessions are missing between the bars."""


class CalendarEndedError(QuantraError):
    """A date is outside the artifact's calendar."""


class BarsStaleError(QuantraError):
    """The last bar is older than allowed; `metadata` has `have` and `most`, in sessions of the model's calendar."""

    @classmethod
    def of(cls, last: int, *, have: int, limit: int) -> Self:
        """The error for bars whose `last` session (yyyymmdd) is `have` sessions old, with at most `limit` allowed."""
        return cls(
            f"the last bar is of {format_date(last)}, and {have} sessions have closed since, but at most {limit} may; "
            "send newer bars, or allow older ones",
            metadata={"date": format_date(last), "have": str(have), "most": str(limit)},
        )


class ResubscribeError(QuantraError):
    """A session of a stream cannot continue; open it again with its full history."""


class ExplainUnsupportedError(QuantraError):
    """The model does not support this explanation method; the message lists the supported ones."""


class UnauthenticatedError(QuantraError):
    """The token is missing or unknown."""


class PermissionDeniedError(QuantraError):
    """The token lacks the role that the call needs; `metadata["role"]` names it."""


class RetryableError(QuantraError):
    """The call changed nothing, and retrying it may succeed."""


class QueueFullError(RetryableError):
    """The server has too much work; `metadata["retry_after_ms"]` is the retry delay."""

    @classmethod
    def of(cls, items: str, have: int, limit: int, *, retry_after_s: float = 0.1) -> Self:
        """The error for `have` items, such as "changes wait", with at most `limit` allowed."""
        return cls(
            f"{have} {items} already, at most {limit}; retry in a moment",
            metadata={"have": str(have), "most": str(limit), "retry_after_ms": str(round(1000 * retry_after_s))},
        )

    @property
    def retry_after_s(self) -> float:
        """The retry delay in seconds; 0.1 if the server sent none."""
        delay = self.metadata.get("retry_after_ms", "")
        return int(delay) / 1000 if delay.isdecimal() else 0.1


class UnavailableError(RetryableError):
    """The server is unreachable or is stopping."""


class RequestTooLargeError(QuantraError):
    """The request has more rows or bytes than allowed."""


class DeadlineExceededError(QuantraError):
    """The deadline passed before the response was ready."""


class CallCancelledError(QuantraError):
    """The caller cancelled the call before the response was ready."""


class MissingPackageError(QuantraError):
    """An optional package is not installed."""

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> Self:
        """The error for a missing package, naming the extra that installs it."""
        return cls(
            f"{purpose} needs the package {package}: pip install 'quantra[{extra}]'",
            metadata={"package": package, "extra": extra},
        )


class InternalError(QuantraError):
    """A bug of Quantra. The message has the id of the log entry with the details."""

    @classmethod
    def of(cls, call: str, error: Exception, log: Logger) -> Self:
        """Log the error with a new incident id, and return an error that reveals only this id."""
        incident = uuid.uuid4().hex[:12]
        log.error("%s failed, incident %s", call, incident, exc_info=error)
        return cls(
            f"the server failed on this call; see incident {incident} in its log",
            metadata={"incident": incident},
        )


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """The status of an error type: a canonical code, and a reason that is stable across versions."""

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
    LedgerError: ErrorStatus(Status.FAILED_PRECONDITION, "LEDGER_UNAVAILABLE"),
    NoLedgerError: ErrorStatus(Status.FAILED_PRECONDITION, "NO_LEDGER"),
    LifecycleUnavailableError: ErrorStatus(Status.FAILED_PRECONDITION, "LIFECYCLE_UNAVAILABLE"),
    BarIncompleteError: ErrorStatus(Status.FAILED_PRECONDITION, "BAR_INCOMPLETE"),
    BarSuspectError: ErrorStatus(Status.FAILED_PRECONDITION, "BAR_SUSPECT"),
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
"""The status of every error type; a test checks that none is missing."""


def get_error_status(error: QuantraError) -> ErrorStatus:
    """The status of an error."""
    return ANSWERS[type(error)]


def restore_error(reason: str, message: str, metadata: Mapping[str, str]) -> QuantraError:
    """Build the error that a server sent; an unknown reason of a newer server becomes a plain QuantraError."""
    kind = next((kind for kind, answer in ANSWERS.items() if answer.reason == reason), QuantraError)
    return kind(message, metadata=metadata)
