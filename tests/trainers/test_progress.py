"""What becomes of the reports: JSON lines, plain lines, a live bar."""

import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from trainers.loop import (
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    Phase,
    PhaseTotals,
    Report,
    Run,
    Validation,
    ValidationReport,
    WindowReport,
)
from trainers.progress import JsonLines, JsonlLog, PlainProgress, RichProgress, as_json, progress_for


def window(*, number: int = 0, loss: float = 0.5, windows: int | None = 2) -> WindowReport:
    return WindowReport(
        phase="main",
        epoch=0,
        epochs=3,
        window=number,
        windows=windows,
        step=number + 1,
        loss=loss,
        parts={"day 1": 0.25, "day 5": math.nan},
        count=8,
        grad_norm=1.5,
        learning_rate=0.1,
        stepped=True,
        loss_scale=None,
        seconds=0.25,
        data_seconds=0.25,
    )


def epoch(*, validation: float | None = 0.125, phases: tuple[str, ...] = ("main",), skipped: int = 0) -> EpochReport:
    return EpochReport(
        epoch=0,
        epochs=3,
        windows=2,
        phases={name: PhaseTotals(loss=0.5, parts={}, count=16, step=2, skipped=skipped) for name in phases},
        validation=None if validation is None else ValidationReport(mean=validation, parts={}, count=4, seconds=0.5),
        seconds=1.25,
    )


def test_a_window_becomes_one_json_object_without_nan() -> None:
    line = as_json(window(loss=math.inf))
    assert "\n" not in line
    assert json.loads(line) == {
        "kind": "window",
        "phase": "main",
        "epoch": 0,
        "epochs": 3,
        "window": 0,
        "windows": 2,
        "step": 1,
        "loss": None,
        "parts": {"day 1": 0.25, "day 5": None},
        "count": 8,
        "grad_norm": 1.5,
        "learning_rate": 0.1,
        "stepped": True,
        "loss_scale": None,
        "seconds": 0.25,
        "data_seconds": 0.25,
    }


def test_an_epoch_becomes_one_json_object_with_its_validation() -> None:
    assert json.loads(as_json(epoch())) == {
        "kind": "epoch",
        "epoch": 0,
        "epochs": 3,
        "windows": 2,
        "phases": {"main": {"loss": 0.5, "parts": {}, "count": 16, "step": 2, "skipped": 0}},
        "validation": {"mean": 0.125, "parts": {}, "count": 4, "seconds": 0.5},
        "seconds": 1.25,
    }


def test_a_validation_by_itself_can_be_written() -> None:
    stream = io.StringIO()
    JsonLines(stream).write(ValidationReport(mean=1.0, parts={}, count=2, seconds=0.5))
    assert json.loads(stream.getvalue())["kind"] == "validation"


def test_every_line_is_written_before_its_report_is_handed_on() -> None:
    stream = io.StringIO()
    passed = JsonLines(stream)(iter([window(), epoch()]))
    assert next(passed) == window()
    assert len(stream.getvalue().splitlines()) == 1
    assert next(passed) == epoch()
    assert len(stream.getvalue().splitlines()) == 2


def test_a_log_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for _ in JsonlLog(path)([window()]):
        break
    assert list(JsonlLog(path)([epoch()])) == [epoch()]
    assert [json.loads(line)["kind"] for line in path.read_text(encoding="utf-8").splitlines()] == ["window", "epoch"]


def test_a_stream_that_is_no_terminal_gets_a_plain_line_an_epoch() -> None:
    stream = io.StringIO()
    progress = progress_for(stream)
    reports: list[Report] = [window(), window(number=1), epoch(), epoch(validation=None, skipped=3)]
    assert isinstance(progress, PlainProgress)
    assert list(progress(reports)) == reports
    assert stream.getvalue().splitlines() == [
        "epoch 1/3  loss 0.5  validation 0.125  2 windows in 1.2 s",
        "epoch 1/3  loss 0.5 (3 skipped)  2 windows in 1.2 s",
    ]


def test_a_plain_line_names_the_phases_where_there_are_several() -> None:
    stream = io.StringIO()
    list(PlainProgress(stream)([epoch(phases=("critic", "generator"))]))
    assert "critic loss 0.5  generator loss 0.5" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_live_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress_for(Terminal()), RichProgress)


def drawn(reports: list[Report], *, width: int = 140) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, record=True)
    assert list(RichProgress(console)(reports)) == reports
    return console.export_text()


@pytest.mark.parametrize("shown", ["epoch 1/3", "2/2", "loss 0.5", "validation 0.125", "windows/s"])
def test_the_bar_shows_epoch_windows_loss_validation_and_speed(shown: str) -> None:
    assert shown in drawn([window(), epoch(), window(number=1)])


def test_the_numbers_fit_into_a_line_of_eighty_characters() -> None:
    (line,) = drawn([window(), epoch(), window(number=1)], width=80).strip().splitlines()
    assert "…" not in line
    assert line.rstrip().endswith("windows/s")


def test_the_bar_says_where_the_number_of_windows_is_unknown() -> None:
    assert "1/?" in drawn([window(windows=None)])


def test_consumers_compose_around_a_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Linear(2, 1)

    def loss(batch: Tensor) -> Loss:
        return Loss(net(batch).square().mean(), len(batch))

    def train(run: Run[Tensor]) -> list[Report]:
        source = IterableSource([torch.randn(4, 2)] * 3)
        reports = run.epochs(source, max_epochs=2, validation=Validation(loss, source))
        return list(JsonlLog(tmp_path / "log.jsonl")(PlainProgress(stream)(reports)))

    stream = io.StringIO()
    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
        reports = train(run)
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["window", "window", "epoch"] * 2
    assert json.loads(lines[0])["loss"] == reports[0].loss
    assert len(stream.getvalue().splitlines()) == 2
