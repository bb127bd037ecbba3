"""Unwritable output paths are refused before the work, with the folder and a remedy."""

import json
import os
from pathlib import Path
from typing import Final

import pytest
from artifacts import small_models
from market import bokeh_panel

from predictor.cli import run
from predictor.errors import ConfigurationError
from predictor.replacement import check_file, check_folder
from trainers.cli.commands import app

Capture = pytest.CaptureFixture[str]

FILES: Final = {
    "predict": "predict --artifact NONE --bars NONE --plot PLACE/it.html",
    "explain": "explain --artifact NONE --bars NONE --plot PLACE/it.html",
    "report": "report NONE --bars NONE --output PLACE/it.html",
    "export": "export NONE --onnx PLACE/it.onnx",
    "evaluate": "evaluate NONE --bars NONE --report PLACE/it.html",
    "backtest": "backtest NONE --bars NONE --start 2011-01-03 --end 2012-01-03 --report PLACE/it.html",
    "audit": "audit NONE --bars NONE --report PLACE/it.html",
    "audit record": "audit PLACE/1 --bars NONE",
}
"""Commands that write a file; their artifact and bars are missing, which only the work would notice."""
FOLDERS: Final = {
    "train": "train stock --bars NONE --out PLACE/models/1",
    "tune": "tune stock --bars NONE --out PLACE/models/1",
    "backtest run": "backtest NONE --bars NONE --start 2011-01-03 --end 2012-01-03 --out PLACE/run",
    "demo": "demo --no-browser --out PLACE/demo",
    "ensemble": "ensemble NONE/1 NONE/2 --bars BARS --out PLACE/models/1",
}
"""Commands that write a folder and create its parents."""


def error_of(command: str, capsys: Capture) -> str:
    """Message of a failing command, the same in text and JSON output."""
    with pytest.raises(SystemExit) as ended:
        run(app, [*command.split(), "--json"])
    told = capsys.readouterr()
    assert ended.value.code == 1, told.err
    error = json.loads(told.out)["error"]
    assert error["reason"] == "CONFIGURATION_INVALID"
    assert told.err.strip().splitlines()[-1] == error["message"]
    return error["message"]


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A folder that not even root can write to."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if not os.access(folder, os.W_OK):
        return folder
    proc = Path("/proc/self").resolve()
    if not proc.is_dir():
        pytest.skip("root may write everywhere here")
    return proc


@pytest.fixture(scope="module")
def bars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bokeh_panel("AAPL").last(30).write_csv(path)
    return path


@pytest.mark.parametrize("command", FILES.values(), ids=FILES)
def test_a_file_in_a_folder_that_is_not_there_is_refused_before_the_work(
    command: str, tmp_path: Path, capsys: Capture
) -> None:
    missing = tmp_path / "missing"

    message = error_of(command.replace("PLACE", str(missing)), capsys)

    assert f"folder {missing} for " in message
    assert message.endswith("create it first")
    assert not missing.exists()


@pytest.mark.parametrize("command", {**FILES, **FOLDERS}.values(), ids=[*FILES, *FOLDERS])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    command: str, locked: Path, bars: Path, capsys: Capture
) -> None:
    message = error_of(command.replace("PLACE", str(locked)).replace("BARS", str(bars)), capsys)

    assert f"folder {locked} is not writable (" in message
    assert "choose another path, or change the folder's permissions" in message


@pytest.mark.parametrize("command", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_below_a_file_is_refused_before_the_work(
    command: str, tmp_path: Path, bars: Path, capsys: Capture
) -> None:
    file = tmp_path / "file"
    file.touch()

    message = error_of(command.replace("PLACE", str(file)).replace("BARS", str(bars)), capsys)

    assert f"{file} is not a folder" in message
    assert message.endswith("choose another path")


def test_aliases_that_cannot_be_written_are_refused_by_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The check is faked, because root may write everywhere."""
    models = small_models(tmp_path)

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)

    message = error_of(f"alias small champion 1 --models {models}", capsys)

    assert message.startswith(f"folder {models / 'small'} is not writable (Permission denied)")


def test_a_place_that_can_be_written_is_let_through_without_a_trace(tmp_path: Path) -> None:
    check_file(tmp_path / "it.html")
    check_folder(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder; pass the path of a file"):
        check_file(tmp_path)
