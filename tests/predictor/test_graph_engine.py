"""The onnxruntime engine: same forecasts, cached graphs, and networks that fall back to torch."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import recent_bars, save_small_artifact
from child_processes import children_of, command_of, parent_of
from ensembles import save_ensemble
from serving import hosted_server

from predictor import artifact, inference
from predictor.artifact import StoredArtifact
from predictor.client import QuantraClient
from predictor.errors import ArtifactError, ConfigurationError, MissingPackageError
from predictor.forecast import Forecast, require_forecast
from predictor.forecaster import Forecaster
from predictor.inference import GraphEngine, open_graph
from predictor.model import Ensemble, Model
from predictor.registry import Runtime, load_model, load_single, model_loader

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
GRAPHS = Runtime(CPU, 256, "onnxruntime")
SAME = 1e-6
"""Largest difference on returns."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "quantra" / "graphs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_artifact(tmp_path_factory.mktemp("models") / "small" / "1")


@pytest.fixture(scope="module")
def graph(folder: Path) -> bytes:
    return model_loader.load_graph(folder, artifact.load(folder))


@pytest.fixture(scope="module")
def torch_model(folder: Path) -> Model:
    return load_single(folder, ("small", 1), Runtime(CPU, 256))


@pytest.fixture(scope="module")
def graph_model(torch_model: Model, graph: bytes) -> Model:
    """A model that uses the ONNX graph for up to two rows."""
    return torch_model.with_engine(GraphEngine(torch_model.engine, open_graph(graph), max_rows=2))


def forecast(model: Model, count: int = 1) -> list[Forecast]:
    with Forecaster.of(model) as forecaster:
        return list(map(require_forecast, forecaster.predict_many([recent_bars("AAPL", "IBM")] * count)))


def test_forecasts_are_those_of_torch_and_their_ids_name_the_engine(torch_model: Model, graph_model: Model) -> None:
    (exact,), (other,) = forecast(torch_model), forecast(graph_model)
    assert 0 < np.abs(other.values - exact.values).max() <= SAME
    assert other.forecast_id != exact.forecast_id


def test_larger_batches_are_computed_by_torch(torch_model: Model, graph_model: Model) -> None:
    for exact, other in zip(forecast(torch_model, 2), forecast(graph_model, 2), strict=True):
        assert np.array_equal(exact.values, other.values)


def test_a_graph_is_written_once_and_again_if_it_is_damaged(
    folder: Path, graph: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,), written = cache.iterdir(), list[Path]()

    def write(folder: Path) -> bytes:
        written.append(folder)
        return graph

    monkeypatch.setattr(model_loader, "_write_graph", write)
    assert model_loader.load_graph(folder, artifact.load(folder)) == graph
    assert written == []
    file.write_bytes(graph[:-1])
    assert model_loader.load_graph(folder, artifact.load(folder)) == graph
    assert written == [folder]
    assert file.read_bytes() == graph


def test_a_graph_of_other_weights_is_refused(graph: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = save_small_artifact(tmp_path / "other" / "1", seed=1)

    def load_graph(_folder: Path, _stored: StoredArtifact) -> bytes:
        return graph

    monkeypatch.setattr(model_loader, "load_graph", load_graph)
    monkeypatch.setattr(inference, "TRIED_ROWS", (1,))  # fewer than the golden instance has
    with pytest.raises(ArtifactError, match="golden instance"):
        load_model(other, ("other", 1), GRAPHS)


def test_a_folder_that_cannot_be_written_refuses_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = save_small_artifact(tmp_path / "other" / "1", seed=2)
    (tmp_path / "quantra").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def write(_folder: Path) -> bytes:
        return b""

    monkeypatch.setattr(model_loader, "_write_graph", write)
    with pytest.raises(ArtifactError, match=r"ONNX graph cannot be written .*; serve it with --engine eager"):
        load_model(other, ("other", 1), GRAPHS)


@pytest.mark.parametrize("kind", ["graph", "har"])
def test_a_network_of_several_stocks_or_of_no_weights_stays_with_torch(tmp_path: Path, kind: str) -> None:
    model = load_model(save_small_artifact(tmp_path / kind / "1", kind), (kind, 1), GRAPHS)
    assert isinstance(model, Model)
    assert model.engine.name == "eager"


def test_every_member_of_an_ensemble_has_its_graph(folder: Path, tmp_path: Path) -> None:
    ensemble = load_model(save_ensemble(tmp_path / "both" / "1", {"a": folder, "b": folder}), ("both", 1), GRAPHS)
    assert isinstance(ensemble, Ensemble)
    assert {member.engine.name for member in ensemble.members.values()} == {"onnxruntime"}


def test_forecasts_in_this_process_can_use_it(folder: Path, graph_model: Model) -> None:
    with Forecaster.load(folder, "cpu", engine="onnxruntime") as forecaster:
        assert forecaster.predict(recent_bars("AAPL", "IBM")).forecast_id == forecast(graph_model)[0].forecast_id


def test_it_runs_on_the_cpu_only() -> None:
    with pytest.raises(ConfigurationError, match="engine onnxruntime runs on the CPU, but the device is cuda"):
        Runtime(torch.device("cuda"), 256, "onnxruntime")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:

    def find(name: str) -> object:
        return None if name == "onnxscript" else name

    monkeypatch.setattr(model_loader, "find_spec", find)
    with pytest.raises(MissingPackageError, match="onnxscript"):
        Runtime(CPU, 256, "onnxruntime")


def writers_of(server: int) -> list[int]:
    return [child for child in children_of(server) if "predictor.export" in command_of(child)]


@pytest.mark.skipif(sys.platform != "linux", reason="children of a process are read from /proc")
def test_a_server_that_is_killed_leaves_no_process_that_writes_a_graph(folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "predictor.server",
        "--models",
        str(folder.parent.parent),
        "--engine",
        "onnxruntime",
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], env=environment, stderr=subprocess.DEVNULL) as server:
        deadline_s = time.monotonic() + 60
        while not (writers := writers_of(server.pid)) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        server.kill()
    (writer,) = writers
    while parent_of(writer) is not None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert parent_of(writer) is None


def test_a_server_answers_with_it(folder: Path, graph_model: Model, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        hosted_server(folder.parent.parent, "--engine", "onnxruntime") as server,
        QuantraClient(server.target, "small") as client,
    ):
        answer = client.predict(recent_bars("AAPL", "IBM"))
    assert answer.forecast_id == forecast(graph_model)[0].forecast_id
    assert "small@1: ONNX Runtime up to" in caplog.text
