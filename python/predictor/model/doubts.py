"""What makes a forecast doubtful though it can be made: its bars beside those that the model was trained on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from predictor.artifact import Manifest
from predictor.bars import BarPanel
from predictor.card import UNADJUSTED, ancestors_of, data_of
from predictor.errors import listed
from predictor.instance import Instance
from predictor.windows import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """What is known of one network's training."""

    symbols: frozenset[str] | None
    """Symbols that it, or a model whose weights it started from, was trained on; None = unknown."""
    is_adjusted: bool
    """Whether its bars recorded splits and dividends; False where that is unknown."""
    knows_by_name: bool
    """Whether it has a node for each of its symbols, and so names unknown symbols itself."""
    reads_volume: bool
    bars_needed: int

    @classmethod
    def of(cls, manifest: Manifest, pipeline: Pipeline) -> Self:
        """What an artifact's parts say.

        Raises:
            ArtifactError: the card says something of bars or ancestors, but not what it must.
        """
        data = data_of(manifest.card)
        before = (frozenset(one.symbols) for one in ancestors_of(manifest.card))
        return cls(
            symbols=None if data is None else data.taught.union(*before),
            is_adjusted=data is not None and data.adjustment != UNADJUSTED,
            knows_by_name=manifest.kind.is_panel_model,
            reads_volume=manifest.kind.learns and pipeline.features.features.reads_volume,
            bars_needed=pipeline.bars_needed,
        )


def doubts(networks: Sequence[Taught], instance: Instance, forecast: Sequence[str]) -> Iterator[str]:
    """One line per doubt, however many symbols and networks share it.

    Args:
        networks: the model's own, or those of an ensemble's members.
        instance: the question.
        forecast: those of its symbols that have a forecast.
    """
    if isinstance(instance.input, BarPanel):
        readers = [one.bars_needed for one in networks if one.reads_volume]
        yield from bars_doubts(
            instance.input.last(max(readers, default=1)),
            forecast,
            reads_volume=bool(readers),
            is_adjusted=any(one.is_adjusted for one in networks),
        )
    new = _unseen(networks, forecast)
    if new:
        whom = "the model was" if len(networks) == 1 else "all members were"
        yield (
            f"{listed(new)}: not among the symbols that {whom} trained on, so its scores tell nothing of them; judge "
            "it on their bars (quantra evaluate), or train with them"
        )


def bars_doubts(bars: BarPanel, symbols: Sequence[str], *, reads_volume: bool, is_adjusted: bool) -> Iterator[str]:
    """What bars lack that a model reads or was trained with.

    Args:
        bars: all that is read.
        symbols: those of them that count.
        reads_volume: whether a network reads volumes.
        is_adjusted: whether it was trained on bars that record splits and dividends.
    """
    counted = frozenset(symbols)
    without = [symbol for symbol in bars.without_volume if symbol in counted] if reads_volume else []
    if without:
        yield (
            f"{listed(without)}: every volume that the model reads is 0, so its features of volumes say nothing; give "
            "the shares traded, or use features that read none"
        )
    if is_adjusted and bars.is_unadjusted:
        yield (
            "the model was trained on bars that tell of splits and dividends, and these do not, so one among them "
            "would look like a crash; give adj_close, or split_ratio and cash_dividend, unless there was none"
        )


def _unseen(networks: Sequence[Taught], symbols: Sequence[str]) -> list[str]:
    """The symbols that some network was not trained on; a network with a node for each symbol names its own."""
    by_name = [one.symbols for one in networks if one.knows_by_name and one.symbols is not None]
    by_row = [one.symbols for one in networks if not one.knows_by_name and one.symbols is not None]
    return [
        symbol
        for symbol in symbols
        if any(symbol not in known for known in by_row) and all(symbol in known for known in by_name)
    ]
