"""`quantra daily`, `quantra simulate`, `quantra replay` and `quantra schedule`."""

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console
from rich.text import Text

from predictor.adaptive_widths import WIDTHS
from predictor.artifact.manifest import MANIFEST
from predictor.bars import BarPanel
from predictor.bars.source import is_address
from predictor.canonical import Json
from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson, BarsFlags, CovariateFlags, Report, WorkerFlags
from predictor.cli.output import list_given_flags, print_next_commands, quantra, write_json
from predictor.covariates import CovariateSource
from predictor.draft_folder import publish_folder
from predictor.errors import ConfigurationError, format_count, format_date, format_names
from predictor.evidence import Lamp
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.ledger import Ledger, LedgerEvent
from predictor.registry import claim_first_champion, find_model_folder, find_version
from predictor.registry.layout import list_names, list_versions
from predictor.replacement import replace_file
from trainers.progress import no_progress, progress_on
from trainers.stock.daily.evenings import EVENING, DailySettings, DailySummary, EveningAction, run_due_evenings
from trainers.stock.daily.renewal import AutomaticRenewal
from trainers.stock.daily.replay import (
    ForecastReplay,
    find_forecasts,
    record_replays,
    replay_forecasts,
    sample_forecasts,
)
from trainers.stock.feature_cache import open_cache
from trainers.stock.flags import CacheFolder
from trainers.stock.lifecycle.command import PERSON_NEEDED, ModelsFolder
from trainers.stock.progress_output import warn_on_stderr
from trainers.stock.splits import parse_day_flag

_COLOURS = {Lamp.GREEN: "green", Lamp.AMBER: "yellow", Lamp.RED: "red", Lamp.LEARNING: "dim"}

LedgerAddress = Annotated[
    str,
    typer.Option(metavar="LEDGER", help="Its file, or postgresql://user@host/database; created if it is missing."),
]
AcceptSuspectBars = Annotated[
    bool, typer.Option("--accept-suspect-bars", help="Accept bars that contradict their history, with a warning.")
]
ModelName = Annotated[str, typer.Option(metavar="NAME", help="The model; by default the only one of the folder.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFlags:
    """Actions that the evidence may trigger."""

    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Widen or narrow the champion's bands by how often outcomes were outside since its training.",
        ),
    ] = False

    serve_best: Annotated[
        bool, typer.Option("--serve-best", help="Report the simplest model that the champion is not shown to beat.")
    ] = False
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train the next version if a lamp is red or the calendar ends soon.")
    ] = False
    promote: Annotated[
        bool, typer.Option("--promote", help="With --retrain: make a version the champion if it passes all gates.")
    ] = False
    feature_cache: CacheFolder = None

    @property
    def after_evening(self) -> EveningAction | None:
        """The action that the flags ask for.

        Raises:
            BadParameter: --promote or --feature-cache is given without --retrain.
        """
        if self.promote and not self.retrain:
            raise typer.BadParameter("--promote needs --retrain; to promote a version by hand, use quantra promote")
        if self.feature_cache is not None and not self.retrain:
            raise typer.BadParameter("--feature-cache needs --retrain; forecasts read few bars and keep no features")
        cache = open_cache(self.feature_cache, warn_on_stderr)
        return AutomaticRenewal(can_promote=self.promote, cache=cache) if self.retrain else None


@with_flags
def daily_command(
    *,
    bars: BarsFlags,
    files: CovariateFlags,
    ledger: LedgerAddress,
    models: ModelsFolder = Path("models"),
    name: ModelName = "",
    accept_suspect_bars: AcceptSuspectBars = False,
    evidence: EvidenceFlags,
    machines: WorkerFlags,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Run the evenings that are due: record bars, score old forecasts, make new ones, and test the champion.

    It catches up on missed evenings, and a second run writes nothing. The exit code is 3 if a person should look.
    """
    torch.set_num_threads(1)
    now, after_evening, model_folder = datetime.now(UTC), evidence.after_evening, choose_model_folder(models, name)

    def read() -> tuple[BarPanel, CovariateSource]:
        return bars.read(), files.read()

    # Files that cannot be read leave no new ledger.
    early = None if is_address(ledger) or Path(ledger).exists() else read()
    with Ledger.open(ledger, create=True) as opened, opened.claim_run() as holder:
        if holder:
            if as_json:
                write_json({"skipped": f"{ledger} is in use by {holder}"})
            else:
                typer.echo(f"{ledger} is in use by {holder}, so nothing was done.")
            return
        # What was read before the claim may be older than the bars of a run that has ended since.
        panel, covariates = read() if early is None or opened.receipt.batch else early
        settings = DailySettings(
            ledger=opened,
            model_folder=model_folder,
            covariates=covariates,
            accept_suspect_bars=accept_suspect_bars,
            serve_best=evidence.serve_best,
            runner=machines.runner(),
            adaptive=evidence.adaptive,
        )
        summary = run_due_evenings(settings, panel, now, after_evening=after_evening)
        write_page(report, settings, summary)
    print_summary(summary, as_json=as_json)
    if not as_json:
        print_next_commands(quantra("ledger", "show", ledger))
    if summary.findings:
        raise typer.Exit(PERSON_NEEDED)


@with_flags
def simulate_command(  # noqa: PLR0913 - one per flag
    *,
    bars: BarsFlags,
    files: CovariateFlags,
    first: Annotated[str, typer.Option("--from", metavar="DATE", help="The first evening.")],
    last: Annotated[str, typer.Option("--to", metavar="DATE", help="The last evening.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the ledger and a copy of the model.")],
    ledger: Annotated[
        str,
        typer.Option(metavar="LEDGER", help="Another file or database for the ledger; by default ledger.db in --out."),
    ] = "",
    models: ModelsFolder = Path("models"),
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The model, or NAME@VERSION; by default the only one of the folder.")
    ] = "",
    evidence: EvidenceFlags,
    evidence_every: Annotated[
        int, typer.Option(metavar="N", min=1, help="Sessions between two tests of coverage and skill.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Run the evenings of past years in minutes, as `quantra daily` would have done.

    It works on a copy of one version in --out. Repeat the command to continue a simulation that was stopped.
    """
    torch.set_num_threads(1)
    begin, end = parse_day_flag("--from", first), parse_day_flag("--to", last)
    panel, covariates, after_evening = bars.read(), files.read(), evidence.after_evening
    out.mkdir(parents=True, exist_ok=True)
    ledger = ledger or str(out / LEDGER_FILE)
    with Ledger.open(ledger, create=True) as opened, opened.claim_run() as holder:
        if holder:
            raise ConfigurationError(f"{ledger} is in use by {holder}; wait until it ends, or choose another --ledger")
        model_folder = copy_version(models, name or choose_model_folder(models, name).name, out / "models")
        settings = DailySettings(
            ledger=opened,
            model_folder=model_folder,
            covariates=covariates,
            evidence_every=evidence_every,
            accept_suspect_bars=True,
            serve_best=evidence.serve_best,
            adaptive=evidence.adaptive,
        )
        summary = run_due_evenings(
            settings,
            panel.until(end),
            AFTER_ALL_SESSIONS,
            first=begin,
            after_evening=after_evening,
            track_steps=no_progress if as_json else progress_on(sys.stdout),
        )
        write_page(out / PAGE_FILE, settings, summary)
        happened = opened.records(LedgerEvent, f"kind not in ('{EVENING}', '{WIDTHS}')")
    if not as_json:
        for event in happened:
            day = format_date(event.session) if event.session else 10 * " "  # moves of a champion have no session
            typer.echo(f"{day}  {event.kind}: {event.reason}")
    print_summary(summary, as_json=as_json)
    if not as_json:
        print_next_commands(
            quantra("ledger", "show", ledger),
            quantra("replay", "--sample", 100, "--ledger", ledger, "--models", out / "models"),
        )


LEDGER_FILE = "ledger.db"
PAGE_FILE = "page.html"


def write_page(path: Path | None, settings: DailySettings, summary: DailySummary) -> None:
    """Write the page of the last evening, if a path is given and an evening was run."""
    if path is not None and summary.session:
        from trainers.stock.daily.page import render_evenings  # slow to import

        replace_file(path, render_evenings(settings, summary).encode())


def copy_version(models: Path, reference: str, out: Path) -> Path:
    """Copy one version into another folder of models as the champion, unless it is already there.

    Raises:
        ConfigurationError: the folder has the model, but not this version of it.
    """
    model_folder, version = find_version(models, reference)
    source, copied = model_folder / str(version), out / model_folder.name / str(version)
    if copied.exists():
        if (copied / MANIFEST).read_bytes() != (source / MANIFEST).read_bytes():
            raise ConfigurationError(f"{copied} is another model than {source}; choose another --out")
    elif copied.parent.exists() and list_versions(copied.parent):
        raise ConfigurationError(f"{copied.parent} has no version {version}; choose another --out")
    else:
        with publish_folder(copied) as draft:
            shutil.copytree(source, draft, dirs_exist_ok=True)
    claim_first_champion(copied)
    return copied.parent


def replay_command(
    *,
    forecast_id: Annotated[
        str, typer.Argument(metavar="FORECAST_ID", help="A recorded forecast.", show_default=False)
    ] = "",
    ledger: Annotated[str, typer.Option(metavar="LEDGER", help="Its file or database.")],
    models: ModelsFolder = Path("models"),
    sample: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Replay N forecasts instead, drawn from all models.")
    ] = None,
    covariates: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Covariates. Repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute recorded forecasts again from the recorded bars and weights, and compare every bit.

    The result is recorded as an event. The exit code is 3 if a forecast differs or cannot be computed.
    """
    torch.set_num_threads(1)
    if bool(forecast_id) == (sample is not None):
        raise typer.BadParameter("give either FORECAST_ID or --sample N")
    with Ledger.open(ledger) as opened:
        records = find_forecasts(opened, forecast_id) if sample is None else sample_forecasts(opened, sample)
        if not records:
            raise ConfigurationError(f"{ledger} has no forecast that can be replayed; run quantra daily first")
        track_steps = no_progress if as_json else progress_on(sys.stderr)
        source = CovariateSource.read(covariates or (), None)
        replays = replay_forecasts(opened, models, records, source, track_steps=track_steps)
        record_replays(opened, replays)
    unequal = [replay for replay in replays if replay.result != "equal"]
    equal = len(replays) - len(unequal)
    if as_json:
        different, failed = (
            [_describe_replay(replay) for replay in unequal if replay.result == result]
            for result in ("different", "failed")
        )
        write_json({"equal": equal, "different": different, "failed": failed})
    else:
        typer.echo(f"{equal} of {len(replays)} forecasts are equal to the last bit.")
        for replay in unequal:
            record = replay.record
            origin = f"{record.model}@{record.version}, {record.symbol}, {format_date(record.as_of)}"
            reason = f"it cannot be computed: {replay.failure}" if replay.failure else "; ".join(replay.differences)
            typer.echo(f"{record.forecast_id} ({origin}): {reason}")
    if unequal:
        raise typer.Exit(PERSON_NEEDED)


def _describe_replay(replay: ForecastReplay) -> dict[str, Json]:
    record = replay.record
    return {
        "forecast_id": record.forecast_id,
        "symbol": record.symbol,
        "model": f"{record.model}@{record.version}",
        "as_of": record.as_of,
        **({"failure": replay.failure} if replay.failure else {"differences": list(replay.differences)}),
    }


def choose_model_folder(models: Path, name: str) -> Path:
    """The folder of the named model, or of the only one.

    Raises:
        BadParameter: no name is given, and there is not exactly one model.
    """
    if not name:
        names = sorted(list_names(models))
        if len(names) != 1:
            raise typer.BadParameter(
                f"{models} holds {len(names)} models; choose one with --name: {format_names(names)}"
            )
        (name,) = names
    return find_model_folder(models, name)


def print_summary(summary: DailySummary, *, as_json: bool) -> None:
    """Print what was done, the lamp, and what a person should look at."""
    if as_json:
        write_json(summary.to_json())
        return
    console = Console(highlight=False)
    reference = f"{summary.model}@{summary.champion}"
    if not summary.session:
        console.print("No session of these bars has closed yet; nothing was done.")
        return
    evenings = format_count(summary.evenings, "evening")
    rows_written = f"{format_count(summary.rows, 'row')} and {format_count(summary.bars, 'bar')} written"
    console.print(f"{reference}, {format_date(summary.session)}: {evenings}, {rows_written}.", markup=False)
    console.print(Text.assemble("Lamp: ", (summary.lamp.value, _COLOURS[summary.lamp])))
    for sentence in summary.notes:
        console.print(sentence, markup=False)
    for reason in list(summary.refused.values())[:_MAX_LISTED]:
        console.print(f"no forecast of {reason}", style="yellow", markup=False)  # it begins with the symbol
    if len(summary.refused) > _MAX_LISTED:
        console.print(f"and {len(summary.refused) - _MAX_LISTED} more symbols (--json lists all)", style="yellow")
    if summary.refused:
        console.print("Bars that arrive later do not produce a forecast for this session.", style="yellow")
    for finding in summary.findings:
        console.print(f"needs attention: {finding}", style="red", markup=False)


_MAX_LISTED = 5


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
    flags = [*list_given_flags(bars, evidence), "--ledger", ledger, "--models", str(models)]
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
