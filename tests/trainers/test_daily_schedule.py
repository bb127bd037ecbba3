"""Entries for cron, systemd and the Task Scheduler."""

import shlex
import sys
from pathlib import Path

import pytest
from command_exits import program_exit_code

from trainers.cli.commands import app
from trainers.stock.daily.command import Scheduler, describe_entry

FOLDER = Path("/data/my models")
FLAGS = ["--bars", "50% $5.csv", "--ledger", "ledger.db"]


def test_cron_gets_one_line_whose_command_is_ours() -> None:
    minute, hour, *days, command = describe_entry(Scheduler.CRON, FLAGS, "18:05", FOLDER).split(" ", 5)
    assert (minute, hour, days) == ("5", "18", ["*", "*", "1-5"])
    assert shlex.split(command.replace("\\%", "%")) == [
        *("cd", "/data/my models", "&&", sys.executable, "-m", "quantra", "daily", *FLAGS),
        *(">>", "daily.log", "2>&1"),
    ]
    assert "50\\%" in command


def test_systemd_gets_a_service_that_accepts_exit_code_3_and_a_timer_that_catches_up() -> None:
    lines = describe_entry(Scheduler.SYSTEMD, FLAGS, "18:05", FOLDER).splitlines()
    assert f'ExecStart={sys.executable} -m quantra daily --bars "50%% $$5.csv" --ledger ledger.db' in lines
    assert {"WorkingDirectory=/data/my models", "SuccessExitStatus=3", "Persistent=true"} <= set(lines)
    assert "OnCalendar=Mon..Fri 18:05" in lines


def test_windows_gets_a_task_on_weekdays() -> None:
    entry = describe_entry(Scheduler.WINDOWS, FLAGS, "08:05", FOLDER)
    assert entry.startswith('schtasks /Create /TN "Quantra daily" /SC WEEKLY /D MON,TUE,WED,THU,FRI /ST 08:05 /TR "cmd')
    assert '-m quantra daily --bars \\"50% $5.csv\\" --ledger ledger.db' in entry


def test_the_command_prints_the_entry_and_refuses_a_time_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert program_exit_code(app, "schedule", "cron", *FLAGS, "--retrain") == 0
    entry = capsys.readouterr().out
    assert entry.startswith("0 18 * * 1-5 cd ")
    assert "quantra daily --bars '50\\% $5.csv' --retrain --ledger ledger.db --models models >>" in entry
    assert program_exit_code(app, "schedule", "cron", *FLAGS, "--at", "25:00") != 0
