"""The commands `quantra inspect`, `quantra alias` and `quantra export`."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.audit_record import AuditRecord, AuditVerdict, read_audit
from predictor.card import (
    UNADJUSTED,
    AdoptionFacts,
    Card,
    ConformalFacts,
    DataFacts,
    MemberFacts,
    ParentModel,
    ScoreRow,
    ScoreTable,
    TrainingFacts,
    TuningFacts,
    WeightingFacts,
)
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.cli.options import ArtifactArgument, AsJson, Device
from predictor.cli.output import (
    encode_model_json,
    format_notes,
    make_audit_table,
    make_scores_table,
    make_skill_panel,
    print_next_commands,
    quantra,
    write_json,
)
from predictor.cli.program import say
from predictor.errors import format_count, format_date, format_names
from predictor.interruption import exit_on_interrupt
from predictor.report.templates import format_horizon, format_session

Fact = tuple[str, str]

ID_DIGITS: Final = 16
"""Hexadecimal digits of a hash that are shown."""

_SHOWN_ROWS: Final = 3
"""Rows of scores in the summary: the model and the best baselines."""


def summarise_model(
    info: ModelInfo, card: Card, audit: AuditRecord | None, manifest_hash: str
) -> Iterator[RenderableType]:
    """Skill, one-line facts, the best scores and the audit's verdict: at most 40 lines of 100 columns.

    Args:
        info: inputs and outputs of the model.
        card: training record and scores.
        audit: the newest audit; None without one.
        manifest_hash: SHA-256 of the manifest, in hexadecimal.
    """
    yield make_skill_panel(card.skill)
    yield make_one_line_table(
        [
            *_list_model_facts(info),
            *_list_card_facts(card),
            *_list_identities(info, manifest_hash),
            *_describe_audit(audit),
        ]
    )
    if card.scores is not None:
        yield make_scores_table(card.scores, _select_best(card.scores))
    else:
        yield from format_notes(card.notes)
    yield Text(_describe_more(card), style="dim")


def make_one_line_table(facts: list[Fact]) -> Table:
    """A table of names and values; a narrow terminal wraps the values, never the names."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True, min_width=max(len(name) for name, _ in facts))
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def describe_calendar(info: ModelInfo) -> str:
    """The exchange, and the last day that the model can forecast from."""
    return f"{info.calendar}, ends {format_session(info.calendar_ends)}; for bars after that day, train again"


def list_best_epoch(card: Card, training: TrainingFacts) -> tuple[Fact, ...]:
    """The best epoch, and the number of epochs; nothing for a model without epochs."""
    if not training.epochs:
        return ()
    note = f": {card.start_note}" if card.start_note else ""
    return (("best epoch", f"{training.best_epoch or 'none'} of {len(training.epochs)}{note}"),)


def _list_model_facts(info: ModelInfo) -> Iterator[Fact]:
    horizons = ", ".join(map(str, info.horizons))
    levels = ", ".join(f"{level:g}" for level in info.quantiles)
    features = len(info.observed_features) + len(info.known_features) + len(info.static_features)
    yield "model", f"{info.name}@{info.version}, {info.kind}"
    yield "forecasts", f"{info.target_kind}, lag {info.lag}; horizons {horizons} sessions; quantiles {levels}"
    yield "reads", f"{info.encoder_length} sessions of {features} features: {info.bars_needed} bars of each symbol"
    if info.covariates:
        yield "covariates", format_names([covariate.name for covariate in info.covariates])
    yield "calendar", describe_calendar(info)


def _list_card_facts(card: Card) -> Iterator[Fact]:
    if card.members:
        yield "members", format_names([f"{member.name} ({member.kind})" for member in card.members])
    if card.data is not None:
        yield "data", _describe_data(card.data)
    for split in card.splits:
        yield split.name, f"{format_session(split.first)} to {format_session(split.last)}, {split.windows} windows"
    if card.training is not None:
        yield from list_best_epoch(card, card.training)
    if card.tuning is not None:
        yield "tuning", f"the best of {card.tuning.trials} trials"
    if card.ancestors:
        yield "started from", f"the weights {card.ancestors[0].weights_hash[:ID_DIGITS]}"
    if card.adopted is not None:
        yield (
            "adopted",
            f"{card.adopted.architecture}, trained by others until {format_session(card.adopted.trained_until)}",
        )


def _describe_data(data: DataFacts) -> str:
    span = f"{data.sessions} sessions, {format_session(data.first_session)} to {format_session(data.last_session)}"
    is_unadjusted = data.adjustment == UNADJUSTED
    adjustment = "no splits or dividends recorded" if is_unadjusted else f"adjusted by {data.adjustment}"
    return f"{format_names(list(data.symbols))}; {span}; {adjustment}"


def _list_identities(info: ModelInfo, manifest_hash: str) -> Iterator[Fact]:
    """The hashes of the weights and of the manifest."""
    yield "weights", f"{info.weights_hash[:ID_DIGITS]} (the id in forecasts)"
    yield "manifest", f"{manifest_hash[:ID_DIGITS]} (the id in backtests, audits and lock files)"


def _describe_audit(audit: AuditRecord | None) -> Iterator[Fact]:
    if audit is None:
        yield "audit", "none yet"
        return
    open_checks = [check.name for check in audit.checks if check.verdict is not AuditVerdict.PASS]
    span = f"{format_date(audit.first_session)} to {format_date(audit.last_session)}"
    yield (
        "audit",
        f"{audit.verdict.value}, {span}" + (f"; not passed: {format_names(open_checks)}" if open_checks else ""),
    )


def _select_best(scores: ScoreTable) -> tuple[ScoreRow, ...]:
    """The rows of the model and the best baselines, in the card's order."""
    by_loss = sorted(scores.rows, key=lambda row: (not row.is_model, row.mean))
    best = by_loss[:_SHOWN_ROWS]
    return tuple(row for row in scores.rows if row in best)


def _describe_more(card: Card) -> str:
    """The line on what `--all` adds."""
    rows = 0 if card.scores is None else max(0, len(card.scores.rows) - _SHOWN_ROWS)
    notes = len(card.notes) + (0 if card.data is None else len(card.data.notes))
    parts = [format_count(rows, "more baseline") if rows else "", format_count(notes, "note") if notes else ""]
    more = ", ".join(part for part in (*parts, "the calibration, and every feature with its formula") if part)
    return f"--all has {more}."


_WINKLER_FACTOR: Final = 10_000.0
"""Winkler scores are multiplied by this for display, like other losses."""


def inspect(
    *,
    artifact: ArtifactArgument,
    show_all: Annotated[bool, typer.Option("--all", help="The whole card, with every score and feature.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Verify an artifact and print its card.

    The command checks the SHA-256 of every file and runs the golden instance, which must give the recorded numbers.
    """
    with exit_on_interrupt():
        from predictor.artifact import MANIFEST  # imports torch, which --help does not need
        from predictor.forecaster import Forecaster

    with Forecaster.load(artifact, device) as forecaster:
        info = forecaster.model()
    card, audit = Card.from_json(info.card_json), read_audit(artifact)
    problems = report_alias_problems(artifact.absolute().parent, device)
    if as_json:
        audited = None if audit is None else audit.to_json()
        write_json({**encode_model_json(info), "audit": audited, "alias_problems": problems})
        return
    console = Console(highlight=False)
    console.print(Text("✓ every file is intact, and the golden instance gives the recorded numbers", style="green"))
    manifest_hash = hashlib.sha256((artifact / MANIFEST).read_bytes()).hexdigest()
    parts = (
        _build_whole_card(info, card, audit, artifact)
        if show_all
        else summarise_model(info, card, audit, manifest_hash)
    )
    for part in parts:
        console.print(part)
    print_next_commands(*_suggest_next(artifact, audit, card))


def _suggest_next(artifact: Path, audit: AuditRecord | None, card: Card) -> Iterator[str]:
    yield quantra("predict", "--artifact", artifact, "--bars", "BARS")
    if audit is None and card.adopted is None:  # an audit trains the model again
        yield quantra("audit", artifact, "--bars", "BARS")


def _build_whole_card(
    info: ModelInfo, card: Card, audit: AuditRecord | None, artifact: Path
) -> Iterator[RenderableType]:
    """The whole card, the features and the audit."""
    yield make_skill_panel(card.skill)
    yield _make_fact_table("model", _list_model_details(info))
    yield from _list_card_sections(card, info)
    features: tuple[FeatureInfo, ...] = (*info.observed_features, *info.known_features, *info.static_features)
    table = _make_titled_table(f"features ({len(features)})")
    table.add_column()
    table.add_column(overflow="fold")
    for feature in features:
        meaning = Text.assemble(f"{feature.meaning} [{feature.unit}]\n", (feature.expression, "dim"))
        table.add_row(Text(feature.name), meaning)
    yield table
    yield _render_audit(audit, artifact)


def _list_model_details(info: ModelInfo) -> tuple[Fact, ...]:
    return (
        ("name", f"{info.name}@{info.version}"),
        ("kind", info.kind),
        ("forecasts", f"{info.target_kind}, lag {info.lag}"),
        ("horizons", f"{_list(info.horizons)} sessions"),
        ("quantiles", _list(f"{level:g}" for level in info.quantiles)),
        ("reads", f"{info.encoder_length} sessions"),
        ("look-back", f"{info.lookback} bars, the bar itself included"),
        ("bars needed", str(info.bars_needed)),
        ("covariates", _list(f"{covariate.name} ({covariate.group})" for covariate in info.covariates) or "none"),
        ("calendar", describe_calendar(info)),
        ("weights", info.weights_hash),
    )


def _list_card_sections(card: Card, info: ModelInfo) -> Iterable[RenderableType]:
    """The sections that the card has."""
    if card.members:
        yield _make_fact_table(
            f"members ({len(card.members)})", ((member.name, _describe_member(member)) for member in card.members)
        )
        yield _make_fact_table("combination", card.combination)
    if card.weighting is not None:
        yield _make_fact_table("member selection", _list_weighting_facts(card.weighting))
    if card.ancestors:
        yield _make_fact_table("parent weights", map(_describe_ancestor, count(1), card.ancestors))
    if card.adopted is not None:
        yield _make_fact_table("adoption", _list_adoption_facts(card.adopted))
    if card.data is not None:
        data = card.data
        sessions = f"{data.sessions}, {format_session(data.first_session)} to {format_session(data.last_session)}"
        facts = (("symbols", _list(data.symbols)), ("sessions", sessions), ("adjusted by", data.adjustment))
        notes = (("note", note) for note in data.notes)
        yield _make_fact_table("data", (*facts, ("SHA-256", data.sha256), *notes))
    if card.splits:
        yield _make_fact_table(
            "splits",
            (
                (split.name, f"{format_session(split.first)} to {format_session(split.last)}, {split.windows} windows")
                for split in card.splits
            ),
        )
    if card.training is not None:
        training = card.training
        hardware = (("device", training.device), ("precision", training.precision))
        yield _make_fact_table("training", (*hardware, *list_best_epoch(card, training)))
    if card.tuning is not None:
        yield _make_fact_table("tuning", _list_tuning_facts(card.tuning))
    if card.scores is not None:
        yield make_scores_table(card.scores)
    yield from format_notes(card.notes)
    if card.conformal is not None:
        yield _make_fact_table(
            "conformal offsets, before and after", _list_conformal_facts(card.conformal, info.horizons)
        )


def _describe_ancestor(generation: int, ancestor: ParentModel) -> Fact:
    period = f"{format_session(ancestor.seen_from)} to {format_session(ancestor.seen_until)}"
    seen = f"had seen labels {period} of {_list(ancestor.symbols)}"
    return "parent" if generation == 1 else f"ancestor {generation}", f"{ancestor.weights_hash}, which {seen}"


def _list_adoption_facts(adopted: AdoptionFacts) -> tuple[Fact, ...]:
    license_file = f"{adopted.license_file}, SHA-256 {adopted.license_sha256}" if adopted.license_file else "none"
    tokenizer = (
        ("SHA-256 of the tokenizer's weights", adopted.tokenizer_weights_sha256),
        ("SHA-256 of the tokenizer's config", adopted.tokenizer_config_sha256),
    )
    return (
        (
            "trained until",
            f"{format_session(adopted.trained_until)}, as stated at the adoption; these days count as seen",
        ),
        ("architecture", f"{adopted.architecture} of {adopted.package}"),
        ("SHA-256 of weights", adopted.weights_sha256),
        ("SHA-256 of config", adopted.config_sha256),
        *(tokenizer if adopted.tokenizer_weights_sha256 else ()),
        ("license file", license_file),
    )


def _list_tuning_facts(tuning: TuningFacts) -> tuple[Fact, ...]:
    seeds = f"{tuning.mean:.5f} ± {tuning.standard_deviation:.5f} from {len(tuning.seed_losses)} fresh seeds"
    return (
        ("trials", f"{tuning.trials}, of which {tuning.pruned} were pruned and {tuning.failed} failed"),
        ("selection loss", f"{seeds}; {tuning.best_trial_loss:.5f} in the best trial, which is optimistic"),
    )


def _list_conformal_facts(conformal: ConformalFacts, horizons: tuple[int, ...]) -> Iterable[Fact]:
    for h, horizon in enumerate(horizons):
        winkler = (_WINKLER_FACTOR * scores[h] for scores in (conformal.winkler_before, conformal.winkler_after))
        inside = (100 * shares[h] for shares in (conformal.band_coverage_before, conformal.band_coverage_after))
        parts = (
            "Winkler score {:,.2f}, then {:,.2f}".format(*winkler),
            "{:.1f} % in the band, then {:.1f} %".format(*inside),
            f"{conformal.effective_samples[h]:.0f} blocks",
        )
        yield format_horizon(horizon), "; ".join(parts)


def _render_audit(audit: AuditRecord | None, artifact: Path) -> RenderableType:
    if audit is None:
        return Text(f"\nnot audited: quantra audit {artifact} --bars BARS", style="yellow")
    return make_audit_table(audit)


def _list_weighting_facts(weighting: WeightingFacts) -> Iterable[Fact]:
    span = f"{format_session(weighting.first)} to {format_session(weighting.last)}"
    yield "rule", weighting.rule
    yield "calibration days", f"{weighting.days} days, {span}, in {weighting.blocks} independent blocks"
    for sentence in weighting.sentences:
        yield "", sentence


def _describe_member(member: MemberFacts) -> str:
    reads = f"reads {member.encoder_length} sessions of {member.features} features, needs {member.bars_needed} bars"
    shares = f", share of each quantile {_list(f'{weight:.2f}' for weight in member.weights)}" if member.weights else ""
    return f"{member.kind}, {reads}, weights {member.weights_hash[:16]}{shares}"


def _make_fact_table(title: str, facts: Iterable[Fact]) -> Table:
    table = _make_titled_table(title)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def _make_titled_table(title: str) -> Table:
    heading = Text(f"\n{title}")
    return Table(title=heading, title_justify="left", title_style="bold", box=None, pad_edge=False, show_header=False)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def alias(
    *,
    name: Annotated[str, typer.Argument(help="The model.")],
    alias: Annotated[
        str, typer.Argument(help="The alias, such as champion, which a NAME without a version refers to.")
    ],
    version: Annotated[int, typer.Argument(min=0, help="The version to point the alias at.")],
    models: Annotated[Path, typer.Option(metavar="DIR", help="Folder of NAME/VERSION artifacts.")] = Path("models"),
    as_json: AsJson = False,
) -> None:
    """Point an alias at a version of a model. A server follows it at once with --watch, else after a restart."""
    with exit_on_interrupt():
        from predictor.registry import find_model_folder, set_alias  # imports torch, which --help does not need

    folder = find_model_folder(models, name)
    set_alias(folder, alias, version)
    problems = report_alias_problems(folder)
    if as_json:
        write_json({"model": name, "alias": alias, "version": version, "problems": problems})
    else:
        typer.echo(f"{name}@{alias} is now version {version}.")
        print_next_commands(quantra("models", "--models", models), quantra("serve", "--models", models))


def report_alias_problems(folder: Path, device: str = "cpu") -> list[str]:
    """Print and return problems with a model's aliases; they do not change the exit code."""
    from predictor.inference import choose_device  # imports torch, which --help does not need
    from predictor.registry import Runtime, check_aliases

    problems = [problem.message for problem in check_aliases(folder, Runtime(choose_device(device), max_rows=256))]
    for problem in problems:
        say(problem, "yellow")
    return problems


_KEPT: Final = ("kind", "target_kind", "lag", "horizons", "quantiles", "schema_hash", "weights_hash")
"""Keys of the file's metadata that are shown."""


def export(
    *,
    artifact: ArtifactArgument,
    onnx: Annotated[Path, typer.Option(metavar="FILE", help="The file to write; it must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Write a model as an ONNX file, from the network's inputs to calibrated quantiles.

    The command compares the file's output with the model's before it saves the file. It needs the extra `onnx`.
    """
    with exit_on_interrupt():
        from predictor.export import export_onnx  # imports torch, which --help does not need

    result = export_onnx(artifact, onnx)
    if as_json:
        write_json({**asdict(result), "file": str(result.file)})
        return
    console = Console(highlight=False)
    difference = f"✓ its output differs from the model's by at most {result.difference:.1e}"
    console.print(
        f"Wrote {result.file}, {result.size} bytes, ONNX opset {result.opset}.",
        soft_wrap=True,
        markup=False,
    )
    console.print(Text(difference, style="green"))
    for title, ports in (("inputs", result.inputs), ("outputs", result.outputs)):
        shapes = ((port.name, f"{port.dtype} {list(port.shape)}".replace("'", "")) for port in ports)
        console.print(_make_fact_table(title, shapes))
    if result.absent:
        console.print(f"The model has no {' and no '.join(result.absent)} features: the graph has no such inputs.")
    console.print(_make_fact_table("metadata", ((key, result.metadata[key]) for key in _KEPT)))
