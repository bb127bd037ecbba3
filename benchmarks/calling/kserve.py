"""The KServe inference protocol against ours: the same windows, sent in turn to the same server."""

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.calling.load import Calls, Load, Turn
from benchmarks.calling.rates import WINDOWS, pair_rows
from benchmarks.calling.subject import Subject, window_of
from benchmarks.report import Row
from predictor._pb import inference_pb2 as pb
from predictor.instance import FeatureWindow

KSERVE: Final = "KServe windows"
REACH: Final = 0.9
_DATATYPES: Final = {"float32": "FP32", "float64": "FP64", "bool": "BOOL", "int64": "INT64"}
_GROUPS: Final = ("observed", "known", "static", "mask", "location", "scale", "anchor_price")


def infer_bytes(subject: Subject, without: Collection[str] = ()) -> bytes:
    """Encode the windows of `Subject.asked_with_windows` as a KServe request."""
    window = window_of(subject.bars, subject.pipeline)
    tensors = {name: values for name, values in _tensors(window).items() if name not in without}
    request = pb.ModelInferRequest(
        model_name="stock",
        inputs=[
            pb.ModelInferRequest.InferInputTensor(name=name, datatype=_DATATYPES[values.dtype.name], shape=values.shape)
            for name, values in tensors.items()
        ],
        raw_input_contents=[values.tobytes() for values in tensors.values()],
    )
    return request.SerializeToString()


def _tensors(window: FeatureWindow) -> dict[str, NDArray[np.generic]]:
    """The groups that are not empty, and the day of the last bar, which `Predict` also sends."""
    last = np.array([[str(window.as_of_session)]], "datetime64[D]").astype(np.int64)
    groups = {name: getattr(window, name) for name in _GROUPS}
    return {**{name: values for name, values in groups.items() if values.size}, "date": last}


def kserve_rows(load: Load, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Calls per second of both protocols."""

    def run(request: str) -> Callable[[int], Calls]:
        return lambda many: load.run(Turn(request, many, seconds))

    return pair_rows("KServe / ours, windows in", run(KSERVE), run(WINDOWS), REACH, rounds, judged=judged)
