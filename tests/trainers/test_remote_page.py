"""`quantra ui --server`: the page and the calls over HTTP, answered by a server with TLS and tokens."""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.parse import quote

import numpy as np
import pytest
from artifacts import recent_bars, save_small_artifact
from google.protobuf import json_format
from market import bokeh_panel
from serving import server_process
from watched_logs import token

from predictor._pb import prediction_pb2 as pb
from predictor.forecaster import Forecaster
from predictor.instance import Instance
from predictor.server.issued_certificates import issue
from predictor.wire import forecasts, instances

pytestmark = pytest.mark.slow

TOKEN: Final = token("page")
BEARER: Final = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


@dataclass(frozen=True)
class Remote:
    """A running page without a folder of models, and the server that it asks."""

    port: int
    folder: Path
    server: "subprocess.Popen[str]"
    cookie: str = ""

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        own = {"cookie": self.cookie, "origin": f"http://127.0.0.1:{self.port}"}
        connection.request(method, path, body, own if headers is None else headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text, response.headers

    def call(self, path: str, message: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Ask as a program."""
        body = None if message is None else json.dumps(message).encode()
        status, text, _ = self.ask("GET" if body is None else "POST", path, body, BEARER)
        return status, json.loads(text)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Generator[Remote]:
    folder = tmp_path_factory.mktemp("remote")
    save_small_artifact(folder / "models" / "mine" / "1")
    recent_bars("AAPL", "IBM").write_csv(folder / "bars.csv")
    issued = issue(folder / "certs", ())
    tokens = folder / "tokens.txt"
    tokens.write_text(f"page predict,explain {TOKEN}\n")
    tokens.chmod(0o600)
    client = ("--tls-ca", issued.ca, "--client-cert", issued.client, "--client-key", issued.client_key)
    with ExitStack() as stack:
        log, other = (stack.enter_context((folder / name).open("w")) for name in ("log", "page.log"))
        options = ("--tls-cert", issued.server, "--tls-key", issued.server_key, "--tls-client-ca", issued.ca)
        server = stack.enter_context(
            server_process(folder / "models", log, *map(str, options), "--token-file", str(tokens))
        )
        stack.enter_context(mock.patch.dict(os.environ, {"QUANTRA_TOKEN": TOKEN}))
        page = stack.enter_context(
            server_process(
                folder / "nothing",
                other,
                *("--no-browser", "--server", f"localhost:{server.target.rpartition(':')[2]}"),
                *map(str, client),
                program=("quantra", "ui"),
            )
        )
        port, address = page.ready["port"], page.ready["page"]
        assert isinstance(port, int)
        assert isinstance(address, str)
        bare = Remote(port, folder, server.popen)
        _, _, headers = bare.ask("GET", address.partition(str(port))[2], headers={})
        yield Remote(port, folder, server.popen, headers["set-cookie"].partition(";")[0])


def request(names: tuple[str, ...] = ("AAPL",)) -> dict[str, Any]:
    message = pb.PredictRequest(model="mine", instances=[instances.encode(Instance(input=recent_bars(*names)))])
    return json_format.MessageToDict(message)


def test_a_forecast_over_http_is_that_of_the_server_bit_by_bit(remote: Remote) -> None:
    status, answer = remote.call("/v1/forecast", request())
    assert status == 200
    message = json_format.ParseDict(answer, pb.PredictResponse()).results[0].forecast
    with Forecaster.load(remote.folder / "models" / "mine" / "1") as model:
        expected = model.predict(recent_bars("AAPL"))
    assert np.array_equal(forecasts.decode(message).values, expected.values)


def test_explanations_paths_models_and_health_are_those_of_the_server(remote: Remote) -> None:
    instance = instances.encode(Instance(input=bokeh_panel("AAPL", "IBM").last(600)))
    paths = pb.SimulatePathsRequest(model="mine", instance=instance, paths=100, include_paths=True)
    status, simulated = remote.call("/v1/paths", json_format.MessageToDict(paths))
    assert (status, len(json_format.ParseDict(simulated, pb.SimulatePathsResponse()).returns) % 1600) == (200, 0)
    assert remote.call("/v1/explain", {"model": "mine", "instance": request()["instances"][0]})[0] == 200
    assert [model["name"] for model in remote.call("/v1/models")[1]["models"]] == ["mine"]
    assert remote.call("/v1/health") == (200, {"status": "SERVING"})


def test_errors_of_the_server_keep_their_reason(remote: Remote) -> None:
    status, answer = remote.call("/v1/models/other")
    assert (status, answer["reason"]) == (404, "MODEL_NOT_FOUND")


def test_a_program_without_the_token_is_rejected(remote: Remote) -> None:
    assert remote.ask("GET", "/v1/models", headers={})[0] == 401


def test_the_page_shows_forecasts_reasons_and_all_symbols_of_the_server(remote: Remote) -> None:
    sent = remote.ask(
        "POST", f"/page/files?name={quote('bars.csv')}&first=yes", (remote.folder / "bars.csv").read_bytes()
    )
    assert sent[0] == 204
    status, text, _ = remote.ask("GET", "/page/forecast?symbol=IBM&horizon=5&quantile=0.5")
    assert (status, "Model mine, version 1" in text, '<option value="5" selected>' in text) == (200, True, True)
    _, text, _ = remote.ask("GET", "/page/universe")
    assert {"AAPL", "IBM"} <= set(re.findall(r"symbol=(\w+)", text))


@pytest.mark.parametrize("path", ["/", "/bars", "/models"])
def test_what_a_server_cannot_do_is_left_out_with_a_sentence(remote: Remote, path: str) -> None:
    remote.ask("POST", "/page/files?name=bars.csv&first=yes", (remote.folder / "bars.csv").read_bytes())
    status, text, _ = remote.ask("GET", f"/page{path}")
    assert (status, "These models are those of another server" in text) == (200, True)
    assert 'href="/page/training"' not in text
    assert 'action="/page/promote"' not in text


def test_training_and_promotion_are_refused(remote: Remote) -> None:
    for path, form in (("training", b"name=a&kind=har&minutes=1"), ("rollback", b"model=mine&reason=x")):
        status, text, _ = remote.ask("POST", f"/page/{path}", form)
        assert status == 400, text


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quantra", "ui", "--no-browser", "--listen", "127.0.0.1:0"]
    ended = subprocess.run(
        [*command, "--server", "127.0.0.1:9"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "no server answers at 127.0.0.1:9" in ended.stderr


def test_health_follows_the_server(remote: Remote) -> None:
    """The last test: it ends the server."""
    shutil.rmtree(remote.folder / "models")
    remote.server.kill()
    remote.server.wait()
    status, answer = remote.call("/v1/health")
    assert (status, answer["reason"]) == (503, "UNAVAILABLE")
