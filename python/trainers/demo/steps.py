"""Steps of the demo: train, score, serve, query from Python and C#, report."""

import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final

from rich.console import Console

from predictor import artifact, canonical
from predictor.artifact import load
from predictor.audit_record import read_audit
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.card import Card
from predictor.cli.output import make_contributions_table, make_forecast_table, make_judgement
from predictor.client import QuantraClient
from predictor.errors import ArtifactError, UnavailableError
from predictor.features import FeatureSet, load_default_features
from predictor.forecast import Attribution, Detail, TargetPoint
from predictor.inference import choose_device
from predictor.instance import ExplanationQuery, Instance
from predictor.registry import CHAMPION, set_alias
from predictor.replacement import check_folder
from predictor.report import ReportContent, write_report
from predictor.skill import format_skill
from trainers.demo import dotnet
from trainers.demo.market import CALENDAR, SYMBOLS, real_bars
from trainers.progress import JsonlLog, progress_for, progress_on
from trainers.stock import StockRecipe, TrainingMaterial, train
from trainers.stock.card import hash_bars, identify_features, list_libraries

_PACKAGES: Final = Path(__file__).parents[2]
"""Folder of this program's packages."""

_OWN: Final = ("predictor", "trainers")


def describe_inputs(bars: BarPanel, features: FeatureSet, recipe: StockRecipe) -> dict[str, Json]:
    """Everything that affects the bytes of a model, to train again only after a change."""
    return {
        "recipe": recipe.settings(),
        "features": identify_features(features),
        "bars": hash_bars(bars),
        "libraries": list_libraries(),
        "python": python_version(),
        "device": str(choose_device("auto")),
        "quantra": version("quantra"),
        "program": hash_program(),
    }


def hash_program() -> str:
    """SHA-256 over the names and contents of this program's modules."""
    digest = hashlib.sha256()
    for path in sorted(path for package in _OWN for path in (_PACKAGES / package).rglob("*.py")):
        digest.update(path.relative_to(_PACKAGES).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _read_manifest_hash(model: Path) -> str:
    """Hash of a verified artifact's manifest; empty if the artifact is missing or damaged."""
    try:
        return artifact.load(model).manifest_hash
    except ArtifactError:
        return ""


MODEL = "demo"

SYMBOL = SYMBOLS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPrograms:
    """Programs that query the demo's server."""

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
            "from quantra import BarPanel, QuantraClient\n"
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
    """Options of the demo."""

    out: Path
    keep_serving: bool = False
    open_browser: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Results of the demo."""

    report: Path
    programs: DemoPrograms
    pid: int | None
    """Process of the server; None if it was stopped."""
    csharp: Path | None
    """Folder of the C# program; None if C# was skipped."""
    failure: UnavailableError | None
    """Why the C# program failed; the command raises it after showing everything else."""


def run_demo(settings: DemoSettings, console: Console) -> DemoResult:
    """Run all steps.

    Raises:
        QuantraError: a step failed; the message names it and what to do.
    """
    check_folder(settings.out)
    bars, report = real_bars(), settings.out / "report.html"
    models, bars_file = settings.out / "models", settings.out / "bars.csv"
    settings.out.mkdir(parents=True, exist_ok=True)
    bars.write_csv(bars_file)
    failure: UnavailableError | None = None
    skip, program = dotnet.find_reason_to_skip(), dotnet.DotnetProgram(settings.out / "csharp")
    programs = DemoPrograms(
        port=free_port(program.port), model=MODEL, bars=bars_file.resolve(), symbol=SYMBOL, models=models
    )
    with ExitStack() as stack:
        build = None if skip else stack.enter_context(program.building(programs.csharp))
        card = DemoTraining(bars=bars, recipe=StockRecipe(calendar=CALENDAR), out=settings.out).train_or_reuse(console)
        console.print(make_judgement(card))
        with console.status("starting the server"):
            server = stack.enter_context(serving(models, keep=settings.keep_serving, port=free_port(programs.port)))
        programs = replace(programs, port=server.port)
        _run_python_client(programs, bars.select([SYMBOL]), report, console)
        if skip:
            console.print(f"C# is skipped: {skip}.", style="dim", markup=False)
        else:
            try:
                run_csharp_client(programs, program, build, console)
            except UnavailableError as error:
                failure = error
    # Only a graphical browser: a text browser would take over the terminal.
    has_screen = sys.platform in {"win32", "darwin"} or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    if settings.open_browser and has_screen:
        webbrowser.open(report.resolve().as_uri())
    return DemoResult(
        report=report,
        programs=programs,
        pid=server.process.pid if settings.keep_serving else None,
        csharp=None if skip else program.folder,
        failure=failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTraining:
    """The demo's training.

    Attributes:
        bars: bars to train on.
        recipe: every setting.
        out: the demo's folder, with models in `models`, and logs and records in `training`.
    """

    bars: BarPanel
    recipe: StockRecipe
    out: Path

    def train_or_reuse(self, console: Console) -> Card:
        """Train a model unless the newest has the same inputs, and make it the champion.

        Returns:
            The card of the model.
        """
        newest = self._newest
        if newest and self.is_reusable(newest):
            console.rule(f"reusing {MODEL}@{newest}: recipe, bars and versions have not changed")
            card_content = load(self._locate_version(newest)).artifact.manifest.card
            card = Card.from_json(canonical.to_bytes(card_content).decode())
        else:
            card = self._train(newest + 1, console)
            self._locate_record(newest + 1).write_bytes(self._encode_inputs(newest + 1))
        set_alias(self._model_folder, CHAMPION, self._newest)
        return card

    def is_reusable(self, version: int) -> bool:
        """Whether a version was trained from the same inputs, and is neither missing nor damaged."""
        try:
            return self._locate_record(version).read_bytes() == self._encode_inputs(version)
        except OSError:
            return False

    def _encode_inputs(self, version: int) -> bytes:
        """The record of a version: the inputs, and the hash of its manifest."""
        inputs = describe_inputs(self.bars, load_default_features(), self.recipe)
        return canonical.to_bytes({**inputs, "manifest": _read_manifest_hash(self._locate_version(version))})

    def _locate_record(self, version: int) -> Path:
        return self._logs / f"{version}.made.json"

    @property
    def _model_folder(self) -> Path:
        return self.out / "models" / MODEL

    @property
    def _logs(self) -> Path:
        return self.out / "training"

    @property
    def _newest(self) -> int:
        """The highest version; 0 without any."""
        return max((int(p.name) for p in self._model_folder.glob("[0-9]*") if p.name.isdigit()), default=0)

    def _locate_version(self, version: int) -> Path:
        return self._model_folder / str(version)

    def _train(self, version: int, console: Console) -> Card:
        data = f"{', '.join(self.bars.symbols)}: {len(self.bars.sessions)} real daily bars"
        console.rule(f"training {MODEL}@{version} on {data}")
        self._logs.mkdir(parents=True, exist_ok=True)
        log, progress = JsonlLog(self._logs / f"{version}.jsonl"), progress_for(console.file)
        return train(
            TrainingMaterial(self.bars, load_default_features()),
            self.recipe,
            self._locate_version(version),
            consume=lambda reports: log(progress(reports)),
            announce=lambda stage: console.print(f"{stage} …", style="dim"),
            warn=lambda line: console.print(f"warning: {line}", style="yellow", markup=False),
            track_steps=progress_on(console.file),
        ).summary


def _run_python_client(programs: DemoPrograms, bars: BarPanel, report: Path, console: Console) -> None:
    console.rule(f"serving on 127.0.0.1:{programs.port}, query from Python")
    with QuantraClient(f"127.0.0.1:{programs.port}", model=MODEL) as client:
        info = client.model()
        forecast = client.predict(bars)
        console.print(make_forecast_table(forecast, SYMBOL, bars.currency))
        for note in forecast.notes:
            console.print(note, markup=False)
        attributions = _explain(client, bars)
    console.print(make_contributions_table(attributions[-1], SYMBOL))
    console.print(format_skill(attributions[-1].skill), markup=False)
    content = ReportContent(
        info=info,
        bars=bars,
        forecast=forecast,
        attributions=attributions,
        symbols=(SYMBOL,),
        audit=read_audit(programs.models / MODEL / str(info.version)),
    )
    write_report(report, content)


def _explain(client: QuantraClient, bars: BarPanel) -> tuple[Attribution, ...]:
    """Explain every horizon and quantile, by session and feature."""
    info = client.model()
    targets = tuple(TargetPoint(h, q) for h in info.horizons for q in info.quantiles)
    query = ExplanationQuery(instance=Instance(input=bars), targets=targets, detail=Detail.CELLS)
    return client.explain(query).attributions


def run_csharp_client(
    programs: DemoPrograms, program: dotnet.DotnetProgram, build: subprocess.Popen[str] | None, console: Console
) -> None:
    """Wait for the build, if any, run the C# program, and show its output.

    Raises:
        UnavailableError: the program failed; its output is shown.
    """
    console.rule("query from C#")
    with console.status("building the C# program"):
        answer = program.answer(programs.csharp, build)
    console.print(answer.stdout.rstrip(), markup=False)
    if answer.returncode:
        raise UnavailableError(
            f"the C# program in {program.folder} failed with exit code {answer.returncode}; its output is above, "
            "and all steps before it are done"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoServer:
    """A running server."""

    process: "subprocess.Popen[str]"
    port: int

    def stop(self) -> None:
        """Finish the calls in flight, then end the process."""
        self.process.terminate()
        self.process.wait(timeout=30)


def free_port(preferred_port: int) -> int:
    """The wanted port of this machine if it is free, else another free one."""
    for port in (preferred_port, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UnavailableError("this machine has no free port to serve on")


def start(models: Path, port: int) -> DemoServer:
    """Start a server on a port, and wait until it is ready.

    Raises:
        UnavailableError: the server ended before it was ready; its message is above.
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
    """Run a server during the block, on this port or, if 0, on any; with `keep` it runs on afterwards."""
    server = start(models, port)
    try:
        yield server
    except BaseException:
        server.stop()
        raise
    if not keep:
        server.stop()
