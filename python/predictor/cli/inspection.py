"""`quantra inspect`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from predictor.card import Card, MemberFacts
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.cli.machine import model_json, write_json
from predictor.cli.options import AsJson, Device
from predictor.cli.scores import scores_table, skill_panel
from predictor.report.texts import iso

EXAMPLE: Final = "Example: quantra inspect models/demo/1"


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
    for part in (skill_panel(card.skill), _facts("model", _model_facts(info)), *_card_parts(card), _features(info)):
        console.print(part)


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
        ("covariates", _list(f"{one.name} ({one.group})" for one in info.covariates) or "none"),
        ("calendar", f"{info.calendar}, known until {iso(info.calendar_ends)}"),
        ("weights", info.weights_hash),
    )


def _card_parts(card: Card) -> Iterable[RenderableType]:
    """The sections that the card has."""
    if card.members:
        yield _facts(f"members ({len(card.members)})", ((member.name, _member(member)) for member in card.members))
        yield _facts("how they are combined", card.combination)
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
        yield scores_table(card.scores)


def _member(member: MemberFacts) -> str:
    reads = f"reads {member.encoder_length} sessions of {member.features} features, needs {member.bars_needed} bars"
    return f"{member.kind}, {reads}, weights {member.weights_hash[:16]}"


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
