"""An unmodified tritonclient against `quantra serve`; `make test-lowest` runs it, since it needs protobuf below 7."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import recent_bars, small_models
from kserve_requests import a_window, bars
from request_bytes import flat_window
from serving import server_process

from predictor._pb import inference_pb2 as pb
from predictor.client import QuantraClient
from predictor.forecast import Forecast

if find_spec("tritonclient") is None:
    pytest.skip("tritonclient is not installed; `make test-lowest` has it", allow_module_level=True)

ROOT = Path(__file__).parents[2]
SESSION = ROOT / "tests" / "tritonclient_session.py"
ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
PAGE = (ROOT / "docs" / "kserve.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class ClientResults:
    """Responses of one server to tritonclient and to QuantraClient."""

    told: dict[str, Any]
    answers: dict[str, Any]
    bars: Forecast
    window: Forecast


def run(*command: str | Path, folder: Path) -> str:
    """Output of a program without this project's packages."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=ALONE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def client_results(tmp_path_factory: pytest.TempPathFactory) -> ClientResults:
    folder = tmp_path_factory.mktemp("asked")
    tensors = {f"{form}/{name}": values for form, sent in forms().items() for name, values in sent.items()}
    stored = {name: values.astype("S") if values.dtype == np.object_ else values for name, values in tensors.items()}
    np.savez(folder / "inputs.npz", **stored)
    with (
        (folder / "log").open("w") as log,
        server_process(small_models(folder / "models"), log, "--admin-listen", "127.0.0.1:0") as process,
        QuantraClient(process.target, "small") as client,
    ):
        admin = f"127.0.0.1:{process.ready['admin_port']}"
        told = json.loads(run(SESSION, process.target, admin, "inputs.npz", "answers.npz", folder=folder))
        ours = client.predict(recent_bars("AAPL", "IBM")), client.predict(flat_window())
    return ClientResults(told, dict(np.load(folder / "answers.npz")), *ours)


def forms() -> dict[str, dict[str, Any]]:
    return {"bars": bars(recent_bars("AAPL", "IBM")), "window": a_window()}


def test_tritonclient_gets_the_bits_of_our_own_client(client_results: ClientResults) -> None:
    assert client_results.answers["bars"][0].tobytes() == client_results.bars.values.tobytes()
    assert client_results.bars.prices is not None
    assert client_results.answers["prices"][0].tobytes() == client_results.bars.prices.tobytes()
    assert client_results.answers["window"][0].tobytes() == client_results.window.values.tobytes()


def test_tritonclient_learns_what_there_is(client_results: ClientResults) -> None:
    told = client_results.told
    assert (told["live"], told["unknown_is_ready"], told["server"]) == ([True] * 3, False, "quantra")
    assert {"observed", "close", "symbol"} < set(told["inputs"])
    assert (told["optional"], told["index"]) == (True, [["small", "1", "READY"]])
    assert (told["id"], told["left_out"]) == ("7", True)


def test_tritonclient_is_refused_in_its_own_words(client_results: ClientResults) -> None:
    told = client_results.told
    assert told["not_found"] == ["StatusCode.NOT_FOUND", "there is no model 'nothing'; there are ['small']"]
    assert told["missing"][0] == "StatusCode.INVALID_ARGUMENT"
    assert told["load_elsewhere"][0] == "StatusCode.PERMISSION_DENIED"
    assert told["infer_elsewhere"][0] == told["statistics"][0] == "StatusCode.UNIMPLEMENTED"


def test_tritonclient_streams(client_results: ClientResults) -> None:
    assert client_results.told["stream"] == ["0", "there is no model 'nothing'; there are ['small']", "2"]


def test_tritonclient_loads_and_unloads_at_the_address_for_changes(client_results: ClientResults) -> None:
    assert (client_results.told["after_unloading"], client_results.told["after_loading"]) == (False, True)


def test_the_pages_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "demo").mkdir()
    recent_bars("AAPL", "IBM").write_csv(tmp_path / "demo" / "bars.csv")
    with (
        (tmp_path / "log").open("w") as log,
        server_process(small_models(tmp_path / "models", name="mine"), log) as process,
    ):
        shown = run("-c", program.replace("127.0.0.1:50051", process.target), folder=tmp_path)
    assert "'2013-03-04' '2013-03-08' '2013-03-15' '2013-04-01'" in shown


@pytest.mark.parametrize("first", ["predictor._pb.inference_pb2", "tritonclient.grpc"])
def test_both_can_be_imported_in_one_process_in_any_order(first: str) -> None:
    program = f"import {first}, predictor._pb.inference_pb2, predictor.client, tritonclient.grpc"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_name_and_number_is_the_public_one() -> None:
    """Our messages may have fewer fields, and one more, which its comment names."""
    service_pb2 = import_module("tritonclient.grpc.service_pb2")  # a separate pool, so that names do not clash

    public = service_pb2.DESCRIPTOR.pool
    added = set[str]()
    for message in _messages(pb.DESCRIPTOR.message_types_by_name.values()):
        theirs = public.FindMessageTypeByName(message.full_name).fields_by_name
        for field in message.fields:
            if field.name not in theirs:
                added.add(field.full_name)
                continue
            there = theirs[field.name]
            assert (there.number, there.type, there.is_repeated) == (field.number, field.type, field.is_repeated)
    assert added == {"inference.ModelMetadataResponse.TensorMetadata.parameters"}
    service = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    there = public.FindServiceByName(service.full_name).methods_by_name
    for method in service.methods:
        other = there[method.name]
        assert (other.input_type.full_name, other.output_type.full_name) == (
            method.input_type.full_name,
            method.output_type.full_name,
        )
        assert (other.client_streaming, other.server_streaming) == (method.client_streaming, method.server_streaming)


def _messages(found: Any) -> Any:
    for message in found:
        if not message.full_name.endswith("TensorMetadata.ParametersEntry"):
            yield message
            yield from _messages(message.nested_types)
