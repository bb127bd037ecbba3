"""The demo's walk: train, score, serve, query from Python and C#, report."""

import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final, Self

from rich.console import Console

from predictor import artifact, canonical
from predictor.artifact import load
from predictor.audit_record import read_audit
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import Card
from predictor.cli.output import contributions_table, forecast_table, judgement
from predictor.client import QuantraClient
from predictor.errors import ArtifactError, UnavailableError
from predictor.features import FeatureSet, default_features
from predictor.forecast import Attribution, Detail, TargetPoint
from predictor.inference import choose_device
from predictor.instance import Instance, Query
from predictor.registry import CHAMPION, set_alias
from predictor.replacement import check_folder
from predictor.report import ReportContent, write_report
from predictor.skill import line_of
from trainers.demo import dotnet
from trainers.demo.market import CALENDAR, SYMBOLS, real_bars
from trainers.progress import JsonlLog, progress_for, watched_on
from trainers.stock import StockRecipe, TrainingMaterial, train
from trainers.stock.card import bars_hash, features_identity, libraries_card

_PACKAGES: Final = Path(__file__).parents[2]

"""Where this program's own packages are."""

_OWN: Final = ("predictor", "trainers")


@dataclass(frozen=True, slots=True)
class DemoInputs:
    """All that decides the bytes of a model; times and paths are none of it."""

    content: Mapping[str, Json]

    @classmethod
    def of(cls, bars: BarPanel, features: FeatureSet, recipe: StockRecipe) -> Self:
        """What a training of these would be made of by this program, with these packages."""
        return cls(
            {
                "recipe": recipe.settings(),
                "features": features_identity(features),
                "bars": bars_hash(bars),
                "libraries": libraries_card(),
                "python": python_version(),
                "device": str(choose_device("auto")),
                "quantra": version("quantra"),
                "program": program_hash(),
            }
        )

    def keep(self, records: Path, model: Path) -> None:
        """Write down what the model in this folder was made of, and which one it is."""
        made = {**self.content, "manifest": _manifest_hash(model)}
        _record_of(records, model).write_bytes(canonical.to_bytes(made))

    def made(self, records: Path, model: Path) -> bool:
        """Whether the model in this folder is what a training would make now."""
        wanted = {**self.content, "manifest": _manifest_hash(model)}
        try:
            return _record_of(records, model).read_bytes() == canonical.to_bytes(wanted)
        except OSError:
            return False


def program_hash() -> str:
    """SHA-256 over the names and contents of this program's own modules."""
    digest = hashlib.sha256()
    for path in sorted(path for package in _OWN for path in (_PACKAGES / package).rglob("*.py")):
        digest.update(path.relative_to(_PACKAGES).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _record_of(records: Path, model: Path) -> Path:
    return records / f"{model.name}.made.json"


def _manifest_hash(model: Path) -> str:
    """Of an artifact, all of whose files are verified; empty where there is none that is whole."""
    try:
        return artifact.load(model).manifest_hash
    except ArtifactError:
        return ""


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
class DemoSettings:
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


def walk(settings: DemoSettings, console: Console) -> DemoResult:
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
    skip, program = dotnet.reason_to_skip(), dotnet.DotnetProgram(settings.out / "csharp")
    question = DemoPrograms(
        port=free_port(program.port), model=MODEL, bars=bars_file.resolve(), symbol=SYMBOL, models=models
    )
    with ExitStack() as stack:
        build = None if skip else stack.enter_context(program.building(question.csharp))
        card = DemoTraining(bars=bars, recipe=StockRecipe(calendar=CALENDAR), out=settings.out).done(console)
        console.print(judgement(card))
        with console.status("starting the server"):
            server = stack.enter_context(serving(models, keep=settings.keep_serving, port=free_port(question.port)))
        question = replace(question, port=server.port)
        _ask_python(question, bars.select([SYMBOL]), report, console)
        if skip:
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
    question: DemoPrograms, program: dotnet.DotnetProgram, build: subprocess.Popen[str] | None, console: Console
) -> UnavailableError | None:
    """Ask from C#; what failed, or None."""
    try:
        ask_csharp(question, program, build, console)
    except UnavailableError as error:
        return error
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTraining:
    """What the demo trains, and where.

    Attributes:
        bars: to train on.
        recipe: every setting.
        out: the demo's folder: models go into its `models`, logs and records into its `training`.
    """

    bars: BarPanel
    recipe: StockRecipe
    out: Path

    def done(self, console: Console) -> Card:
        """Make a model the champion: the newest, if nothing that decides what it is has changed; else a new one.

        Returns:
            The card of the model.
        """
        ingredients = DemoInputs.of(self.bars, default_features(), self.recipe)
        newest = self._newest
        if newest and ingredients.made(self._logs, self._folder(newest)):
            console.rule(f"{MODEL}@{newest} is there: recipe, bars and versions have not changed")
            card = self._card(newest)
        else:
            card = self._trained(newest + 1, console)
            ingredients.keep(self._logs, self._folder(newest + 1))
        set_alias(self._line, CHAMPION, self._newest)
        return card

    @property
    def _line(self) -> Path:
        return self.out / "models" / MODEL

    @property
    def _logs(self) -> Path:
        return self.out / "training"

    @property
    def _newest(self) -> int:
        """The highest version; 0 if there is none."""
        return max((int(p.name) for p in self._line.glob("[0-9]*") if p.name.isdigit()), default=0)

    def _folder(self, version: int) -> Path:
        return self._line / str(version)

    def _card(self, version: int) -> Card:
        return Card.from_json(canonical.to_bytes(load(self._folder(version)).artifact.manifest.card).decode())

    def _trained(self, version: int, console: Console) -> Card:
        """Train a version, with its log next to the models."""
        told = f"{', '.join(self.bars.symbols)}: {len(self.bars.sessions)} real daily bars"
        console.rule(f"training {MODEL}@{version} on {told}")
        self._logs.mkdir(parents=True, exist_ok=True)
        log, shown = JsonlLog(self._logs / f"{version}.jsonl"), progress_for(console.file)
        return train(
            TrainingMaterial(self.bars, default_features()),
            self.recipe,
            self._folder(version),
            consume=lambda reports: log(shown(reports)),
            announce=lambda stage: console.print(f"{stage} …", style="dim"),
            warn=lambda line: console.print(f"warning: {line}", style="yellow", markup=False),
            stepwise=watched_on(console.file),
        ).summary


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


def ask_csharp(
    question: DemoPrograms, program: dotnet.DotnetProgram, build: subprocess.Popen[str] | None, console: Console
) -> None:
    """Wait for the build, if there is one, run the question's C# program and show what it says.

    Raises:
        UnavailableError: it failed; its output is shown.
    """
    console.rule("asking from C#")
    with console.status("building the C# program"):
        answer = program.answer(question.csharp, build)
    console.print(answer.stdout.rstrip(), markup=False)
    if answer.returncode:
        raise UnavailableError(
            f"the C# program in {program.folder} ended with exit code {answer.returncode}; its output is above, "
            "and everything before it is done"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoServer:
    """A server that answers."""

    process: "subprocess.Popen[str]"
    port: int

    def stop(self) -> None:
        """Let calls in flight finish, then end the process."""
        self.process.terminate()
        self.process.wait(timeout=30)


def free_port(wanted: int) -> int:
    """The port of this machine that is wanted, if nobody listens there; else another one that is free now."""
    for port in (wanted, 0):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    raise UnavailableError("this machine has no free port to serve on")


def start(models: Path, port: int) -> DemoServer:
    """Start a server on a port and wait until it answers.

    Raises:
        UnavailableError: it ended before it was ready; its own message is above.
    """
    options = ["--models", str(models), "--listen", f"127.0.0.1:{port}", "--log-level", "warning"]
    command = [sys.executable, "-m", "predictor.server", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own server
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise UnavailableError(f"the server ended with exit code {process.wait()} before it was ready")
    return DemoServer(process=process, port=int(json.loads(line)["port"]))


@contextmanager
def serving(models: Path, *, keep: bool, port: int = 0) -> Generator[DemoServer]:
    """A server for the time inside, on this port or on any; it goes on afterwards if `keep`."""
    server = start(models, port)
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
