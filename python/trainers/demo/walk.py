"""The demo's walk: train, score, serve, ask from Python and C#, report."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.features import default_features
from predictor.cli.scores import judgement
from predictor.cli.tables import contributions_table, forecast_table
from predictor.forecast import Attribution, Detail, TargetPoint
from predictor.instance import Instance, Query
from predictor.registry import CHAMPION, set_alias
from predictor.report import ReportContent, write_report
from trainers.demo import dotnet
from trainers.demo.market import CALENDAR, SYMBOLS, demo_bars
from trainers.demo.programs import Question
from trainers.demo.server import Serving, serving
from trainers.progress import JsonlLog, progress_for
from trainers.stock import Recipe, train

MODEL = "demo"
SYMBOL = SYMBOLS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the demo writes, and what it leaves running or opens."""

    out: Path
    keep_serving: bool = False
    open_browser: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """What the demo leaves behind."""

    report: Path
    question: Question
    pid: int | None
    """Of the server that goes on; None if it was stopped."""


def walk(settings: Settings, console: Console) -> Walked:
    """Do everything once.

    Raises:
        QuantraError: a step failed; the message says which and what to do.
    """
    bars = demo_bars()
    models, bars_file = settings.out / "models", settings.out / "bars.csv"
    settings.out.mkdir(parents=True, exist_ok=True)
    bars.write_csv(bars_file)
    program = dotnet.Program(settings.out / "csharp")
    skip = dotnet.reason_to_skip()
    building = None
    if not skip:
        program.write("// asks once the server is there\n")
        building = program.build()
    _train(bars, models, console)
    with serving(models, keep=settings.keep_serving) as server:
        question = Question(port=server.port, model=MODEL, bars=bars_file.resolve(), symbol=SYMBOL, models=models)
        report = _ask_python(server, bars, settings.out, console)
        if building is None:
            console.print(f"[dim]C# is not asked: {skip}.[/]")
        else:
            console.rule("asking from C#")
            with console.status("building the C# program"):
                building.communicate()
                program.write(question.csharp)
                answer = program.run()
            console.print(answer.stdout.rstrip(), markup=False)
            if answer.returncode:
                console.print(f"[red]The C# program ended with exit code {answer.returncode}.[/]")
    if settings.open_browser:
        webbrowser.open(report.resolve().as_uri())
    return Walked(report=report, question=question, pid=server.process.pid if settings.keep_serving else None)


def _train(bars: BarPanel, models: Path, console: Console) -> None:
    line = models / MODEL
    version = 1 + max((int(p.name) for p in line.glob("[0-9]*") if p.name.isdigit()), default=0)
    console.rule(f"training {MODEL} {version} on {', '.join(bars.symbols)}: {len(bars.sessions)} real daily bars")
    folder = line.parent.parent / "training"
    folder.mkdir(parents=True, exist_ok=True)
    log, shown = JsonlLog(folder / f"{version}.jsonl"), progress_for(console.file)
    trained = train(
        bars,
        default_features(),
        Recipe(calendar=CALENDAR),
        line / str(version),
        consume=lambda reports: log(shown(reports)),
    )
    set_alias(line, CHAMPION, version)
    console.print(judgement(trained.told))


def _ask_python(server: Serving, bars: BarPanel, out: Path, console: Console) -> Path:
    console.rule(f"serving on 127.0.0.1:{server.port}, asking from Python")
    with QuantraClient(f"127.0.0.1:{server.port}", model=MODEL) as client:
        one = bars.select([SYMBOL])
        forecast = client.predict(one)
        attributions = _explain(client, one)
        info = client.model(MODEL)
    console.print(forecast_table(forecast, SYMBOL, bars.currency))
    console.print(contributions_table(attributions[-1], SYMBOL))
    report = out / "report.html"
    write_report(
        report,
        ReportContent(info=info, bars=one, forecast=forecast, attributions=attributions, symbol=SYMBOL),
    )
    return report


def _explain(client: QuantraClient, bars: BarPanel) -> tuple[Attribution, ...]:
    info = client.model(MODEL)
    targets = tuple(TargetPoint(h, q) for h in info.horizons for q in info.quantiles)
    query = Query(instance=Instance(input=bars), targets=targets, detail=Detail.CELLS)
    return client.explain(query).attributions
