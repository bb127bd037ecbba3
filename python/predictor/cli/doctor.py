"""The command `quantra doctor`, which checks everything that a forecast needs."""

import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from predictor.cli.options import AsJson, Device
from predictor.cli.output import print_next_commands, quantra, write_json
from predictor.errors import QuantraError

REQUIRED: Final = {
    "torch": "torch",
    "numpy": "numpy",
    "safetensors": "safetensors",
    "grpcio": "grpc",
    "protobuf": "google.protobuf",
}
"""The module of each distribution."""

OPTIONAL: Final = {
    "polars": "data",
    "fastexcel": "excel",
    "pyarrow": "arrow",
    "pandas": "pandas",
    "exchange-calendars": "calendars",
    "plotly": "report",
    "jinja2": "report",
    "matplotlib": "plot",
    "arch": "baselines",
    "lightgbm": "baselines",
    "bokeh_sampledata": "demo",
    "pythonnet": "dotnet",
    "onnx": "onnx",
    "optuna": "tune",
    "tensorboard": "tensorboard",
    "mlflow-skinny": "tracking",
    "wandb": "tracking",
    "cryptography": "tls",
    "starlette": "ui",
    **({} if sys.platform == "win32" else {"uvloop": "fast"}),
    "opentelemetry-sdk": "otel",
    "chronos-forecasting": "adopt",
    "psycopg": "postgres",
    "ray": "cluster",
}
"""The extra that installs each distribution."""

MIN_PYTHON: Final = (3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One check; the command fails if a `needed` one is not `ok`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def doctor(
    *,
    artifact: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also run this artifact's golden instance.")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Check Python, packages, device, network and disk, and with --artifact a whole prediction."""
    checks = list(_run_checks(artifact, device))
    healthy = all(check.ok for check in checks if check.needed)
    if as_json:
        write_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        Console(highlight=False).print(_make_table(checks))
        if healthy and artifact is None:
            print_next_commands(quantra("demo"))
    raise typer.Exit(0 if healthy else 1)


def _run_checks(artifact: Path | None, device: str) -> Iterator[HealthCheck]:
    yield _check_python()
    for name, module in REQUIRED.items():
        yield _check_package(name, module)
    yield HealthCheck(name="SQLite", ok=True, detail=sqlite3.sqlite_version)
    yield _check_device(device)
    for name, extra in OPTIONAL.items():
        yield _check_optional(name, extra)
    yield _check_dotnet()
    yield _check_writable(Path.cwd())
    yield _check_port()
    if artifact is not None:
        yield _check_prediction(artifact, device)


def _check_python() -> HealthCheck:
    running = ".".join(map(str, sys.version_info[:3]))
    oldest = ".".join(map(str, MIN_PYTHON))
    ok = sys.version_info >= MIN_PYTHON
    return HealthCheck(name="Python", ok=ok, detail=running, remedy=f"install Python {oldest} or newer")


def _check_package(name: str, module: str) -> HealthCheck:
    """Import the package: only an import reveals a broken library."""
    remedy = f"pip install --force-reinstall {name}"
    try:
        import_module(module)
    except (ImportError, OSError) as error:
        return HealthCheck(name=name, ok=False, detail=str(error), remedy=remedy)
    return HealthCheck(name=name, ok=True, detail=version(name))


def _check_device(name: str) -> HealthCheck:
    try:
        from predictor.inference import choose_device

        device = choose_device(name)
    except (ImportError, OSError) as error:
        return HealthCheck(name="device", ok=False, detail=str(error), remedy="install torch")
    except QuantraError as error:
        return HealthCheck(name="device", ok=False, detail=error.message, remedy="choose --device cpu")
    return HealthCheck(name="device", ok=True, detail=_describe_device(device.type))


def _describe_device(kind: str) -> str:
    import torch

    if kind != "cuda":
        return f"{kind}, {torch.get_num_threads()} threads"
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"


def _check_optional(name: str, extra: str) -> HealthCheck:
    try:
        return HealthCheck(name=name, ok=True, detail=version(name), needed=False)
    except PackageNotFoundError:
        remedy = f"pip install 'quantra[{extra}]'"
        return HealthCheck(name=name, ok=False, detail="not installed", remedy=remedy, needed=False)


def _check_dotnet() -> HealthCheck:
    path = shutil.which("dotnet")
    if path is None:
        remedy = "install the .NET SDK 10 or newer to use the C# client"
        return HealthCheck(name="dotnet", ok=False, detail="not on PATH", remedy=remedy, needed=False)
    return HealthCheck(name="dotnet", ok=True, detail=path, needed=False)


def _check_writable(folder: Path) -> HealthCheck:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return HealthCheck(name="write access", ok=False, detail=str(error), remedy="change to a folder of your own")
    return HealthCheck(name="write access", ok=True, detail=str(folder))


def _check_port() -> HealthCheck:
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
    except OSError as error:
        return HealthCheck(name="port", ok=False, detail=str(error), remedy="allow listening on 127.0.0.1")
    return HealthCheck(name="port", ok=True, detail=f"127.0.0.1:{port} was free")


def _check_prediction(artifact: Path, device: str) -> HealthCheck:
    """Load the artifact, which compares a forecast and an explanation with the recorded numbers."""
    try:
        from predictor.forecaster import Forecaster

        with Forecaster.load(artifact, device) as forecaster:
            info = forecaster.model()
    except (ImportError, OSError) as error:
        return HealthCheck(name="prediction", ok=False, detail=str(error), remedy="install torch")
    except QuantraError as error:
        return HealthCheck(name="prediction", ok=False, detail=error.message)
    return HealthCheck(name="prediction", ok=True, detail=f"{info.name}@{info.version} gives the recorded numbers")


def _make_table(checks: Iterable[HealthCheck]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        mark = (
            Text("✓", style="green")
            if check.ok
            else Text("✗" if check.needed else "-", style="red" if check.needed else "yellow")
        )
        detail = check.detail if check.ok else f"{check.detail}: {check.remedy}"
        table.add_row(mark, check.name, Text(detail))
    return table
