"""Bars that are pushed to a session, on the wire."""

from predictor._pb import prediction_pb2 as pb
from predictor.errors import MalformedRequestError
from predictor.subscription import Push
from predictor.wire.instances import (
    decode_bars,
    decode_covariates,
    decode_policy,
    encode_bars,
    encode_covariates,
)


def encode(session_id: str, push: Push) -> pb.PushBars:
    """The message of a push to this session."""
    return pb.PushBars(
        session_id=session_id,
        bars=None if push.bars is None else encode_bars(push.bars),
        covariates=encode_covariates(push.covariates),
        flush=push.flush,
    )


def decode(message: pb.PushBars) -> Push:
    """The push of a message.

    Raises:
        MalformedRequestError: it has covariates and no bars, or one that breaks its own rules.
        RequestTooLargeError: more of anything than one request may have.
        BarsError: bars that no market can have made.
        CovariatesError: invalid covariates.
    """
    if not message.HasField("bars"):
        if message.HasField("covariates"):
            raise MalformedRequestError("covariates go with bars; push both", metadata={"field": "covariates"})
        return Push(flush=message.flush)
    bars = decode_bars(message.bars)
    return Push(
        bars=bars,
        covariates=decode_covariates(message.covariates, len(bars.symbols), len(bars.sessions)),
        flush=message.flush,
        gap_policy=decode_policy(message.bars.gap_policy) if message.bars.gap_policy else None,
        allow_incomplete_last_bar=message.bars.allow_incomplete_last_bar,
    )
