"""Output of commands: tables for a terminal, JSON for programs, and suggested next commands."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, asdict, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from predictor import canonical
from predictor.audit_record import AuditRecord, AuditVerdict
from predictor.canonical import Json
from predictor.card import FITS_EXPLAINED, MEAN_EXPLAINED, Card, ScoreRow, ScoreTable
from predictor.catalog import ModelInfo
from predictor.dates import to_date_number, to_optional_date_number
from predictor.errors import QuantraError, format_date, format_price, get_error_status
from predictor.forecast import Attribution, Contribution, Explanation, Forecast, RowKind, convert_to_simple_return
from predictor.instance import OCCLUSION
from predictor.internals import INTERNALS_NOTE, describe_baseline, format_largest_shares
from predictor.report.templates import format_level, format_session
from predictor.skill import Skill, Verdict

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


BASIS_POINTS: Final = 10_000.0


_TOP: Final = 15

_RANKING: Final = ("score", "rank")

_BAND_WIDTH: Final = 28
"""Largest width; the band shrinks in a narrow terminal."""


_BAR_WIDTHS: Final = (6, 20)
"""Smallest and largest width; bars shrink so that names are shown in full."""


def make_forecast_table(forecast: Forecast, symbol: str, currency: str) -> RenderableType:
    """One line per horizon: quantiles, and the band from the lowest to the highest as a bar."""
    s = forecast.symbols.index(symbol)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("ahead", justify="right", no_wrap=True)
    table.add_column("session", no_wrap=True)
    for quantile in forecast.quantiles:
        table.add_column(format_level(quantile), justify="right", no_wrap=True)
    for name in _RANKING if forecast.ranks is not None else ():
        table.add_column(name, justify="right", no_wrap=True)
    if len(forecast.quantiles) > 1:
        table.add_column("band", min_width=4, max_width=_BAND_WIDTH)
    values = forecast.values[s] if forecast.prices is None else forecast.prices[s]
    low, high = float(np.min(values)), float(np.max(values))
    for h, horizon in enumerate(forecast.horizons):
        session = format_session(forecast.target_sessions[h] if forecast.target_sessions else None)
        cells = [_format_cell(forecast, s, h, q) for q in range(len(forecast.quantiles))]
        ranking = _format_ranking(forecast, s, h)
        band = (_draw_band(values[h].tolist(), low, high),) if len(cells) > 1 else ()
        table.add_row(str(horizon), session, *cells, *ranking, *band)
    parts = [forecast.symbols[s]]
    if forecast.as_of_session:
        parts.append(f"as of {format_session(forecast.as_of_session)}")
    if forecast.anchor_price is not None:
        parts.append(f"last close {format_price(float(forecast.anchor_price[s]))} {currency}".rstrip())
    return Group(Text(", ".join(parts) + f" ({forecast.model}@{forecast.version})", style="bold"), table)


def make_contributions_table(attribution: Attribution, symbol: str) -> RenderableType:
    """Signed bars of the largest contributions and of neighbours; the rest is one line."""
    unit, shown = _choose_display(attribution.unit)
    s = attribution.symbols.index(symbol)
    rows = attribution.table(symbol)
    places = [k for k, row in enumerate(rows) if row.kind is RowKind.NEIGHBOURS or (k < _TOP and row.value != 0)]
    top, rest = [rows[k] for k in places], [row for k, row in enumerate(rows) if k not in places]
    reach = max((abs(row.value) for row in rows), default=0.0)
    title = (
        f"{symbol}: {attribution.horizon} sessions ahead, {format_level(attribution.quantile)}: "
        f"{shown(float(attribution.prediction[s]))} {unit}, "
        f"{shown(float(attribution.baseline_prediction[s]))} for "
        f"{describe_baseline(attribution.baseline, is_additive=attribution.method != OCCLUSION)}"
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    min_width, max_width = _BAR_WIDTHS
    table.add_column("input", no_wrap=True)
    table.add_column("lowers", justify="right", min_width=min_width, max_width=max_width)
    table.add_column("raises", min_width=min_width, max_width=max_width)
    table.add_column(unit, justify="right")
    for row in top:
        lowers, raises = _draw_bars(row, reach)
        table.add_row(Text(row.name), lowers, raises, shown(row.value))
    if rest:
        table.add_row(f"others ({len(rest)})", "", "", shown(sum(row.value for row in rest)))
    return Group(Text(title, style="bold"), table)


def _choose_display(unit: str) -> tuple[str, Callable[[float], str]]:
    """The unit of shown contributions and its format; log returns are shown in basis points."""
    if unit == "log return":
        return "bp of log return", lambda value: f"{BASIS_POINTS * value:+.2f}"
    return unit, lambda value: f"{value:+.4f}"


def make_internals_table(attribution: Attribution, symbol: str) -> RenderableType:
    """The largest shares of each internal."""
    s = attribution.symbols.index(symbol)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("internal")
    table.add_column("largest shares")
    for internal in attribution.internals:
        table.add_row(Text(internal.name), Text(format_largest_shares(internal, s)))
    return Group(Text(f"{symbol}: internals, {INTERNALS_NOTE}", style="bold"), table)


def _format_cell(forecast: Forecast, s: int, h: int, q: int) -> Text:
    """The price and the simple return, or those available, or only the value; a dash without a forecast."""
    value = float(forecast.values[s, h, q])
    if not isfinite(value):
        return Text("-", style="dim")
    text = f"{value:+.4f}" if forecast.returns is None else f"{100 * convert_to_simple_return(value):+.2f} %"
    if forecast.prices is None:
        return Text(text)
    return Text.assemble(f"{format_price(float(forecast.prices[s, h, q]))}\n", (text, "dim"))


def _format_ranking(forecast: Forecast, s: int, h: int) -> list[str]:
    """Score and rank; dashes for a symbol without a rank, empty if the model does not rank."""
    if forecast.scores is None or forecast.ranks is None:
        return []
    rank = int(forecast.ranks[s, h])
    return [f"{float(forecast.scores[s, h]):+.4f}", str(rank)] if rank else ["-", "-"]


def _draw_band(values: list[float], low: float, high: float) -> RenderableType:
    """A bar from the lowest to the highest quantile, on the scale of the whole table."""
    if not all(map(isfinite, (low, high, *values))) or high <= low:
        return ""
    return Bar(high - low, values[0] - low, values[-1] - low, color="blue")


def _draw_bars(row: Contribution, reach: float) -> tuple[RenderableType, RenderableType]:
    """The bars of the columns "lowers" and "raises", one of them empty."""
    if not isfinite(row.value) or reach == 0:
        return "", ""
    share = abs(row.value) / reach
    if row.value < 0:
        return Bar(1, 1 - share, 1, color="dark_orange3"), ""
    return "", Bar(1, 0, share, color="blue")


_MAX_NOTES: Final = 12

VERDICT_COLOURS: Final = {Verdict.BETTER: "green", Verdict.UNDECIDED: "yellow", Verdict.WORSE: "red"}


def make_judgement(card: Card) -> RenderableType:
    """Scores if the card has any, notes on them or on their absence, and the skill."""
    scores = () if card.scores is None else (make_scores_table(card.scores),)
    return Group(*scores, *format_notes(card.notes), "", make_skill_panel(card.skill))


def format_notes(notes: Sequence[str]) -> Iterator[Text]:
    """The first notes on the scores, one per line, and the number of others."""
    for note in notes[:_MAX_NOTES]:
        yield Text(f"note: {note}", style="yellow")
    if len(notes) > _MAX_NOTES:
        yield Text(f"and {len(notes) - _MAX_NOTES} more notes; --json has them all", style="yellow")


def make_skill_panel(skill: Skill | None) -> RenderableType:
    """One sentence on the skill over the best of all baselines, with its uncertainty."""
    if skill is None:
        return Panel("Its skill is unknown: the card has no comparison with a baseline.", title="skill")
    return Panel(Text(skill.sentence), title="skill", title_align="left", border_style=VERDICT_COLOURS[skill.verdict])


def make_scores_table(scores: ScoreTable, rows: Sequence[ScoreRow] | None = None) -> Table:
    """Scores of the model and the baselines, or of `rows` without captions; the lowest of each column is bold."""
    explained = f"{MEAN_EXPLAINED}\n{FITS_EXPLAINED}" if scores.has_fits else MEAN_EXPLAINED
    table = Table(
        title=Text(f"\n{scores.split} split: {scores.unit}; lower is better"),
        title_justify="left",
        title_style="bold",
        caption=explained if rows is None else None,
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    low, high = (f"{100 * level:g}" for level in scores.band)
    table.add_column("")
    for name in (*(f"{horizon} d" for horizon in scores.horizons), "mean", f"in {low}–{high} %"):  # noqa: RUF001 - a range
        table.add_column(name, justify="right")
    best = [min(column) for column in zip(*((*row.pinball, row.mean) for row in scores.rows), strict=True)]
    for row in scores.rows if rows is None else rows:
        values = (*row.pinball, row.mean)
        cells = [Text(f"{v:,.2f}", style="bold" if v == b else "") for v, b in zip(values, best, strict=True)]
        shares = row.band_coverage
        coverage = f"{100 * sum(shares) / len(shares):.0f} %" if shares else ""
        table.add_row(Text(row.name), *cells, coverage, style="blue" if row.is_model else "")
    return table


_AUDITED: Final = {AuditVerdict.PASS: "green", AuditVerdict.UNDECIDED: "yellow", AuditVerdict.FAIL: "red"}


def make_audit_table(record: AuditRecord) -> RenderableType:
    """Every check with its verdict and numbers."""
    span = f"{format_date(record.first_session)} to {format_date(record.last_session)}"
    table = Table(title=Text(f"\naudit, {span}"), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("", "check", "result"):
        table.add_column(name)
    for check in record.checks:
        table.add_row(Text(check.verdict.value, style=_AUDITED[check.verdict]), Text(check.name), Text(check.sentence))
    verdict = Text(f"{record.subject}: {record.verdict.value}", style=_AUDITED[record.verdict])
    return Group(
        table,
        "",
        verdict,
        Text(f"{record.measured}.", style="dim"),
        *(Text(f"warning: {warning}", style="yellow") for warning in record.warnings),
        *(Text(f"note: {note}", style="dim") for note in record.notes),
    )


def write_json(value: Json) -> None:
    """Write one line of JSON to standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def encode_forecast_json(forecast: Forecast) -> Json:
    """Arrays as nested lists [S][H][Q]; scores and ranks are [S][H]."""
    return {
        "symbols": forecast.symbols,
        "as_of_session": to_optional_date_number(forecast.as_of_session),
        "target_sessions": [to_date_number(day) for day in forecast.target_sessions],
        "lag": forecast.lag,
        "base_session": to_optional_date_number(forecast.base_session),
        "horizons": forecast.horizons,
        "quantiles": forecast.quantiles,
        "target_kind": forecast.target_kind,
        "values": _nest_values(forecast.values),
        "log_returns": _nest_values(forecast.returns),
        "prices": _nest_values(forecast.prices),
        "anchor_price": _nest_values(forecast.anchor_price),
        "model": forecast.model,
        "version": forecast.version,
        "weights_hash": forecast.weights_hash,
        "warnings": forecast.warnings,
        "forecast_id": forecast.forecast_id,
        "scores": _nest_values(forecast.scores),
        "ranks": _nest_values(forecast.ranks),
        "universe_hash": forecast.universe_hash,
        "refusals": {symbol: _encode_error(error) for symbol, error in forecast.refusals.items()},
        "skill": _encode_skill(forecast.skill),
    }


def encode_explanation_json(explanation: Explanation) -> Json:
    """One object per target."""
    return {"attributions": [_encode_attribution(attribution) for attribution in explanation.attributions]}


def encode_model_json(info: ModelInfo) -> dict[str, Json]:
    """The model's facts, with the card as an object."""
    fields: dict[str, Json] = asdict(info)
    card = fields.pop("card_json")
    return {**fields, "card": canonical.from_bytes(str(card).encode(), "card")}


def encode_error_json(error: QuantraError) -> Json:
    """The same facts that a server sends."""
    return {"error": _encode_error(error)}


def _encode_error(error: QuantraError) -> Json:
    answer = get_error_status(error)
    return {
        "status": answer.status.value,
        "reason": answer.reason,
        "message": error.message,
        "metadata": error.metadata,
    }


def _encode_skill(skill: Skill | None) -> Json:
    return None if skill is None else {**asdict(skill), "verdict": skill.verdict.value, "line": skill.line}


def _encode_attribution(attribution: Attribution) -> Json:
    return {
        "symbols": attribution.symbols,
        "as_of_session": to_optional_date_number(attribution.as_of_session),
        "horizon": attribution.horizon,
        "quantile": attribution.quantile,
        "method": attribution.method,
        "baseline": attribution.baseline,
        "unit": attribution.unit,
        "row_names": attribution.row_names,
        "row_kinds": [kind.value for kind in attribution.row_kinds],
        "per_row": _nest_values(attribution.per_row),
        "sessions": [to_date_number(day) for day in attribution.sessions],
        "prediction": _nest_values(attribution.prediction),
        "baseline_prediction": _nest_values(attribution.baseline_prediction),
        "relative_gap": _nest_values(attribution.relative_gap),
        "converged": _nest_values(attribution.converged),
        "nodes": _nest_values(attribution.nodes),
        "model": attribution.model,
        "version": attribution.version,
        "weights_hash": attribution.weights_hash,
        "warnings": attribution.warnings,
        "internals": [
            {
                "name": internal.name,
                "axis": internal.axis.value,
                "labels": internal.labels,
                "values": _nest_values(internal.values),
            }
            for internal in attribution.internals
        ],
        "skill": _encode_skill(attribution.skill),
    }


def _nest_values(array: NDArray[np.generic] | None) -> Json:
    return None if array is None else _replace_infinite(array.tolist())


def _replace_infinite(value: Json) -> Json:
    """Replace numbers that are not finite, which JSON lacks, with None."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_replace_infinite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _replace_infinite(item) for key, item in value.items()}
    return value


_BEGINNING: Final = "Next: "

_SECRET: Final = re.compile(r"\w[\w+]*://[^/]*@.*")
"""An address with a user name, and perhaps a password."""


def list_given_flags(*groups: "DataclassInstance") -> tuple[str, ...]:
    """The given flags of these groups, for a suggested command; addresses with a user name are replaced.

    Args:
        groups: such as `BarsFlags`; each field is the flag of its name.
    """
    return tuple(
        word for group in groups for field in fields(group) for word in _format_flag(field, asdict(group)[field.name])
    )


def _format_flag(field: Field[Any], value: Any) -> tuple[str, ...]:
    """One flag with its value; empty if it has its default."""
    flag = f"--{field.name.replace('_', '-')}"
    if value is None or value == field.default:
        return ()
    if value is True:
        return (flag,)
    values = value if isinstance(value, list) else [value]
    return tuple(word for value in values for word in (flag, _SECRET.sub("BARS", str(value))))


def quantra(*words: object) -> str:
    """A command of this program, quoted for a shell."""
    return "quantra " + shlex.join(map(str, words))


def print_next_commands(*commands: str) -> None:
    """Print suggested commands, one per line without wrapping, so that each can be copied."""
    console = Console(highlight=False)
    for index, command in enumerate(commands):
        beginning = " " * len(_BEGINNING) if index else _BEGINNING
        # Plain, because a path may hold brackets.
        console.print(beginning + command, soft_wrap=True, markup=False)
