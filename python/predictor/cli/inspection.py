"""`quantra inspect`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from predictor.card import Card, Scores, Skill, Verdict
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.cli.machine import model_json, write_json
from predictor.cli.options import AsJson, Device
from predictor.cli.tables import iso

EXAMPLE: Final = "Example: quantra inspect models/demo/1"

_COLOURS: Final = {Verdict.BETTER: "green", Verdict.UNDECIDED: "yellow", Verdict.WORSE: "red"}


def inspect(
    *,
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="Artifact folder, such as models/demo/1.")],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Verify an artifact and print its card.

    Checks the SHA-256 of every file and runs the golden instance, which must give the recorded numbers.
    """
    from predictor.forecaster import Forecaster  # brings torch, which --help need not wait for

    with Forecaster.load(artifact, device) as forecaster:
        info = forecaster.model()
    card = Card.from_json(info.card_json)
    if as_json:
        write_json(model_json(info))
        return
    console = Console(highlight=False)
    console.print(Text("✓ every file is whole, and the golden instance gives the recorded numbers", style="green"))
    for part in (_skill(card.skill), _facts("model", _model_facts(info)), *_card_parts(card), _features(info)):
        console.print(part)


def _skill(skill: Skill | None) -> RenderableType:
    if skill is None:
        return Panel("Nothing is known of its skill: the card holds no comparison with a baseline.", title="skill")
    interval = (
        f"{100 * skill.improvement:+.2f} % against {skill.baseline}, "
        f"{100 * skill.level:.0f} % interval {100 * skill.lower:+.2f} % to {100 * skill.upper:+.2f} %"
    )
    content = Group(Text(skill.sentence), Text(interval, style="dim"))
    return Panel(content, title="skill", title_align="left", border_style=_COLOURS[skill.verdict])


def _model_facts(info: ModelInfo) -> tuple[tuple[str, str], ...]:
    return (
        ("name", f"{info.name} version {info.version}"),
        ("network", info.kind),
        ("forecasts", f"{info.target_kind}, lag {info.lag}"),
        ("horizons", f"{_list(info.horizons)} sessions"),
        ("quantiles", _list(f"{level:g}" for level in info.quantiles)),
        ("reads", f"{info.encoder_length} sessions"),
        ("look-back", f"{info.lookback} bars, the bar itself included"),
        ("bars needed", str(info.bars_needed)),
        ("calendar", f"{info.calendar}, known until {iso(info.calendar_ends)}"),
        ("weights", info.weights_hash),
    )


def _card_parts(card: Card) -> Iterable[RenderableType]:
    """The sections that the card has."""
    if card.data is not None:
        data = card.data
        sessions = f"{data.sessions}, {iso(data.first_session)} to {iso(data.last_session)}"
        facts = (("symbols", _list(data.symbols)), ("sessions", sessions), ("adjusted by", data.adjustment))
        notes = (("note", note) for note in data.notes)
        yield _facts("data", (*facts, ("SHA-256", data.sha256), *notes))
    if card.splits:
        yield _facts(
            "splits",
            (
                (split.name, f"{iso(split.first)} to {iso(split.last)}, {split.windows} windows")
                for split in card.splits
            ),
        )
    if card.training is not None:
        training = card.training
        epochs = f"{training.best_epoch} of {len(training.epochs)}"
        yield _facts(
            "training", (("device", training.device), ("precision", training.precision), ("best epoch", epochs))
        )
    if card.scores is not None:
        yield _scores(card.scores)


def _scores(scores: Scores) -> Table:
    """The model beside the baselines; the least of each column is bold."""
    table = _table(f"scores on {scores.split} ({scores.unit}; less is better)")
    for name in ("", *(f"{horizon}" for horizon in scores.horizons), "mean"):
        table.add_column(name, justify="right" if name else "left")
    losses = [(*row.pinball, row.mean) for row in scores.rows]
    best = [min(column) for column in zip(*losses, strict=True)]
    for row, values in zip(scores.rows, losses, strict=True):
        cells = [Text(f"{v:,.2f}", style="bold" if v == b else "") for v, b in zip(values, best, strict=True)]
        table.add_row(Text(row.name), *cells, style="blue" if row.is_model else "")
    return table


def _features(info: ModelInfo) -> Table:
    features: tuple[FeatureInfo, ...] = (*info.observed_features, *info.known_features, *info.static_features)
    table = _table(f"features ({len(features)})")
    table.show_header = False
    table.add_column()
    table.add_column(overflow="fold")
    for feature in features:
        meaning = Text.assemble(f"{feature.meaning} [{feature.unit}]\n", (feature.expression, "dim"))
        table.add_row(Text(feature.name), meaning)
    return table


def _facts(title: str, facts: Iterable[tuple[str, str]]) -> Table:
    table = _table(title)
    table.show_header = False
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def _table(title: str) -> Table:
    return Table(title=Text(f"\n{title}"), title_justify="left", title_style="bold", box=None, pad_edge=False)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
