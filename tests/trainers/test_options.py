"""Shared training flags: accepted values, refusals, and the consumers that they configure."""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from loop_reports import epoch, window
from typer.testing import CliRunner

from predictor.cli.flags import with_flags
from trainers.cli.commands import app
from trainers.loop import Report, SettingsError
from trainers.options import ComputationOptions, RunOptions, consumer

REPORTS: list[Report] = [window(), epoch()]


@dataclass(frozen=True, kw_only=True)
class EveryOption(ComputationOptions, RunOptions):
    """All shared settings."""


class Program:
    """A program with every shared flag that records its values."""

    def __init__(self) -> None:
        self.given: EveryOption | None = None

    def train(self, *, options: EveryOption) -> None:
        self.given = options

    def call(self, *flags: str) -> tuple[int, str]:
        """Run a command; returns its exit code and output."""
        app = typer.Typer(add_completion=False)
        app.command()(with_flags(self.train))
        ended = CliRunner().invoke(app, flags, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
        return ended.exit_code, ended.output


def test_help_shows_every_flag() -> None:
    code, shown = Program().call("--help")
    assert code == 0
    flags = (
        "--device --precision --accumulate --clip --oom --nonfinite --ema --compile --deterministic --seed --threads "
        "--resume --checkpoint-seconds --keep --profile --tensorboard --parent-watch --json"
    )
    for flag in flags.split():
        assert f"{flag} " in shown
    for choices in ("auto|fp32|bf16|fp16", "split|fail", "skip|raise"):
        assert choices in shown


def test_without_flags_the_options_are_the_default_ones() -> None:
    program = Program()
    assert program.call() == (0, "")
    assert program.given == EveryOption()


def test_every_flag_reaches_the_options() -> None:
    program = Program()
    flags = (
        "--device cuda:1 --precision bf16 --accumulate 4 --clip inf --oom fail --nonfinite raise --ema 0.999 --compile "
        "--deterministic --seed 7 --threads 2 --resume --checkpoint-seconds 60 --keep 5 --profile --tensorboard "
        "--parent-watch --json"
    )
    assert program.call(*flags.split()) == (0, "")
    assert program.given == EveryOption(
        device="cuda:1",
        precision="bf16",
        accumulate=4,
        clip=float("inf"),
        oom="fail",
        nonfinite="raise",
        ema=0.999,
        compiled=True,
        deterministic=True,
        seed=7,
        threads=2,
        resume=True,
        checkpoint_seconds=60.0,
        keep=5,
        profile=True,
        tensorboard=True,
        parent_watch=True,
        as_json=True,
    )


@pytest.mark.parametrize("name", ["auto", "cpu", "mps", "cuda", "cuda:0", "xpu", "xpu:3"])
def test_a_device_is_taken_by_its_name(name: str) -> None:
    assert Program().call("--device", name) == (0, "")


BAD = [
    ("--device abacus", "'abacus' is not a device; use auto, cpu, cuda, cuda:N, xpu, xpu:N or mps"),
    ("--device cuda:", "'cuda:' is not a device"),
    ("--device mps:0", "'mps:0' is not a device"),
    ("--precision fp8", "'fp8' is not one of 'auto', 'fp32', 'bf16', 'fp16'"),
    ("--accumulate 0", "greater than or equal to 1"),
    ("--clip 0", "0 is not a norm to clip at; it must be above 0, or inf"),
    ("--clip nan", "nan is not a norm"),
    ("--oom skip", "'skip' is not one of 'split', 'fail'"),
    ("--nonfinite zero", "'zero' is not one of 'skip', 'raise'"),
    ("--ema 1", "1 is not a decay; it must be above 0 and below 1, such as 0.999"),
    ("--ema 0", "0 is not a decay"),
    ("--ema nan", "nan is not a decay"),
    ("--seed -1", "greater than or equal to 0"),
    ("--seed 4294967296", "less than or equal to 4294967295"),
    ("--threads 0", "greater than or equal to 1"),
    ("--checkpoint-seconds 0", "0 is not a time between checkpoints; it must be above 0, or inf"),
    ("--checkpoint-seconds nan", "nan is not a time"),
    ("--keep 0", "greater than or equal to 1"),
]


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_a_value_out_of_range_is_bad_usage_and_names_its_flag(flags: str, message: str) -> None:
    program = Program()
    code, shown = program.call(*flags.split())
    assert code == 2
    assert message in shown
    assert f"Invalid value for '{flags.split(maxsplit=1)[0]}'" in shown
    assert program.given is None


def screen_output(options: RunOptions, folder: Path, *, rank: int = 0) -> str:
    """Screen output of a short run."""
    screen = io.StringIO()
    assert list(consumer(options, folder, screen, rank=rank)(REPORTS)) == REPORTS
    return screen.getvalue()


def test_a_run_has_its_log_and_plain_progress_on_a_screen_that_is_no_terminal(tmp_path: Path) -> None:
    shown = screen_output(RunOptions(), tmp_path / "1.run")
    assert shown.startswith("epoch 1/3  loss 0.5")
    assert [file.name for file in (tmp_path / "1.run").iterdir()] == ["reports.jsonl"]


def test_with_json_the_screen_gets_the_lines_of_the_log(tmp_path: Path) -> None:
    shown = screen_output(RunOptions(as_json=True), tmp_path)
    assert [json.loads(line)["kind"] for line in shown.splitlines()] == ["window", "epoch"]
    assert shown == (tmp_path / "reports.jsonl").read_text(encoding="utf-8")


def test_a_report_is_in_the_log_before_it_is_on_the_screen(tmp_path: Path) -> None:
    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            assert (tmp_path / "reports.jsonl").read_text(encoding="utf-8").endswith(text)
            return super().write(text)

    passing = consumer(RunOptions(as_json=True), tmp_path, Screen())(REPORTS)
    assert list(passing) == REPORTS


def test_curves_for_tensorboard_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    screen_output(RunOptions(tensorboard=True), tmp_path)
    assert sorted(file.name for file in (tmp_path / "tensorboard").iterdir()) == ["epochs", "windows"]


def test_a_trace_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    reports = [window(number) for number in range(6)]
    passed = list(consumer(RunOptions(profile=True), tmp_path, io.StringIO())(reports))
    assert passed[:-1] == reports
    assert (tmp_path / "profile" / "trace.json").is_file()


def test_curves_without_their_package_are_refused_before_training_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SettingsError, match="quantra"):
        consumer(RunOptions(tensorboard=True), tmp_path, io.StringIO())


def test_all_but_the_first_process_of_a_group_only_hand_the_reports_on(tmp_path: Path) -> None:
    shown = screen_output(RunOptions(profile=True, tensorboard=True, as_json=True), tmp_path / "1.run", rank=1)
    assert shown == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train stock", "tune stock"])
def test_a_training_offers_apples_gpu(command: str) -> None:
    assert "mps" in CliRunner().invoke(app, [*command.split(), "--help"]).output


@pytest.mark.parametrize("command", ["evaluate", "backtest", "audit"])
def test_a_command_that_asks_an_artifact_does_not_offer_apples_gpu(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"]).output

    assert "cuda:N" in shown
    assert "mps" not in shown
