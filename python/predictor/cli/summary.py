"""One screen of an artifact: what `quantra inspect` shows unless it is asked for all."""

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from predictor.audit_record import AuditRecord, AuditVerdict
from predictor.card import Card, DataFacts, ScoreRow, ScoreTable, TrainingFacts
from predictor.catalog import ModelInfo
from predictor.cli.output import scores_table, skill_panel
from predictor.errors import listed, shown_date
from predictor.report.templates import iso

Fact = tuple[str, str]
ID_DIGITS: Final = 16
"""Of a hash in hexadecimal, where nothing is compared by program."""
_SHOWN_ROWS: Final = 3
"""Of the scores: the model's and the best baselines'."""


def summary(info: ModelInfo, card: Card, audit: AuditRecord | None, manifest_hash: str) -> Iterator[RenderableType]:
    """Skill, facts of one line each, the best scores and the audit's verdict: 40 lines of 100 columns at most.

    Args:
        info: what the model reads and forecasts.
        card: how it was made and judged.
        audit: its newest; None if there is none.
        manifest_hash: SHA-256 of the manifest, in hexadecimal.
    """
    yield skill_panel(card.skill)
    yield one_liners([*_of_model(info), *_of_card(card), *_identities(info, manifest_hash), *_of_audit(audit)])
    if card.scores is not None:
        yield scores_table(card.scores, _best(card.scores))
    yield Text(_left_out(card), style="dim")


def one_liners(facts: list[Fact]) -> Table:
    """A table whose every row is one line, however narrow the terminal is."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def calendar_line(info: ModelInfo) -> str:
    """The exchange, and the last day that the model can be asked about."""
    return f"{info.calendar}, ends {iso(info.calendar_ends)}; for bars after that day, train again"


def best_epoch(training: TrainingFacts) -> str:
    """The epoch that was kept, of those that were made."""
    kept = training.best_epoch or "none was better than the network before training,"
    return f"{kept} of {len(training.epochs)}"


def _of_model(info: ModelInfo) -> Iterator[Fact]:
    horizons = ", ".join(map(str, info.horizons))
    levels = ", ".join(f"{level:g}" for level in info.quantiles)
    features = len(info.observed_features) + len(info.known_features) + len(info.static_features)
    yield "model", f"{info.name}@{info.version}, {info.kind}"
    yield "forecasts", f"{info.target_kind}, lag {info.lag}; horizons {horizons} sessions; quantiles {levels}"
    yield "reads", f"{info.encoder_length} sessions of {features} features: {info.bars_needed} bars of each symbol"
    if info.covariates:
        yield "covariates", listed([one.name for one in info.covariates])
    yield "calendar", calendar_line(info)


def _of_card(card: Card) -> Iterator[Fact]:
    if card.members:
        yield "members", listed([f"{member.name} ({member.kind})" for member in card.members])
    if card.data is not None:
        yield "data", _data(card.data)
    for split in card.splits:
        yield split.name, f"{iso(split.first)} to {iso(split.last)}, {split.windows} windows"
    if card.training is not None:
        yield "best epoch", best_epoch(card.training)
    if card.tuning is not None:
        yield "tuning", f"the best of {card.tuning.trials} trials"
    if card.ancestors:
        yield "started from", f"the weights {card.ancestors[0].weights_hash[:ID_DIGITS]}"


def _data(data: DataFacts) -> str:
    span = f"{data.sessions} sessions, {iso(data.first_session)} to {iso(data.last_session)}"
    return f"{listed(list(data.symbols))}; {span}; adjusted by {data.adjustment}"


def _identities(info: ModelInfo, manifest_hash: str) -> Iterator[Fact]:
    """One model has two: what computes, and all that it is."""
    yield "weights", f"{info.weights_hash[:ID_DIGITS]}, as forecasts name it"
    yield "manifest", f"{manifest_hash[:ID_DIGITS]}, as backtests, audits and lock files name it"


def _of_audit(audit: AuditRecord | None) -> Iterator[Fact]:
    if audit is None:
        yield "audit", "none yet"
        return
    open_checks = [check.name for check in audit.checks if check.verdict is not AuditVerdict.PASS]
    span = f"{shown_date(audit.first_session)} to {shown_date(audit.last_session)}"
    yield "audit", f"{audit.verdict.value}, {span}" + (f"; not passed: {listed(open_checks)}" if open_checks else "")


def _best(scores: ScoreTable) -> tuple[ScoreRow, ...]:
    """The model's row and those of the best others, in the card's order."""
    by_loss = sorted(scores.rows, key=lambda row: (not row.is_model, row.mean))
    kept = by_loss[:_SHOWN_ROWS]
    return tuple(row for row in scores.rows if row in kept)


def _left_out(card: Card) -> str:
    """What --all shows besides."""
    rows = 0 if card.scores is None else max(0, len(card.scores.rows) - _SHOWN_ROWS)
    notes = len(card.notes) + (0 if card.data is None else len(card.data.notes))
    parts = [f"{rows} more baselines" if rows else "", f"{notes} note{'' if notes == 1 else 's'}" if notes else ""]
    told = ", ".join(part for part in (*parts, "the calibration, and every feature with its formula") if part)
    return f"--all has {told}."
