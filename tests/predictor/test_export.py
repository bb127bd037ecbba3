"""ONNX export: the model's numbers, metadata, and atomic writing."""

import importlib.util
import json
import logging
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from logging.handlers import BufferingHandler
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from artifacts import SMALL, UNIVERSE, recent_bars, save_artifact, save_small_artifact, small_model
from ensembles import artifact_of, save_ensemble
from numpy.typing import NDArray

from predictor.artifact import Artifact
from predictor.cli import app, run
from predictor.errors import ArtifactError, ConfigurationError, MissingPackageError
from predictor.export import ExportedFile, export_onnx, onnx_file
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import Instance
from predictor.networks import KINDS, Inputs, Target, TargetKind

pytestmark = pytest.mark.slow

VOLATILITY = Target(kind=TargetKind.LOG_VOLATILITY, lag=1)
EXPORTED = [kind for kind in KINDS if kind not in {"garch", "trees"}]
"""HAR and GARCH share one network with an external scale; trees are not exported."""
SAME = 1e-6
"""Largest difference on returns."""


@dataclass(frozen=True)
class ExportedModel:
    """A model and its ONNX file."""

    made: Artifact
    exported: ExportedFile
    logged: tuple[str, ...]
    """Warnings during the export."""

    def run(self, inputs: Inputs, nodes: NDArray[np.int64] | None = None) -> list[NDArray[np.float64]]:
        """Outputs of the ONNX file."""
        session = onnxruntime.InferenceSession(self.exported.file, providers=["CPUExecutionProvider"])
        given = {name: group.numpy() for name, group in inputs._asdict().items()}
        given |= {} if nodes is None else {"nodes": nodes}
        if not self.made.pipeline.normaliser.is_per_horizon:
            given |= {name: given[name][:, 0] for name in ("location", "scale")}
        return list(map(np.asarray, session.run(None, {port.name: given[port.name] for port in self.exported.inputs})))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("artifacts")
    return {kind: save_artifact(folder / kind / "1", artifact_of(kind)) for kind in ("lstm", "graph")}


@pytest.fixture(scope="module", params=EXPORTED)
def exported_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ExportedModel:
    made = artifact_of(request.param, target=VOLATILITY if request.param == "gru" else None)
    folder = save_artifact(tmp_path_factory.mktemp(request.param) / "1", made)
    handler = BufferingHandler(1000)
    logging.getLogger().addHandler(handler)
    try:
        exported = export_onnx(folder, folder.parent / "model.onnx")
    finally:
        logging.getLogger().removeHandler(handler)
    logged = (record.getMessage() for record in handler.buffer if record.levelno >= logging.WARNING)
    return ExportedModel(made, exported, tuple(logged))


def test_every_kind_of_network_is_exported() -> None:
    assert set(SMALL) == set(KINDS)


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_the_file_gives_the_models_numbers(exported_model: ExportedModel, rows: int) -> None:
    model, inputs = small_model(exported_model.made), _rows(exported_model.made, rows)
    nodes = np.resize(np.array([-1], np.int64), rows)
    nodes[: len(UNIVERSE)] = np.arange(len(UNIVERSE))[:rows]
    found = exported_model.run(inputs, nodes)
    if not model.manifest.kind.is_panel_model:
        np.testing.assert_allclose(found[0], model.engine.compute_quantiles(inputs).numpy(), rtol=0, atol=SAME)
        return
    expected = model.engine.compute_panel(inputs, torch.from_numpy(nodes))
    values = model.engine.calibrate(expected.quantiles, inputs.location, inputs.scale)
    np.testing.assert_allclose(found[0], values.numpy(), rtol=0, atol=SAME)
    np.testing.assert_allclose(found[1], expected.scores.numpy(), rtol=0, atol=1e-5)


def test_the_file_answers_bars_as_the_served_model_does(exported_model: ExportedModel) -> None:
    model = small_model(exported_model.made)
    prepared = model.prepare(Instance(input=recent_bars(*UNIVERSE)), AFTER_ALL_SESSIONS)
    values = exported_model.run(prepared.inputs, np.arange(4))[0]
    np.testing.assert_allclose(values, model.forecast([prepared])[0].values, rtol=0, atol=SAME)
    assert values.dtype == np.float64


def test_a_model_of_trees_is_not_exported(tmp_path: Path) -> None:
    folder = save_small_artifact(tmp_path / "trees" / "1", "trees")
    with pytest.raises(ConfigurationError, match="is a model of trees, whose thresholds ONNX would round"):
        export_onnx(folder, tmp_path / "trees.onnx")


def test_the_file_says_what_it_is(exported_model: ExportedModel) -> None:
    said, manifest = exported_model.exported.metadata, exported_model.made.manifest
    assert said["schema_hash"] == exported_model.made.pipeline.features.schema_hash
    assert len(said["weights_hash"]) == 64
    target = manifest.target
    assert (said["kind"], said["target_kind"], said["lag"]) == (manifest.kind.name, target.kind.value, str(target.lag))
    assert json.loads(said["horizons"]) == [1, 5, 10, 20]
    assert json.loads(said["quantiles"]) == [0.1, 0.5, 0.9]
    assert (said["encoder_length"], said["future_length"]) == ("60", str(20 + target.lag))
    assert json.loads(said["observed_features"]) == list(exported_model.made.pipeline.features.features.names)
    assert len(json.loads(said["known_features"])) == 5
    assert json.loads(said["absent_groups"]) == ["static"] == list(exported_model.exported.absent)
    assert json.loads(said.get("universe", "[]")) == list(manifest.universe)


def test_every_port_has_a_free_number_of_rows(exported_model: ExportedModel) -> None:
    ports = {
        port.name: (port.dtype, port.shape)
        for port in (*exported_model.exported.inputs, *exported_model.exported.outputs)
    }
    assert ports["observed"] == ("float32", ("rows", 60, 23))
    assert ports["known"] == ("float32", ("rows", 80 + exported_model.made.manifest.target.lag, 5))
    assert ports["mask"] == ("bool", ("rows", 60, 23))
    levels = ("rows", 4) if exported_model.made.pipeline.normaliser.is_per_horizon else ("rows",)
    assert ports["location"] == ports["scale"] == ("float64", levels)
    assert ports["values"] == ("float64", ("rows", 4, 3))
    assert "static" not in ports
    assert ("nodes" in ports) == ("scores" in ports) == exported_model.made.manifest.kind.is_panel_model


def test_the_file_names_no_path_of_the_machine_that_made_it(exported_model: ExportedModel) -> None:
    text = exported_model.exported.file.read_bytes()
    assert str(Path(onnx_file.__file__).parents[2]).encode() not in text
    assert str(Path(torch.__file__).parent).encode() not in text


def test_the_file_is_sound_and_written_whole(exported_model: ExportedModel) -> None:
    onnx.checker.check_model(onnx.load(exported_model.exported.file), full_check=True)
    assert exported_model.exported.file.stat().st_size == exported_model.exported.size
    assert sorted(path.name for path in exported_model.exported.file.parent.iterdir()) == ["1", "model.onnx"]


# --- refusals, before a network is traced unless noted


def test_nobody_is_told_what_the_exporter_thinks_of_its_own_parts(exported_model: ExportedModel) -> None:
    assert exported_model.logged == ()


def test_a_file_is_never_overwritten(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(ConfigurationError, match="exists already; nothing is overwritten"):
        export_onnx(folders["lstm"], tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "mine"


def test_a_folder_that_does_not_exist_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist; create it first"):
        export_onnx(folders["lstm"], tmp_path / "nowhere" / "model.onnx")


def test_a_missing_package_is_named_with_its_extra(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str) -> ModuleSpec | None:
        return None if name == "onnxscript" else find_spec(name)

    monkeypatch.setattr(onnx_file, "find_spec", without)
    with pytest.raises(MissingPackageError, match=r"onnxscript: pip install 'quantra\[onnx\]'"):
        export_onnx(folders["lstm"], tmp_path / "model.onnx")


def test_a_damaged_artifact_is_not_exported(tmp_path: Path) -> None:
    folder = save_artifact(tmp_path / "1", artifact_of("lstm"))
    (folder / "features.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"1/features\.json: has 2 bytes"):
        export_onnx(folder, tmp_path / "model.onnx")


def test_an_ensemble_is_exported_member_by_member(folders: dict[str, Path], tmp_path: Path) -> None:
    save_artifact(tmp_path / "other", artifact_of("gru"))
    joint = save_ensemble(tmp_path / "joint", {"a": folders["lstm"], "b": tmp_path / "other"})
    with pytest.raises(ConfigurationError, match=r"is an ensemble.*joint/members/NAME"):
        export_onnx(joint, tmp_path / "model.onnx")


def test_a_graph_of_another_model_is_not_written(
    exported_model: ExportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, target = exported_model.made.manifest.kind.name, exported_model.made.manifest.target
    other = save_artifact(tmp_path / "other", artifact_of(kind, seed=1, target=target))
    _trace_nothing(monkeypatch, exported_model)
    with pytest.raises(ArtifactError, match="the graph's values differ from the model's by"):
        export_onnx(other, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


# --- the command


def test_the_command_says_what_it_wrote(
    exported_model: ExportedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _trace_nothing(monkeypatch, exported_model)
    file = tmp_path / "model.onnx"
    with pytest.raises(SystemExit) as ended:
        run(app, ["export", str(exported_model.exported.file.parent / "1"), "--onnx", str(file), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (ended.value.code or 0, told["file"], told["size"]) == (0, str(file), file.stat().st_size)
    assert told["metadata"]["kind"] == exported_model.made.manifest.kind.name
    assert 0 <= told["difference"] <= SAME
    assert told["absent"] == ["static"]


def test_the_command_tells_people_what_the_graph_reads(
    exported_model: ExportedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _trace_nothing(monkeypatch, exported_model)
    with pytest.raises(SystemExit):
        run(app, ["export", str(exported_model.exported.file.parent / "1"), "--onnx", str(tmp_path / "model.onnx")])
    told = capsys.readouterr().out
    assert "float32 [rows, 60, 23]" in told
    assert "The model has no static features" in told
    assert exported_model.made.pipeline.features.schema_hash[:20] in told


def test_the_command_refuses_in_one_line(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        run(app, ["export", str(folders["lstm"]), "--onnx", str(tmp_path / "model.onnx")])
    assert ended.value.code == 1
    assert "nothing is overwritten" in capsys.readouterr().err


def _trace_nothing(monkeypatch: pytest.MonkeyPatch, written: ExportedModel) -> None:
    """Replace tracing by this graph."""

    def traced(*_: object) -> onnx.ModelProto:
        return onnx.load(written.exported.file)

    monkeypatch.setattr(onnx_file, "_trace_graph", traced)


def _rows(made: Artifact, rows: int) -> Inputs:
    """Random windows with zeros in unknown cells."""
    sizes, random = made.pipeline.sizes, np.random.default_rng(rows)
    mask = random.random((rows, sizes.encoder_length, sizes.observed)) > 0.1
    observed = np.where(mask, random.normal(size=mask.shape), 0.0)
    known = random.normal(size=(rows, sizes.encoder_length + sizes.future_length, sizes.known))
    return Inputs(
        observed=torch.from_numpy(observed.astype(np.float32)),
        known=torch.from_numpy(known.astype(np.float32)),
        static=torch.zeros(rows, sizes.static),
        mask=torch.from_numpy(mask),
        location=torch.from_numpy(_alike(random.normal(0, 1e-3, rows), made)),
        scale=torch.from_numpy(_alike(random.uniform(0.005, 0.05, rows), made)),
    )


def _alike(values: NDArray[np.float64], made: Artifact) -> NDArray[np.float64]:
    """Levels [N, H], the same for every horizon."""
    return np.repeat(values[:, None], len(made.manifest.target.horizons), axis=1)
