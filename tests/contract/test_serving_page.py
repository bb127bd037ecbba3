"""The pages on serving, monitoring, HTTP and clients, and SECURITY.md: examples run, and tables match the code."""

import json
import re
import shlex
import shutil
import subprocess
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer
from artifacts import recent_bars, save_small_artifact
from free_ports import free_ports
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from shown_commands import ROOT, run_command, run_csharp, run_python, running

from predictor.errors import ANSWERS, Status
from predictor.explain import integrated_gradients
from predictor.limits import QueueLimits
from predictor.server import ServerLimits
from predictor.wire import limits as of_requests
from trainers.cli.commands import app

SERVING = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
MONITORING = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
HTTP = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
CLIENT = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
BLOCKS = re.findall(
    r"^```(bash|python|csharp)\n(.*?)^```", SERVING + MONITORING + HTTP + CLIENT, re.MULTILINE | re.DOTALL
)
PORTS: tuple[str, ...] = ("50051", "50052", "50053", "50054", "50080", "50081")
UNITS = {"": 1, "s": 1, "calls": 1, "symbols": 1, "KiB": 1024, "MiB": 1024**2}


def rows(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    lines = page.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


# --- examples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two versions of a model and bars, at the paths of the page."""
    for version in (1, 2):
        save_small_artifact(tmp_path / "models" / "mine" / str(version), seed=version)
    (tmp_path / "demo").mkdir()
    recent_bars("AAPL", "IBM").write_csv(tmp_path / "demo" / "bars.csv")
    return tmp_path


@pytest.mark.slow
def test_the_blocks_of_the_pages_run_in_order(folder: Path) -> None:
    free = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    answers: list[object] = []
    with ExitStack() as servers:
        for language, text in BLOCKS:
            code = re.sub("|".join(PORTS), lambda port: free[port[0]], text)
            if language == "python":
                assert run_python(code, folder).strip()
            elif language == "csharp":
                assert shutil.which("dotnet") is None or "AAPL" in run_csharp(code, folder, folder / "Ask")
            else:
                answers += [answer for line in code.strip().splitlines() for answer in run_line(line, folder, servers)]
    assert answers == [{"status": "SERVING"}, [1], [1, 2], [1, 2]]


def run_line(line: str, folder: Path, servers: ExitStack) -> list[object]:
    """Run one line and return the response of a grpcurl call; servers run until the end."""
    if line.startswith(("quantra serve", "quantra ui", "python -m predictor.server")):
        assert '"ready": true' in servers.enter_context(running(line, folder))
    elif line.startswith("grpcurl"):
        return [grpcurl(shlex.split(line)[1:])]
    elif line.startswith("curl"):
        assert shutil.which("curl") is None or run_command(line, folder) == '{"status":"SERVING"}'
    elif line.startswith("("):
        subprocess.run(["bash", "-c", line], cwd=folder, check=True)
    else:
        run_command(line, folder)
    return []


def grpcurl(words: list[str]) -> object:
    """Emulate grpcurl with these arguments, by reflection."""
    plaintext, data, request, target, path = words
    assert (plaintext, data) == ("-plaintext", "-d")
    service, method = path.split("/")
    with grpc.insecure_channel(target) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        found: Any = pool.FindServiceByName(service).methods_by_name[method]
        sent: Any = json_format.Parse(request, GetMessageClass(found.input_type)())
        answer = GetMessageClass(found.output_type).FromString(
            channel.unary_unary(f"/{path}")(sent.SerializeToString())
        )
    told: dict[str, Any] = json.loads(json_format.MessageToJson(answer))
    return [model["version"] for model in told["models"]] if "models" in told else told


# --- tables


def test_the_table_of_flags_matches_serve_and_its_defaults() -> None:
    group: Any = typer.main.get_command(app)
    _, serve, _ = group.resolve_command(typer.Context(group), ["serve"])
    told = {flag.strip("`"): default.strip("`") for flag, default, _ in rows(SERVING, "flag")}
    assert set(told) == {option.opts[0] for option in serve.params}
    assert [
        option.opts[0] for option in serve.params if told[option.opts[0]] not in documented_default(option.default)
    ] == []


def documented_default(default: object) -> set[str]:
    """A default as the table shows it."""
    if default in {None, ""}:
        return {"required", "none", "nowhere"}
    return {"off"} if default is False else {str(default)}


def test_the_table_of_errors_has_every_status_and_valid_reasons() -> None:
    table = [
        (status.strip("`"), reason)
        for status, reasons, *_ in rows(CLIENT, "status")
        for reason in re.findall(r"`(\w+)`", reasons)
    ]
    assert set(table) <= {(answer.status.value, answer.reason) for answer in ANSWERS.values()}
    assert {status for status, _ in table} == {status.value for status in Status}


def limit(name: str) -> float | QueueLimits:
    """The value of a documented limit in the code."""
    owner, _, path = name.partition(".")
    if owner == "wire":
        return getattr(of_requests, name.rpartition(".")[2])
    if owner == "explain":
        return integrated_gradients.MAX_ROWS
    limits = ServerLimits()
    return attrgetter(path)(limits if owner == "ServerLimits" else limits.service)


def test_the_table_of_limits_matches_the_defaults() -> None:
    for name, default, *_ in rows(SECURITY, "limit"):
        defaults = [part.partition(" ") for part in default.split(", ")]
        values = limit(name.strip("`"))
        if isinstance(values, QueueLimits):  # a request that waits to be counted has no known rows
            values = [values.calls, values.rows, values.size] if len(defaults) == 3 else [values.calls, values.size]
        else:
            values = [values]
        assert [float(number.replace(",", "")) * UNITS[unit] for number, _, unit in defaults] == values, name


def test_the_table_of_limits_has_every_limit_of_server_and_service() -> None:
    named = {name.strip("`") for name, *_ in rows(SECURITY, "limit")}
    limits = ServerLimits()
    there = {f"ServerLimits.{name}" for name in limits.__dataclass_fields__ if name != "service"}
    there |= {f"ServiceLimits.{name}" for name in limits.service.__dataclass_fields__}
    assert there <= named
    assert {name for name in named if name.startswith("S")} == there


def test_every_limit_appears_in_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py") if path != Path(__file__))
    named = [name.strip("`").rpartition(".")[2] for name, *_ in rows(SECURITY, "limit")]
    assert [name for name in named if not re.search(rf"\b{name}\b", tests)] == []
