"""The engine that runs small batches by ONNX Runtime and the others by torch, whichever is faster at each size."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, Self, final

import numpy as np
import torch
from torch import Tensor

from predictor.call_context import NEVER, Deadline
from predictor.errors import MissingPackageError
from predictor.inference import Engine
from predictor.networks import Inputs

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

TRIED_ROWS: Final = (1, 2, 4, 8, 16, 32)
"""Numbers of rows that are timed when a model is loaded."""
REPEATS: Final = 7


@final
class GraphEngine(Engine):
    """Runs one frozen network of independent rows on the CPU. Thread-safe, since it is immutable.

    Only `compute_quantiles` uses the graph, whose results differ from torch's by some 1e-7; torch computes everything
    else.
    """

    name = "onnxruntime"

    def __init__(self, eager: Engine, session: "InferenceSession", max_rows: int) -> None:
        """Store the parts.

        Args:
            eager: The engine of the same network.
            session: The model as `predictor.export` writes it, from `open_graph`.
            max_rows: Largest batch that the graph computes.
        """
        super().__init__(eager.network, eager.output, device=eager.device, max_rows=eager.max_rows)
        self._session = session
        self._ports = tuple(
            (port.name, Inputs._fields.index(port.name), len(port.shape) == 1) for port in session.get_inputs()
        )
        """Name of each input, its place in `Inputs`, and whether it has one value per row."""
        self.max_rows = max_rows

    @classmethod
    def timed(cls, eager: Engine, session: "InferenceSession", sample: Inputs) -> Self:
        """Use a graph up to the tried number of rows at which torch becomes faster.

        Args:
            eager: The engine of the same network.
            session: The model as `predictor.export` writes it, from `open_graph`.
            sample: Rows of inputs to time both with.
        """
        fastest = 0
        quick = cls(eager, session, TRIED_ROWS[-1])
        for rows in TRIED_ROWS:
            places = torch.arange(rows) % len(sample.location)
            inputs = Inputs(*(group.index_select(0, places) for group in sample))
            graph_s, eager_s = _time_calls(
                partial(quick.compute_quantiles, inputs), partial(eager.compute_quantiles, inputs)
            )
            if graph_s > eager_s:
                break
            fastest = rows
        return cls(eager, session, fastest)

    def compute_quantiles(self, inputs: Inputs, deadline: Deadline = NEVER) -> Tensor:
        """See `Engine.compute_quantiles`."""
        if inputs.location.shape[0] > self.max_rows:
            return super().compute_quantiles(inputs, deadline)
        deadline.check()
        arrays = ((name, inputs[place].numpy(), is_flat) for name, place, is_flat in self._ports)
        fed = {name: array[:, 0] if is_flat else array for name, array, is_flat in arrays}
        return torch.from_numpy(np.asarray(self._session.run(["values"], fed)[0]))


def open_graph(graph: bytes) -> "InferenceSession":
    """Open a graph with as many threads as torch has.

    Raises:
        MissingPackageError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("onnxruntime", "onnx", "the engine onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads must not use a core
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _time_calls(*calls: Callable[[], object]) -> list[float]:
    """Median seconds of each call, in turns, after one call to warm up."""
    seconds: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(REPEATS):
        for call, times in zip(calls, seconds, strict=True):
            begun_s = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun_s)
    return [median(times) for times in seconds]
