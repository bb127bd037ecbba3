"""Our network as a model of Triton's Python backend, which joins the windows of waiting requests for one forward.

It is the same artifact on torch with one thread. Unlike our server, it checks no input and returns only quantiles.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
import triton_python_backend_utils as triton

from predictor.model import Model
from predictor.networks import Inputs
from predictor.registry import Runtime, load_model

MAX_ROWS = 256


@final
class TritonPythonModel:
    """Triton finds it by this name."""

    def initialize(self, arguments: dict[str, Any]) -> None:
        """Load the artifact that the configuration names."""
        torch.set_num_threads(1)
        folder = Path(json.loads(arguments["model_config"])["parameters"]["artifact"]["string_value"])
        model = load_model(folder, ("stock", 1), Runtime(torch.device("cpu"), MAX_ROWS))
        assert isinstance(model, Model)
        self._engine = model.engine

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Compute the quantiles of all requests in one forward."""
        sent = [[_group(request, name) for name in Inputs._fields] for request in requests]
        rows = np.cumsum([len(groups[0]) for groups in sent])
        joined = [np.concatenate(groups) if groups[0] is not None else None for groups in zip(*sent, strict=True)]
        complete = (np.zeros((rows[-1], 0), np.float32) if group is None else group for group in joined)
        values = self._engine.compute_quantiles(Inputs(*map(torch.from_numpy, complete))).numpy()
        parts = np.split(values, rows[:-1])
        return [triton.InferenceResponse([triton.Tensor("values", np.ascontiguousarray(part))]) for part in parts]


def _group(request: Any, name: str) -> Any:
    """The array of an input; None if the network does not have it."""
    tensor = triton.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()
