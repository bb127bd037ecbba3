"""The terminal sample's live view, while the server of its own is killed under it."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.interop.program import TERMINAL, environment
from benchmarks.report import Row, at_least, at_most
from trainers.demo.market import real_bars

KILLS: Final = 5
_HISTORY: Final = 400


def feed_rows(models: Path, folder: Path, seconds: int, *, judged: bool) -> list[Row]:
    """A day a second; the server is killed five times meanwhile."""
    file = folder / "feed.csv"
    real_bars(["AAPL"]).last(_HISTORY + seconds).write_csv(file)
    days, exit_code = _watched(models, file, seconds)
    detail = f"a day a second, server killed {KILLS} times"
    return [
        at_least("terminal sample, days answered / days", days / seconds, 1.0, detail=detail, judged=judged),
        at_most("terminal sample, exit code: a failed call ends it with 1", exit_code, 0, detail=detail, judged=judged),
    ]


def _watched(models: Path, file: Path, seconds: int) -> tuple[int, int]:
    """How many days were answered, and the exit code: a call that fails ends the sample with 1."""
    command = ["dotnet", str(TERMINAL), "--own-server", "--models", str(models), "--max-restarts", str(KILLS)]
    feed = ["--bars", str(file), "--symbol", "AAPL", "--live", str(seconds), "--pace", "1"]
    days, kills, server = 0, 0, 0
    began = time.monotonic()
    with subprocess.Popen([*command, *feed], env=environment(), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            days += " close " in line
            if ready := re.match(r"server ready.* process (\d+)$", line):
                server = int(ready[1])
            if server and kills < KILLS and time.monotonic() - began > (kills + 1) * seconds / (KILLS + 1):
                os.kill(server, signal.SIGKILL)
                kills, server = kills + 1, 0
    if kills < KILLS:
        raise RuntimeError(f"the server was killed {kills} times, not {KILLS}: it was not ready in time")
    return days, program.returncode
