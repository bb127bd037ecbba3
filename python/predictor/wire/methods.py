"""Explanation methods on the wire."""

from collections.abc import Mapping
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.errors import ExplainUnsupportedError
from predictor.instance import INTEGRATED_GRADIENTS

_NAMES: Final[Mapping[int, str]] = {
    pb.EXPLAIN_METHOD_UNSPECIFIED: INTEGRATED_GRADIENTS,
    pb.EXPLAIN_METHOD_INTEGRATED_GRADIENTS: INTEGRATED_GRADIENTS,
}
_NUMBERS: Final[Mapping[str, pb.ExplainMethod]] = {
    INTEGRATED_GRADIENTS: pb.EXPLAIN_METHOD_INTEGRATED_GRADIENTS,
}


def encode(name: str) -> pb.ExplainMethod:
    """The number of a method.

    Raises:
        ExplainUnsupportedError: the wire knows no such method.
    """
    if name not in _NUMBERS:
        raise _unsupported(repr(name[:40]))
    return _NUMBERS[name]


def decode(number: int) -> str:
    """The method of a number; 0 means integrated gradients.

    Raises:
        ExplainUnsupportedError: the wire knows no such method.
    """
    if number not in _NAMES:
        raise _unsupported(str(number))
    return _NAMES[number]


def _unsupported(method: str) -> ExplainUnsupportedError:
    return ExplainUnsupportedError(
        f"the explanation method {method} is unknown; have {', '.join(_NUMBERS)}", metadata={"method": method}
    )
