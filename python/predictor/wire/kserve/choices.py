"""A request's parameters: how its bars are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from predictor._pb import inference_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.instance import GapPolicy
from predictor.wire.limits import check_text

_BARS: Final[Mapping[str, str]] = {
    "allow_incomplete_last_bar": "bool_param",
    "calendar": "string_param",
    "gap_policy": "string_param",
    "max_age_sessions": "int64_param",
}
_WINDOWS: Final[Mapping[str, str]] = {"schema_hash": "string_param", "max_age_sessions": "int64_param"}
"""The parameters of a request, and the kind of each."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParameters:
    """What a caller may choose for all rows of a request."""

    allow_incomplete_last_bar: bool = False
    calendar: str = ""
    """The exchange's code of the bars; empty = unknown."""
    gap_policy: GapPolicy = GapPolicy.REFUSE
    max_age_sessions: int | None = None
    """As `Instance.max_age_sessions`."""
    schema_hash: str = ""
    """Of windows; empty = whatever the model reads."""


def choices_of(head: pb.ModelInferRequest, *, are_bars: bool) -> RequestParameters:
    """The choices in a request's parameters.

    Raises:
        MalformedRequestError: a parameter is unknown, or has a value of another kind.
        RequestTooLargeError: a text is too long.
    """
    if not head.parameters:
        return RequestParameters()
    known = _BARS if are_bars else _WINDOWS
    for name, value in head.parameters.items():
        _check(name, value, known)
    parameters = head.parameters
    return RequestParameters(
        allow_incomplete_last_bar=parameters["allow_incomplete_last_bar"].bool_param,
        calendar=_text(head, "calendar"),
        gap_policy=_policy(_text(head, "gap_policy")),
        max_age_sessions=parameters["max_age_sessions"].int64_param if "max_age_sessions" in parameters else None,
        schema_hash=_text(head, "schema_hash"),
    )


def _check(name: str, value: pb.InferParameter, known: Mapping[str, str]) -> None:
    if name not in known:
        raise MalformedRequestError(
            f"parameter {name[:80]!r} is unknown; beside these inputs there are {', '.join(known)}",
            metadata={"field": "parameters"},
        )
    kind = value.WhichOneof("parameter_choice")
    if kind != known[name]:
        raise MalformedRequestError(
            f"parameter {name}: has {kind or 'no value'}, need {known[name]}", metadata={"field": "parameters"}
        )


def _text(head: pb.ModelInferRequest, name: str) -> str:
    text = head.parameters[name].string_param if name in head.parameters else ""
    check_text(f"parameter {name}", text)
    return text


def _policy(text: str) -> GapPolicy:
    if not text:
        return GapPolicy.REFUSE
    try:
        return GapPolicy(text)
    except ValueError:
        names = ", ".join(policy.value for policy in GapPolicy)
        raise MalformedRequestError(
            f"parameter gap_policy: {text!r} is unknown; there are {names}", metadata={"field": "parameters"}
        ) from None
