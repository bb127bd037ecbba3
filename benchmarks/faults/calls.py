"""Encoded requests, and the outcome of each call."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import grpc
import grpc.aio
import numpy as np

from predictor._pb import inference_pb2
from predictor._pb import prediction_pb2 as pb

PREDICT: Final = "/quantra.v1.PredictionService/Predict"
EXPLAIN: Final = "/quantra.v1.PredictionService/Explain"
STREAM: Final = "/quantra.v1.PredictionService/PredictStream"
RELOAD: Final = "/quantra.v1.ModelAdminService/ReloadModel"
INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
SERVER_FAULT: Final = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL})
NO_ANSWER: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Codes of a stopped server and of a missed deadline."""

_COLUMNS: Final = ("open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend")
_CHANNEL_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # one connection per channel
]


@final
@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call ended."""

    code: grpc.StatusCode
    body: bytes = b""
    has_details: bool = False
    """Whether the status carries google.rpc.Status, which the server adds to every error that it raises."""
    took_s: float = 0.0

    @property
    def is_bare_cancel(self) -> bool:
        """Whether gRPC cancelled the call and gave no reason."""
        return self.code is grpc.StatusCode.CANCELLED and not self.has_details


def open_channel(target: str) -> grpc.aio.Channel:
    """Open a separate connection without message size limits."""
    return grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)


async def ask(channel: grpc.aio.Channel, path: str, body: bytes, timeout_s: float = 30.0) -> CallOutcome:
    """Make one unary call; an error is returned, too."""
    start = time.perf_counter()
    call: Any = channel.unary_unary(path)(body, timeout=timeout_s)
    return await end_of(call, start)


async def end_of(call: Any, start: float) -> CallOutcome:
    """Wait for a call that started at `start` of `time.perf_counter`."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        has_details = "grpc-status-details-bin" in dict(error.trailing_metadata() or ())
        return CallOutcome(error.code(), has_details=has_details, took_s=time.perf_counter() - start)
    return CallOutcome(grpc.StatusCode.OK, answer, took_s=time.perf_counter() - start)


async def ask_all(target: str, path: str, bodies: Sequence[bytes], at_once: int, timeout_s: float) -> list[CallOutcome]:
    """Make the calls over one connection, at most `at_once` at a time."""
    slots = asyncio.Semaphore(at_once)
    async with open_channel(target) as channel:

        async def one(body: bytes) -> CallOutcome:
            async with slots:
                return await ask(channel, path, body, timeout_s)

        return await asyncio.gather(*map(one, bodies))


def count_codes(ends: Iterable[CallOutcome]) -> str:
    """Describe how often each status occurred."""
    counted = Counter(end.code.name for end in ends)
    return ", ".join(f"{count} {name}" for name, count in counted.most_common()) or "no calls"


def predict_request(*instances: pb.Instance, model: str = "") -> bytes:
    """Encode a Predict request."""
    return pb.PredictRequest(model=model, instances=instances).SerializeToString()


def infer_request(instance: pb.Instance, model: str) -> bytes:
    """Encode a request of KServe's ModelInfer with the bars of an instance."""
    panel = instance.bars
    symbols, sessions = len(panel.symbols), len(panel.session_yyyymmdd)
    names = [f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}" for day in panel.session_yyyymmdd]
    texts = b"".join(len(one).to_bytes(4, "little") + one for one in (name.encode() for name in panel.symbols))
    tensors = [(name, "FP64", (1, symbols, sessions), getattr(panel, name)) for name in _COLUMNS]
    tensors = [tensor for tensor in tensors if tensor[3]]
    tensors += [("symbol", "BYTES", (1, symbols), texts)]
    tensors += [("date", "INT64", (1, sessions), np.array(names, "datetime64[D]").astype("<i8").tobytes())]
    tensor = inference_pb2.ModelInferRequest.InferInputTensor
    return inference_pb2.ModelInferRequest(
        model_name=model,
        inputs=[tensor(name=name, datatype=kind, shape=shape) for name, kind, shape, _ in tensors],
        raw_input_contents=[values for *_, values in tensors],
    ).SerializeToString()


def session_requests(instance: pb.Instance, model: str) -> Sequence[bytes]:
    """Encode stream requests: open a session, predict meanwhile, push the last bar again, close the session."""
    requests = [
        pb.PredictStreamRequest(request_id="a", open=pb.OpenSession(session_id="s", model=model, instance=instance)),
        pb.PredictStreamRequest(request_id="b", predict=pb.StreamPredict(model=model, instance=instance)),
        pb.PredictStreamRequest(
            request_id="c", push=pb.PushBars(session_id="s", bars=_last_bar(instance.bars), flush=True)
        ),
        pb.PredictStreamRequest(request_id="d", close=pb.CloseSession(session_id="s")),
    ]
    return [request.SerializeToString() for request in requests]


def _last_bar(panel: pb.BarPanel) -> pb.BarPanel:
    last = pb.BarPanel(symbols=panel.symbols, session_yyyymmdd=panel.session_yyyymmdd[-1:])
    for name in filter(partial(getattr, panel), _COLUMNS):
        values = np.frombuffer(getattr(panel, name), "<f8").reshape(len(panel.symbols), -1)
        setattr(last, name, values[:, -1].tobytes())
    return last


# --- protobuf's wire format


def varint(value: int) -> bytes:
    """Encode a protobuf varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def nested(content: bytes, *fields: int) -> bytes:
    """Wrap content in nested length-delimited fields, outermost first."""
    for field in reversed(fields):
        content = varint(field << 3 | 2) + varint(len(content)) + content
    return content
