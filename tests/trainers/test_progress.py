"""Progress output: JSON lines, plain lines, and a live bar."""

import io
import json
import math
from pathlib import Path

import pytest
import torch
from loop_reports import checkpoint, epoch, window
from rich.console import Console
from torch import Tensor, nn

from trainers.loop import (
    IterableSource,
    Loop,
    Loss,
    Phase,
    Report,
    TrainingNotice,
    TrainingRun,
    Validation,
    ValidationReport,
)
from trainers.progress import ConsumerChain, JsonLines, JsonlLog, PlainProgress, RichProgress, as_json, progress_for


def test_a_window_becomes_one_json_object_without_nan() -> None:
    line = as_json(window(loss=math.inf, micro_batch_limit=16))
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
        "learning_rate": 0.125,
        "stepped": True,
        "loss_scale": None,
        "micro_batch_limit": 16,
        "shortages": 0,
        "seconds": 0.25,
        "data_seconds": 0.0,
        "zero_gradient": False,
    }


def test_an_epoch_becomes_one_json_object_with_its_validation() -> None:
    assert json.loads(as_json(epoch(shortages=1, peak_bytes=4096))) == {
        "kind": "epoch",
        "epoch": 0,
        "epochs": 3,
        "windows": 2,
        "phases": {
            "main": {
                "loss": 0.5,
                "parts": {},
                "count": 16,
                "step": 2,
                "skipped": 0,
                "shortages": 1,
                "zero_gradients": 0,
            }
        },
        "validation": {"mean": 0.125, "parts": {"day 1": 0.75}, "count": 4, "seconds": 0.25},
        "seconds": 1.25,
        "data_seconds": 0.0,
        "peak_bytes": 4096,
    }


def test_a_validation_that_is_no_number_is_valid_json_and_shown() -> None:
    report = epoch(validation=math.nan)
    assert json.loads(as_json(report))["validation"]["mean"] is None
    stream = io.StringIO()
    list(PlainProgress(stream)([report]))
    assert "validation nan" in stream.getvalue()
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    list(RichProgress(console)([epoch(), report]))
    assert "validation nan" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]  the one from above


def test_a_checkpoint_becomes_one_json_object() -> None:
    assert json.loads(as_json(checkpoint(2, epoch=1, problem="disk full"))) == {
        "kind": "checkpoint",
        "epoch": 1,
        "window": 2,
        "folder": "step-2",
        "bytes": 1024,
        "seconds": 0.5,
        "problem": "disk full",
    }


def test_a_notice_becomes_one_json_object() -> None:
    assert json.loads(as_json(TrainingNotice(message="goes on"))) == {"kind": "notice", "message": "goes on"}


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


def plain_output(*reports: Report) -> str:
    """Output for a stream that is not a terminal."""
    stream = io.StringIO()
    progress = progress_for(stream)
    assert isinstance(progress, PlainProgress)
    assert list(progress(reports)) == list(reports)
    return stream.getvalue()


def test_a_stream_that_is_no_terminal_gets_a_plain_line_an_epoch() -> None:
    assert plain_output(window(), window(1), epoch(), checkpoint(), epoch(1, validation=None)).splitlines() == [
        "epoch 1/3  loss 0.5  validation 0.125  2 steps in 1.2 s  16 targets/s",
        "epoch 2/3  loss 0.5  2 steps in 1.2 s  13 targets/s",
    ]


def test_a_plain_line_names_the_phases_where_there_are_several() -> None:
    assert "critic loss 0.5  generator loss 0.5" in plain_output(epoch(phases=("critic", "generator")))


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (epoch(skipped=3), "loss 0.5 (3 skipped)  "),
        (epoch(zero_gradients=4), "loss 0.5 (4 with zero gradients)  "),
        (epoch(skipped=2, shortages=1), "loss 0.5 (2 skipped, memory ran out once)  "),
        (epoch(shortages=2), "(memory ran out twice)"),
        (epoch(shortages=5), "(memory ran out 5 times)"),
        (epoch(data_seconds=0.25), "  25% waiting for data\n"),
        (epoch(peak_bytes=300 * 1024), "  peak memory 300 KiB\n"),
        (epoch(peak_bytes=300 * 1024**2), "  peak memory 300 MiB\n"),
        (epoch(peak_bytes=3 * 1024**3 // 2), "  peak memory 1.5 GiB\n"),
    ],
)
def test_a_plain_line_says_what_is_notable(told: Report, shown: str) -> None:
    assert shown in plain_output(told)


def test_a_plain_line_is_silent_about_a_short_wait_for_data() -> None:
    assert "waiting" not in plain_output(epoch(data_seconds=0.1))


def test_an_epoch_too_short_for_the_clock_has_no_speed() -> None:
    assert plain_output(epoch(validation=None, seconds=0.0)) == "epoch 1/3  loss 0.5  2 steps in 0.0 s\n"


def test_a_notice_and_a_failed_checkpoint_are_plain_lines_of_their_own() -> None:
    shown = plain_output(TrainingNotice(message="goes on after window 7"), checkpoint(problem="disk full"))
    assert shown.splitlines() == [
        "! goes on after window 7",
        "! the checkpoint step-1 was not written; training continues: disk full",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_live_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress_for(Terminal()), RichProgress)


def rendered_bar(*reports: Report, width: int = 140) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, record=True)
    assert list(RichProgress(console)(reports)) == list(reports)
    return console.export_text()


@pytest.mark.parametrize("shown", ["epoch 1/3", "2/2", "loss 0.5", "validation 0.125", "steps/s"])
def test_the_bar_shows_epoch_windows_loss_validation_and_speed(shown: str) -> None:
    assert shown in rendered_bar(window(), epoch(), window(1))


def test_the_numbers_fit_into_a_line_of_eighty_characters() -> None:
    (line,) = rendered_bar(window(), epoch(), window(1), width=80).strip().splitlines()
    assert "…" not in line
    assert line.rstrip().endswith(" left")


def test_the_bar_says_where_the_number_of_windows_is_unknown() -> None:
    assert "1/?" in rendered_bar(window(windows=None))


def test_the_bar_shows_the_loss_of_every_phase() -> None:
    shown = rendered_bar(window(phase="critic", loss=0.5), window(phase="generator", loss=0.75))
    assert "critic 0.5000  generator 0.7500" in shown


def test_the_bar_counts_the_speed_from_the_first_window_it_saw() -> None:
    assert "  2 steps/s" in rendered_bar(window(500, windows=1000, seconds=0.5))


def test_the_bar_shows_what_batches_are_cut_to_after_memory_ran_out() -> None:
    assert "cut" not in rendered_bar(window())
    assert "cut to 16" in rendered_bar(window(micro_batch_limit=16))


def test_the_bar_shows_a_notable_wait_for_data_once_however_many_phases_there_are() -> None:
    assert "waiting" not in rendered_bar(window(seconds=100.0, data_seconds=1.0))
    both = [window(phase=name, seconds=75.0, data_seconds=25.0) for name in ("critic", "generator")]
    assert "25% waiting for data" in rendered_bar(*both)


def test_notices_and_failed_checkpoints_stand_above_the_bar_as_they_are() -> None:
    shown = rendered_bar(window(), TrainingNotice(message="reads [b]"), checkpoint(problem="disk full"), checkpoint(2))
    problem = "! the checkpoint step-1 was not written; training continues: disk full\n"
    assert shown.index("! reads [b]\n") < shown.index(problem) < shown.rindex("epoch 1/3")
    assert "step-2" not in shown


def test_the_first_consumer_of_a_chain_sees_a_report_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    passed = ConsumerChain([JsonLines(first), JsonLines(second)])([window()])
    assert next(passed) == window()
    assert first.getvalue() == second.getvalue() == as_json(window()) + "\n"


def test_a_chain_without_consumers_hands_reports_on() -> None:
    assert list(ConsumerChain()([window(), epoch()])) == [window(), epoch()]


def test_consumers_compose_around_a_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Linear(2, 1)

    def loss(batch: Tensor) -> Loss:
        return Loss(net(batch).square().mean(), len(batch))

    def train(run: TrainingRun[Tensor]) -> list[Report]:
        source = IterableSource([torch.randn(4, 2)] * 3)
        reports = run.epochs(source, max_epochs=2, validation=Validation(loss, source))
        return list(JsonlLog(tmp_path / "log.jsonl")(PlainProgress(stream)(reports)))

    stream = io.StringIO()
    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    with Loop([phase], modules={"net": net}, device="cpu", accumulate=2).running() as run:
        reports = train(run)
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines == [as_json(report) for report in reports]
    assert [json.loads(line)["kind"] for line in lines] == ["window", "window", "epoch"] * 2
    assert len(stream.getvalue().splitlines()) == 2
