"""Server flags: the same for `quantra serve` and `python -m predictor.server`."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from predictor.cli import commands, server_commands
from predictor.server import Address, ServerSettings, TlsFiles, logs
from predictor.server import __main__ as program

TOKEN = "x" * 32
ADMIN_TOKEN = "y" * 32
EVERY = [
    *("--models", "models", "--listen", "192.0.2.1:5", "--device", "cuda:3", "--max-batch-rows", "7", "--threads", "2"),
    *("--engine", "onnxruntime"),
    *("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls-client-ca", "ca.pem", "--token-file", "tokens"),
    *(
        "--lock",
        "models.lock",
        "--watch",
        "--max-age",
        "4",
        "--ledger",
        "ledger.db",
        "--ledger-mode",
        "strict",
        "--adaptive",
        "--admin-listen",
        "127.0.0.1:6",
        "--insecure-public",
    ),
    *("--processes", "3", "--parent-watch", "--metrics-port", "7", "--otel", "--log-level", "debug", "--json"),
]
ASKED = ServerSettings(
    models=Path("models"),
    listen=Address("192.0.2.1", 5),
    insecure_public=True,
    tls=TlsFiles(Path("cert.pem"), Path("key.pem"), Path("ca.pem")),
    token_file=Path("tokens"),
    token=TOKEN,
    admin_token=ADMIN_TOKEN,
    device="cuda:3",
    max_batch_rows=7,
    threads=2,
    engine="onnxruntime",
    lock=Path("models.lock"),
    watch=True,
    admin_listen=Address("127.0.0.1", 6),
    max_age_sessions=4,
    ledger="ledger.db",
    ledger_mode="strict",
    adaptive=True,
    metrics_port=7,
    otel=True,
    processes=3,
    parent_watch=True,
)


def no_logging(_: logs.LogSettings) -> None:
    """Replaces the log setup."""


@pytest.fixture(autouse=True)
def served_settings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ServerSettings, logs.LogSettings]]:
    """Settings that both programs would serve with."""
    monkeypatch.setenv("QUANTRA_TOKEN", TOKEN)
    monkeypatch.setenv("QUANTRA_ADMIN_TOKEN", ADMIN_TOKEN)
    monkeypatch.setattr("sys.platform", "linux")
    found: list[tuple[ServerSettings, logs.LogSettings]] = []

    def serve(settings: ServerSettings, log: logs.LogSettings, *_: object) -> int:
        found.append((settings, log))
        return 0

    monkeypatch.setattr(program, "serve", serve)
    monkeypatch.setattr(server_commands, "serve_models", serve)
    monkeypatch.setattr(logs, "set_up", no_logging)
    return found


def quantra_exit_code(arguments: Sequence[str]) -> int:
    """Run `quantra serve` and return its exit code."""
    return CliRunner().invoke(commands.app, ["serve", *arguments]).exit_code


def module_exit_code(arguments: Sequence[str]) -> int:
    """Run `python -m predictor.server` and return its exit code."""
    try:
        return program.main(arguments)
    except SystemExit as ended:
        return int(str(ended.code))


BOTH = pytest.mark.parametrize("command", [quantra_exit_code, module_exit_code])


@BOTH
def test_every_flag_reaches_the_server(command: Any, served_settings: list[Any]) -> None:
    unasked = ServerSettings(models=Path())
    kept = {one.name for one in fields(ASKED) if getattr(ASKED, one.name) == getattr(unasked, one.name)}
    assert kept == {"limits"}
    assert command(EVERY) == 0
    assert served_settings == [(ASKED, logs.LogSettings("debug", as_json=True))]


@BOTH
def test_without_flags_a_server_is_as_its_settings_have_it(command: Any, served_settings: list[Any]) -> None:
    assert command([]) == 0
    settings = ServerSettings(models=Path("models"), token=TOKEN, admin_token=ADMIN_TOKEN)
    assert served_settings == [(settings, logs.LogSettings())]


@BOTH
@pytest.mark.parametrize(
    "arguments",
    [
        ["--models"],
        ["--models", "models", "--threads", "0"],
        ["--models", "models", "--threads", "many"],
        ["--models", "models", "--max-age", "-1"],
        ["--models", "models", "--listen", "nowhere"],
        ["--models", "models", "--tls-cert", "cert.pem"],
        ["--models", "models", "--log-level", "loud"],
        ["--models", "models", "--no-watch"],
    ],
)
def test_bad_usage_has_the_exit_code_2(command: Any, arguments: list[str], served_settings: list[Any]) -> None:
    assert command(arguments) == 2
    assert not served_settings
