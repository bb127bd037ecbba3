"""Writing of ONNX files: tracing on the CPU, comparison with the model, atomic write."""

import copy
import json
import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from predictor import artifact
from predictor.errors import ArtifactError, ConfigurationError, InternalError, MissingPackageError
from predictor.export.modules import ExportModule, replace_rnns
from predictor.golden import prepare_golden_inputs
from predictor.model import Model, build_output_map
from predictor.networks import Inputs, TreesForecaster
from predictor.registry import Runtime, load_single
from predictor.replacement import check_file, replace_file

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


PACKAGES: Final = ("onnx", "onnxscript", "onnxruntime")
_LOGGERS: Final = ("torch.onnx", "onnxscript")
ROWS: Final = "rows"
"""Name of the dynamic dimension."""
TOLERANCES: Final = {"values": 1e-6, "scores": 1e-5}
"""Largest difference from the model: values in the target's unit, scores without a unit in float32."""
TRIED_ROWS: Final = (1, 2, 7)
"""Numbers of rows to check a new file with, because the graph must not treat the traced one as a constant."""
FORMAT: Final = "1"
"""Increases when the graph's inputs, outputs or metadata change their meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPort:
    """An input or output of the graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """Sizes; a dynamic size is a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A written file, with the inputs and outputs of its graph."""

    file: Path
    size: int
    """Bytes."""
    opset: int
    """Version of ONNX's operators that the file needs."""
    inputs: tuple[GraphPort, ...]
    absent: tuple[str, ...]
    """Groups of inputs without features, which the graph does not have."""
    outputs: tuple[GraphPort, ...]
    metadata: Mapping[str, str]
    """The file's metadata; lists are JSON."""
    difference: float
    """Largest difference from the model's forecasts of the golden instance, in the target's unit."""


def export_onnx(folder: Path, file: Path) -> ExportedFile:
    """Write the model of an artifact as an ONNX file.

    The inputs of the graph are the groups of `predictor.networks.Inputs` that the model has features in, with any
    number of rows. The output `values`, float64 [rows, horizons, quantiles], holds calibrated quantiles in the
    target's unit, non-decreasing along the last axis. A network that reads several stocks takes the rows as one panel.
    It has an additional input `nodes` (index of each row in the universe of the metadata, -1 = unknown stock) and an
    additional output `scores`.

    Args:
        folder: folder of the artifact.
        file: new file.

    Raises:
        ConfigurationError: `file` exists, its folder is missing or not writable, or the artifact is an ensemble, a
            model of trees or an adopted model.
        MissingPackageError: a package of the extra `onnx` is not installed.
        ArtifactError: the artifact is damaged.
        OSError: the file cannot be written.
    """
    for package in PACKAGES:
        if find_spec(package) is None:
            raise MissingPackageError.of(package, "onnx", "writing an ONNX file")
    if file.exists():
        raise ConfigurationError(f"{file} exists already; nothing is overwritten: choose another --onnx")
    check_file(file)
    if artifact.is_ensemble(folder):
        raise ConfigurationError(
            f"{folder} is an ensemble, whose members may read different inputs; export each member separately: "
            f"{folder}/{artifact.MEMBERS}/NAME"
        )
    with artifact.name_folder_in_errors(folder):
        model = load_single(folder, (folder.resolve().parent.name, 0), Runtime(torch.device("cpu"), max_rows=256))
    if isinstance(model.engine.network, TreesForecaster):
        raise ConfigurationError(
            f"{folder} is a model of trees, whose thresholds ONNX would round; serve it with quantra serve instead"
        )
    if model.manifest.kind.is_adopted:
        raise ConfigurationError(
            f"{folder} is an adopted {model.manifest.kind.name} model, which only its own package runs; serve it with "
            "quantra serve instead"
        )
    module = ExportModule(
        replace_rnns(copy.deepcopy(model.engine.network)),
        build_output_map(model.manifest),
        model.pipeline.sizes,
        per_horizon=model.pipeline.normaliser.is_per_horizon,
    )
    proto, inputs = _trace_graph(module.eval(), model), prepare_golden_inputs(model)
    difference = _measure_difference(proto, module, model, inputs)
    content = proto.SerializeToString()
    replace_file(file, content)
    return ExportedFile(
        file=file,
        size=len(content),
        opset=next(opset.version for opset in proto.opset_import if not opset.domain),
        inputs=tuple(map(_make_port, proto.graph.input)),
        absent=module.absent,
        outputs=tuple(map(_make_port, proto.graph.output)),
        metadata={entry.key: entry.value for entry in proto.metadata_props},
        difference=difference,
    )


# --- the graph


def _trace_graph(module: ExportModule, model: Model) -> "ModelProto":
    proto = _trace(module, prepare_golden_inputs(model))
    # name the dynamic dimension, which the exporter numbers; runtimes infer intermediate shapes from the inputs
    proto.graph.ClearField("value_info")
    for value in (*proto.graph.input, *proto.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = ROWS
    # Drop the exporter's notes on each node, which contain stack traces with local paths.
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for part in (proto, proto.graph):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    proto.producer_name, proto.producer_version = "quantra", FORMAT
    for key, value in _make_metadata(module, model).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return proto


def _trace(module: ExportModule, inputs: Inputs) -> "ModelProto":
    """Trace the graph with torch's exporter.

    Parameters require gradients during tracing; otherwise torch's Transformer layers take a fused path that the
    exporter does not support.
    """
    from onnxscript.optimizer import fold_constants, remove_unused_nodes

    module.network.requires_grad_(requires_grad=True)
    arguments = module.arguments(inputs, torch.zeros(len(inputs.location), dtype=torch.int64))
    rows = torch.export.Dim(ROWS, min=1)
    shapes = (tuple({0: rows} for _ in arguments),)
    with _silence_exporter(), torch.enable_grad():
        program = torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)
        exported = torch.onnx.export(
            program,
            arguments,
            dynamo=True,
            optimize=False,  # it would round an epsilon of 1e-12 to 0 and drop it
            input_names=module.input_names,
            output_names=module.output_names,
            verbose=False,
        )
        if exported is None:
            raise InternalError("torch.onnx.export returned no program; this version of torch cannot export networks")
        fold_constants(exported.model)
        remove_unused_nodes(exported.model)
    return exported.model_proto


@contextmanager
def _silence_exporter() -> Generator[None]:
    """Silence warnings of torch's exporter and its optimizer, which concern their internals and unused packages.

    The comparison with the model verifies the result.
    """
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _make_metadata(module: ExportModule, model: Model) -> dict[str, str]:
    manifest, features = model.manifest, model.pipeline.features
    metadata = {
        "format": FORMAT,
        "kind": manifest.kind.name,
        "schema_hash": model.pipeline.features.schema_hash,
        "weights_hash": model.identity.weights_hash,
        "target_kind": manifest.target.kind.value,
        "lag": str(manifest.target.lag),
        "horizons": json.dumps(manifest.target.horizons),
        "quantiles": json.dumps(manifest.quantiles),
        "encoder_length": str(manifest.encoder_length),
        "future_length": str(manifest.target.reach),
        "observed_features": json.dumps(features.features.names),
        "known_features": json.dumps(features.known_columns),
        "static_features": json.dumps(features.statics.names),
        "static_widths": json.dumps(features.statics.widths),
        "absent_groups": json.dumps(module.absent),
    }
    return metadata | ({"universe": json.dumps(manifest.universe)} if module.across_stocks else {})


def _make_port(value: "ValueInfoProto") -> GraphPort:
    from onnx.helper import tensor_dtype_to_np_dtype

    tensor = value.type.tensor_type
    shape = tuple(size.dim_param or size.dim_value for size in tensor.shape.dim)
    return GraphPort(name=value.name, dtype=str(tensor_dtype_to_np_dtype(tensor.elem_type)), shape=shape)


# --- the check


def _measure_difference(proto: "ModelProto", module: ExportModule, model: Model, inputs: Inputs) -> float:
    """Largest difference between the file's and the model's values.

    Raises:
        ArtifactError: a difference of values or scores exceeds its tolerance.
    """
    import onnx
    import onnxruntime

    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    differences: dict[str, list[float]] = {name: [] for name in module.output_names}
    for rows in TRIED_ROWS:
        batch, indices = _repeat(inputs, rows), torch.arange(rows) - 1
        # first an unknown stock, then each stock of the universe once, then unknown stocks
        nodes = torch.where(indices < len(model.manifest.universe), indices, -1)
        feeds = zip(module.input_names, module.arguments(batch, nodes), strict=True)
        outputs = session.run(list(module.output_names), {name: tensor.numpy() for name, tensor in feeds})
        if module.across_stocks:
            panel = model.engine.compute_panel(batch, nodes)
            expected = model.engine.calibrate(panel.quantiles, batch.location, batch.scale), panel.scores
        else:
            expected = (model.engine.compute_quantiles(batch),)
        for name, actual, reference in zip(module.output_names, map(np.asarray, outputs), expected, strict=True):
            distances = np.abs(actual.astype(np.float64) - reference.numpy().astype(np.float64))
            differences[name].append(float(distances.max()))  # NaN if either contains NaN
    largest = {name: float(np.max(difference)) for name, difference in differences.items()}
    for name, difference in largest.items():
        if not difference <= TOLERANCES[name]:  # also true for NaN
            raise ArtifactError(
                f"the graph's {name} differ from the model's by {difference:.3g}, allowed is {TOLERANCES[name]:g}; "
                "nothing was written: these versions of torch and onnxruntime compute differently"
            )
    return largest["values"]


def _repeat(inputs: Inputs, rows: int) -> Inputs:
    """Repeat the rows cyclically to `rows` rows."""
    indices = torch.arange(rows) % len(inputs.location)
    return Inputs(*(group.index_select(0, indices) for group in inputs))
