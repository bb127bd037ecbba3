"""How good a model was on held-out days, for a terminal: its scores beside the baselines', and its skill."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED, Card, Scores
from predictor.skill import Skill, Verdict

_MOST_NOTES: Final = 12
_COLOURS: Final = {Verdict.BETTER: "green", Verdict.UNDECIDED: "yellow", Verdict.WORSE: "red"}


def judgement(card: Card) -> RenderableType:
    """Scores, where the card has any, what a reader must know of them, and the skill."""
    skill = skill_panel(card.skill)
    return skill if card.scores is None else Group(scores_table(card.scores), *shown_notes(card.notes), "", skill)


def shown_notes(notes: Sequence[str]) -> Iterator[Text]:
    """What a reader of scores must know, a line each; of very many the first ones, and how many more there are."""
    for note in notes[:_MOST_NOTES]:
        yield Text(f"note: {note}", style="yellow")
    if len(notes) > _MOST_NOTES:
        yield Text(f"and {len(notes) - _MOST_NOTES} more notes, which --json has", style="yellow")


def skill_panel(skill: Skill | None) -> RenderableType:
    """One sentence on the skill over the best of all baselines, with its uncertainty."""
    if skill is None:
        return Panel("Nothing is known of its skill: the card holds no comparison with a baseline.", title="skill")
    return Panel(Text(skill.sentence), title="skill", title_align="left", border_style=_COLOURS[skill.verdict])


def scores_table(scores: Scores) -> Table:
    """The model beside the baselines; the least of each column is bold."""
    table = Table(
        title=Text(f"\n{scores.split} split: {scores.unit}; less is better"),
        title_justify="left",
        title_style="bold",
        caption=f"{MEAN_EXPLAINED}\n{FITS_EXPLAINED}" if scores.tells_fits else MEAN_EXPLAINED,
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    low, high = (f"{100 * level:g}" for level in scores.band)
    table.add_column("")
    for name in (*(f"{horizon} d" for horizon in scores.horizons), "mean", f"in {low}–{high} %"):  # noqa: RUF001 - a range
        table.add_column(name, justify="right")
    losses = [(*row.pinball, row.mean) for row in scores.rows]
    best = [min(column) for column in zip(*losses, strict=True)]
    for row, values in zip(scores.rows, losses, strict=True):
        cells = [Text(f"{v:,.2f}", style="bold" if v == b else "") for v, b in zip(values, best, strict=True)]
        table.add_row(Text(row.name), *cells, _mean_share(row.band_coverage), style="blue" if row.is_model else "")
    return table


def _mean_share(shares: tuple[float, ...]) -> str:
    return f"{100 * sum(shares) / len(shares):.0f} %" if shares else ""
