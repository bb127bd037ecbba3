"""`quantra schedule`: the scheduler entry that runs `quantra daily`."""

import shlex
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.cli.flags import with_flags
from predictor.cli.options import BarsFlags
from predictor.cli.output import given
from predictor.errors import ConfigurationError
from trainers.stock.daily.command import EvidenceFlags, LedgerAddress, ModelName
from trainers.stock.lifecycle.command import ModelsFolder


class Scheduler(StrEnum):
    """The scheduler that starts the command."""

    CRON = "cron"
    SYSTEMD = "systemd"
    WINDOWS = "windows"


_SYSTEMD: Final = """# ~/.config/systemd/user/quantra-daily.service
[Unit]
Description=Quantra: record, score and forecast

[Service]
Type=oneshot
WorkingDirectory={folder}
ExecStart={command}
SuccessExitStatus=3

# ~/.config/systemd/user/quantra-daily.timer
[Unit]
Description=Quantra every evening

[Timer]
OnCalendar=Mon..Fri {hour:02d}:{minute:02d}
Persistent=true

[Install]
WantedBy=timers.target

# then: systemctl --user daemon-reload && systemctl --user enable --now quantra-daily.timer"""
_DAYS: Final = "MON,TUE,WED,THU,FRI"


@with_flags
def schedule_command(
    *,
    scheduler: Annotated[Scheduler, typer.Argument(help="cron, systemd or windows.", show_default=False)],
    bars: BarsFlags,
    ledger: LedgerAddress,
    models: ModelsFolder = Path("models"),
    name: ModelName = "",
    evidence: EvidenceFlags,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="The page to write every evening.")] = None,
    at: Annotated[str, typer.Option(metavar="HH:MM", help="The local time.")] = "18:00",
) -> None:
    """Print the entry of a scheduler that runs `quantra daily` in this folder on every weekday.

    Nothing is installed. If the machine was off on a day, the next run catches up.
    """
    flags = [*given(bars, evidence), "--ledger", ledger, "--models", str(models)]
    flags += ["--name", name] if name else []
    flags += ["--report", str(report)] if report else []
    typer.echo(describe_entry(scheduler, flags, at, Path.cwd()))


def describe_entry(scheduler: Scheduler, flags: list[str], at: str, folder: Path) -> str:
    """The entry as text.

    Raises:
        ConfigurationError: the text is not a time.
    """
    hour, minute = _read_time(at)
    words = [sys.executable, "-m", "quantra", "daily", *flags]
    match scheduler:
        case Scheduler.CRON:
            line = f"cd {shlex.quote(str(folder))} && {shlex.join(words)} >> daily.log 2>&1"
            return f"{minute} {hour} * * 1-5 {line.replace('%', chr(92) + '%')}"  # cron reads % as the end of the line
        case Scheduler.SYSTEMD:
            command = " ".join(map(_quote_for_systemd, words))
            return _SYSTEMD.format(folder=str(folder).replace("%", "%%"), command=command, hour=hour, minute=minute)
        case Scheduler.WINDOWS:
            inner = f'cmd /c cd /d "{folder}" && {subprocess.list2cmdline(words)} >> daily.log 2>&1'
            task = ["schtasks", "/Create", "/TN", "Quantra daily", "/SC", "WEEKLY", "/D", _DAYS, "/ST"]
            return subprocess.list2cmdline([*task, f"{hour:02d}:{minute:02d}", "/TR", inner])


def _read_time(text: str) -> tuple[int, int]:
    hour, _, minute = text.partition(":")
    if not (hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60):  # noqa: PLR2004 - a day
        raise ConfigurationError(f"--at is {text!r}, but must be a time such as 18:00")
    return int(hour), int(minute)


def _quote_for_systemd(word: str) -> str:
    """A word of ExecStart, in which % and $ have a meaning."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or any(c.isspace() or c in "';" for c in word) else word
