"""`quantra certs`: the files that it writes, and the commands that it prints."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from artifacts import recent_bars, small_models
from free_ports import free_port
from shown_commands import ROOT, run_command, run_python, running

from predictor.cli import app, run
from predictor.server.issued_certificates import IssuedCertificates

Capture = pytest.CaptureFixture[str]


def exit_code(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run(app, [str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def printed_commands(text: str) -> tuple[str, str, str]:
    """The printed server command, client command, and program."""
    indented = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    serve, predict, *program = indented
    return serve, predict, "\n".join(program)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="commands are written for a POSIX shell")
def test_what_is_printed_serves_and_is_answered(tmp_path: Path, capsys: Capture) -> None:
    small_models(tmp_path / "models")
    recent_bars("AAPL").write_csv(tmp_path / "bars.csv")
    assert exit_code("certs", tmp_path / "my certs") == 0
    serve, predict, program = printed_commands(capsys.readouterr().out)
    port = str(free_port())
    with running(f"{serve} --listen 127.0.0.1:{port}", tmp_path) as first_line:
        assert json.loads(first_line)["port"] == int(port)
        assert "AAPL" in run_command(predict.replace("50051", port), tmp_path)
        assert "AAPL" in run_python(program.replace("50051", port), tmp_path)


def test_the_files_are_listed_as_json_too(tmp_path: Path, capsys: Capture) -> None:
    assert exit_code("certs", tmp_path / "certs", "--host", "server.example.com", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {path.name: str(path) for path in IssuedCertificates(tmp_path / "certs").all}
    assert all(Path(path).is_file() for path in told.values())


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "server.key").write_text("mine")
    assert exit_code("certs", tmp_path) == 1
    assert "already has server.key" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["server.key"]


def test_git_commits_nothing_of_a_folder_that_it_creates(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert exit_code("certs", tmp_path / "secrets") == 0
    (tmp_path / "secrets" / "tokens.txt").write_text("desk predict x")
    seen = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert seen.stdout == ""


def test_a_folder_that_exists_stays_visible_to_git(tmp_path: Path) -> None:
    assert exit_code("certs", tmp_path) == 0
    assert not (tmp_path / ".gitignore").exists()


def test_the_folder_of_the_examples_is_ignored_by_git() -> None:
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_without_its_package_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "predictor.server.issued_certificates", raising=False)
    assert exit_code("certs", tmp_path / "certs") == 1
    assert "needs the package cryptography: pip install 'quantra[tls]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [("--artifact", "models/small/1", "--tls-ca", "ca.pem"), ("--server", "localhost:1", "--tls-cert", "client.pem")],
)
def test_flags_of_tls_that_lead_nowhere_are_refused(flags: tuple[str, ...], tmp_path: Path, capsys: Capture) -> None:
    assert exit_code("predict", *flags, "--bars", tmp_path / "bars.csv") in {1, 2}
    assert "--tls-ca" in " ".join(capsys.readouterr().err.split())


def test_help_shows_an_example(capsys: Capture) -> None:
    assert exit_code("certs", "--help") == 0
    assert "Example: quantra certs" in capsys.readouterr().out


def test_a_command_line_is_quoted_where_a_path_has_blanks(tmp_path: Path, capsys: Capture) -> None:
    assert exit_code("certs", tmp_path / "a b") == 0
    serve, _, _ = printed_commands(capsys.readouterr().out)
    assert str(tmp_path / "a b" / "server.key") in shlex.split(serve)
