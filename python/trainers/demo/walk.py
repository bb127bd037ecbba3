"""The demo's walk: train, score, serve, query from Python and C#, report."""

import json
import os
import shlex
import subprocess
import sys
import webbrowser
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from predictor.audit_record import read_audit
from predictor.bars import BarPanel
from predictor.cli.output import contributions_table, forecast_table, judgement
from predictor.client import QuantraClient
from predictor.errors import UnavailableError
from predictor.features import default_features
from predictor.forecast import Attribution, Detail, TargetPoint
from predictor.instance import Instance, Query
from predictor.registry import CHAMPION, set_alias
from predictor.replacement import check_folder
from predictor.report import ReportContent, write_report
from predictor.skill import line_of
from trainers.demo import dotnet
from trainers.demo.market import CALENDAR, SYMBOLS, real_bars
from trainers.progress import JsonlLog, progress_for
from trainers.stock import Material, Recipe, train

MODEL = "demo"
SYMBOL = SYMBOLS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPrograms:
    """What the programs query, and which server."""

    port: int
    model: str
    bars: Path
    symbol: str
    models: Path

    @property
    def serve(self) -> str:
        """The command that starts the server again."""
        return f"quantra serve --models {shlex.quote(str(self.models))} --listen 127.0.0.1:{self.port}"

    @property
    def python(self) -> str:
        """Three lines of Python."""
        return (
            "from predictor import BarPanel; from predictor.client import QuantraClient\n"
            f'bars = BarPanel.read("{self.bars.as_posix()}").select(["{self.symbol}"])\n'
            f'print(*QuantraClient("127.0.0.1:{self.port}", model="{self.model}").predict(bars).table(), sep="\\n")\n'
        )

    @property
    def csharp(self) -> str:
        """Five lines of C#."""
        return (
            "using Quantra.Client;\n"
            f'await using var client = new QuantraClient(new Uri("http://127.0.0.1:{self.port}"));\n'
            f'var bars = BarPanel.ReadCsv("{self.bars.as_posix()}").Select("{self.symbol}");\n'
            f'var forecast = await client.PredictAsync(new PredictionRequest("{self.model}", bars));\n'
            "Console.WriteLine(forecast);\n"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the demo writes, and what it leaves running or opens."""

    out: Path
    keep_serving: bool = False
    open_browser: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demo leaves behind."""

    report: Path
    question: DemoPrograms
    pid: int | None
    """Of the server that goes on; None if it was stopped."""
    csharp: Path | None
    """Folder of the C# program; None if C# was not asked."""
    failure: UnavailableError | None
    """Why C# did not answer; to be raised once everything else has been shown."""


def walk(settings: Settings, console: Console) -> DemoResult:
    """Do everything once.

    Raises:
        QuantraError: a step failed; the message says which and what to do.
    """
    check_folder(settings.out)
    bars, report = real_bars(), settings.out / "report.html"
    models, bars_file = settings.out / "models", settings.out / "bars.csv"
    settings.out.mkdir(parents=True, exist_ok=True)
    bars.write_csv(bars_file)
    failure: UnavailableError | None = None
    skip, program = dotnet.reason_to_skip(), dotnet.Program(settings.out / "csharp")
    with ExitStack() as stack:
        build = None if skip else stack.enter_context(program.building())
        _train(bars, settings.out, console)
        with console.status("starting the server"):
            server = stack.enter_context(serving(models, keep=settings.keep_serving))
        question = DemoPrograms(port=server.port, model=MODEL, bars=bars_file.resolve(), symbol=SYMBOL, models=models)
        _ask_python(question, bars.select([SYMBOL]), report, console)
        if build is None:
            console.print(f"C# is not asked: {skip}.", style="dim", markup=False)
        else:
            failure = _failure_of(question, program, build, console)
    if settings.open_browser and _has_screen():
        webbrowser.open(report.resolve().as_uri())
    return DemoResult(
        report=report,
        question=question,
        pid=server.process.pid if settings.keep_serving else None,
        csharp=None if skip else program.folder,
        failure=failure,
    )


def _failure_of(
    question: DemoPrograms, program: dotnet.Program, build: subprocess.Popen[str], console: Console
) -> UnavailableError | None:
    """Ask from C#; what failed, or None."""
    try:
        ask_csharp(question, program, build, console)
    except UnavailableError as error:
        return error
    return None


def _train(bars: BarPanel, out: Path, console: Console) -> None:
    """Train the next version, with its log next to the models, and make it the champion."""
    line, logs = out / "models" / MODEL, out / "training"
    version = 1 + max((int(p.name) for p in line.glob("[0-9]*") if p.name.isdigit()), default=0)
    console.rule(f"training {MODEL} {version} on {', '.join(bars.symbols)}: {len(bars.sessions)} real daily bars")
    logs.mkdir(parents=True, exist_ok=True)
    log, shown = JsonlLog(logs / f"{version}.jsonl"), progress_for(console.file)
    trained = train(
        Material(bars, default_features()),
        Recipe(calendar=CALENDAR),
        line / str(version),
        consume=lambda reports: log(shown(reports)),
        announce=lambda stage: console.print(f"{stage} …", style="dim"),
        warn=lambda line: console.print(f"warning: {line}", style="yellow", markup=False),
    )
    set_alias(line, CHAMPION, version)
    console.print(judgement(trained.summary))


def _ask_python(question: DemoPrograms, bars: BarPanel, report: Path, console: Console) -> None:
    console.rule(f"serving on 127.0.0.1:{question.port}, asking from Python")
    with QuantraClient(f"127.0.0.1:{question.port}", model=MODEL) as client:
        info = client.model()
        forecast = client.predict(bars)
        console.print(forecast_table(forecast, SYMBOL, bars.currency))
        for note in forecast.notes:
            console.print(note, markup=False)
        attributions = _explain(client, bars)
    console.print(contributions_table(attributions[-1], SYMBOL))
    console.print(line_of(attributions[-1].skill), markup=False)
    content = ReportContent(
        info=info,
        bars=bars,
        forecast=forecast,
        attributions=attributions,
        symbols=(SYMBOL,),
        audit=read_audit(question.models / MODEL / str(info.version)),
    )
    write_report(report, content)


def _explain(client: QuantraClient, bars: BarPanel) -> tuple[Attribution, ...]:
    """Every horizon and quantile, in time and feature."""
    info = client.model()
    targets = tuple(TargetPoint(h, q) for h in info.horizons for q in info.quantiles)
    query = Query(instance=Instance(input=bars), targets=targets, detail=Detail.CELLS)
    return client.explain(query).attributions


def ask_csharp(question: DemoPrograms, program: dotnet.Program, build: subprocess.Popen[str], console: Console) -> None:
    """Wait for the build, run the question's C# program and show what it says.

    Raises:
        UnavailableError: it failed; its output is shown.
    """
    console.rule("asking from C#")
    with console.status("building the C# program"):
        build.communicate()
        program.write(question.csharp)
        answer = program.run()
    console.print(answer.stdout.rstrip(), markup=False)
    if answer.returncode:
        raise UnavailableError(
            f"the C# program in {program.folder} ended with exit code {answer.returncode}; its output is above, "
            "and everything before it is done"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that answers."""

    process: "subprocess.Popen[str]"
    port: int

    def stop(self) -> None:
        """Let calls in flight finish, then end the process."""
        self.process.terminate()
        self.process.wait(timeout=30)


def start(models: Path) -> Serving:
    """Start a server on a free port and wait until it answers.

    Raises:
        UnavailableError: it ended before it was ready; its own message is above.
    """
    options = ["--models", str(models), "--listen", "127.0.0.1:0", "--log-level", "warning"]
    command = [sys.executable, "-m", "predictor.server", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own server
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise UnavailableError(f"the server ended with exit code {process.wait()} before it was ready")
    return Serving(process=process, port=int(json.loads(line)["port"]))


@contextmanager
def serving(models: Path, *, keep: bool) -> Generator[Serving]:
    """A server for the time inside; it goes on afterwards if `keep`."""
    server = start(models)
    try:
        yield server
    except BaseException:
        server.stop()
        raise
    if not keep:
        server.stop()


def _has_screen() -> bool:
    """Without one, a browser would be one in text that takes over the terminal."""
    return sys.platform in {"win32", "darwin"} or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
