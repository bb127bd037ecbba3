"""Conversion of pushes to a session."""

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
    """Encode a push to a session."""
    return pb.PushBars(
        session_id=session_id,
        bars=None if push.bars is None else encode_bars(push.bars),
        covariates=encode_covariates(push.covariates),
        flush=push.flush,
    )


def decode(message: pb.PushBars) -> Push:
    """Decode a push.

    Raises:
        MalformedRequestError: it has covariates but no bars, or a field is malformed.
        RequestTooLargeError: the request exceeds a limit.
        BarsError: the bars are invalid.
        CovariatesError: the covariates are invalid.
    """
    if not message.HasField("bars"):
        if message.HasField("covariates"):
            raise MalformedRequestError("covariates need bars; push both", metadata={"field": "covariates"})
        return Push(flush=message.flush)
    bars = decode_bars(message.bars)
    return Push(
        bars=bars,
        covariates=decode_covariates(message.covariates, len(bars.symbols), len(bars.sessions)),
        flush=message.flush,
        gap_policy=decode_policy(message.bars.gap_policy) if message.bars.gap_policy else None,
        allow_incomplete_last_bar=message.bars.allow_incomplete_last_bar,
        accept_suspect_bars=message.bars.accept_suspect_bars,
    )
