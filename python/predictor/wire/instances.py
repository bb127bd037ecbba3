"""Instances on the wire: the input, and how strictly its calendar is read."""

from collections.abc import Iterable, Mapping
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.errors import MalformedRequestError, QuantraError
from predictor.instance import GapPolicy, Instance
from predictor.wire import bars, covariates, windows
from predictor.wire.limits import check_text

_POLICIES: Final[Mapping[int, GapPolicy]] = {
    pb.GAP_POLICY_UNSPECIFIED: GapPolicy.REFUSE,
    pb.GAP_POLICY_REFUSE: GapPolicy.REFUSE,
    pb.GAP_POLICY_MASK: GapPolicy.MASK,
    pb.GAP_POLICY_IGNORE: GapPolicy.IGNORE,
}
_POLICY_NUMBERS: Final[Mapping[GapPolicy, pb.GapPolicy]] = {
    GapPolicy.REFUSE: pb.GAP_POLICY_REFUSE,
    GapPolicy.MASK: pb.GAP_POLICY_MASK,
    GapPolicy.IGNORE: pb.GAP_POLICY_IGNORE,
}


def encode(instance: Instance) -> pb.Instance:
    """The message of an instance."""
    if not isinstance(instance.input, BarPanel):
        return pb.Instance(request_id=instance.request_id, window=windows.encode(instance.input))
    panel = bars.encode(instance.input)
    panel.allow_incomplete_last_bar = instance.allow_incomplete_last_bar
    panel.gap_policy = _POLICY_NUMBERS[instance.gap_policy]
    beside = covariates.encode(instance.covariates)
    return pb.Instance(request_id=instance.request_id, bars=panel, covariates=beside)


def decode(message: pb.Instance) -> Instance:
    """The instance of a message.

    Raises:
        MalformedRequestError: it has no input, or one that breaks its own rules.
        RequestTooLargeError: more of anything than one request may have.
        BarsError: bars that no market can have made.
        CovariatesError: covariates that cannot be.
    """
    check_text("request_id", message.request_id)
    kind = message.WhichOneof("input")
    if kind == "bars":
        panel = bars.decode(message.bars)
        return Instance(
            request_id=message.request_id,
            input=panel,
            covariates=covariates.decode(message.covariates, len(panel.symbols), len(panel.sessions)),
            allow_incomplete_last_bar=message.bars.allow_incomplete_last_bar,
            gap_policy=_policy(message.bars.gap_policy),
        )
    if kind == "window":
        if message.HasField("covariates"):
            raise MalformedRequestError("covariates go with bars, not with a window", metadata={"field": "covariates"})
        return Instance(request_id=message.request_id, input=windows.decode(message.window))
    raise MalformedRequestError("the instance has no input; send bars or a window", metadata={"field": "input"})


def decode_each(messages: Iterable[pb.Instance]) -> tuple[Instance | QuantraError, ...]:
    """Each message's instance, or what is wrong with it, in order."""
    return tuple(map(_decode_or_error, messages))


def _decode_or_error(message: pb.Instance) -> Instance | QuantraError:
    try:
        return decode(message)
    except QuantraError as error:
        return error


def _policy(number: int) -> GapPolicy:
    if number not in _POLICIES:
        raise MalformedRequestError(
            f"bars.gap_policy: {number} is unknown; have 1 refuse, 2 mask, 3 ignore",
            metadata={"field": "bars.gap_policy", "value": str(number)},
        )
    return _POLICIES[number]
