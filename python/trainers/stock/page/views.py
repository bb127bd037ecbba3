"""The pages as HTML, from the templates of reports."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from predictor import charts
from predictor.bars import BarReading, ReadingOptions
from predictor.bars.layouts import BY_NAME
from predictor.card import Card
from predictor.catalog import ModelInfo
from predictor.forecast import LOG_RETURN, Attribution, Forecast
from predictor.internals import INTERNALS_NOTE
from predictor.registry import AliasMove
from predictor.report import PageBuilder, PageFrame
from predictor.report.explanation import make_reason_view
from predictor.report.forecast import describe_prices, make_forecast_view
from predictor.report.templates import format_level, format_percent, format_session
from trainers.stock.page.training import KINDS, ShownTraining
from trainers.stock.page.uploads import ENDINGS, UploadedBars

if TYPE_CHECKING:
    from trainers.stock.bars_report import BarsReport

MAX_LISTED: Final = 500
"""Most symbols in the table of findings."""
MAX_FANS: Final = 200
"""Symbols whose small fan is drawn in the table of a universe."""
CALENDARS: Final = ("", "XNYS", "XLON", "XPAR", "XETR", "XTKS", "XHKG", "XSHG", "24/7")
REMOTE: Final = (
    "These models are those of another server: train, promote and roll back where its folder of models is, with "
    "`quantra ui --models DIR`"
)
NO_LEDGER: Final = (
    "To promote and roll back here, start the page with `quantra ui --ledger LEDGER`: gates read the record of "
    "forecasts"
)
PACKAGE: Final = "trainers.stock.page"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniverseRow:
    """The forecast of one symbol at the last horizon."""

    symbol: str
    middle: float
    low: float
    high: float
    rank: int
    """0 without a ranking."""
    fan: str
    """A small chart; empty beyond the first symbols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """The versions of one model, the live one, and why it is live."""

    name: str
    versions: tuple[ModelInfo, ...]
    skills: tuple[str, ...]
    """What each version's skill is worth, in one sentence."""
    moves: tuple[AliasMove, ...]
    """Newest first."""

    @property
    def champion(self) -> int:
        """The live version; 0 for none."""
        return next((version.version for version in self.versions if version.is_default), 0)

    @property
    def reason(self) -> str:
        """Why the champion is live."""
        move = next(
            (
                candidate
                for candidate in self.moves
                if candidate.alias == "champion" and candidate.version == self.champion
            ),
            None,
        )
        return "" if move is None else f"{move.kind.value} on {move.at[:10]}: {move.reason or 'no reason is recorded'}"


def render_home(frame: PageFrame, uploaded: UploadedBars | None, models: Sequence[ModelInfo], note: str = "") -> str:
    """The first page; `note` says why no model is trained here, if so."""
    page = PageBuilder(PACKAGE, "home.html.j2", frame)
    return page.render(
        {
            "names": () if uploaded is None else uploaded.names,
            "models": models,
            "note": note,
            "endings": ",".join(ENDINGS),
        }
    )


def render_bars(frame: PageFrame, uploaded: UploadedBars, models: Sequence[ModelInfo], trained: str, note: str) -> str:
    """How the bars are read, what is doubtful, and choices.

    `trained` is the model to begin with, empty for the live one; `note` says why no model is trained here, if so.
    """
    page = PageBuilder(PACKAGE, "bars.html.j2", frame)
    checked, choice = uploaded.checked, uploaded.choice
    choices = {
        "calendar": (choice.calendar, CALENDARS),
        "date_order": (choice.options.date_order or "", ("", "dmy", "mdy", "ymd")),
        "decimal": (choice.options.decimal or "", ("", "point", "comma")),
        "volume_unit": (str(choice.options.volume_unit or ""), ("", "1", "100", "1000", "1000000")),
        "layout": (choice.options.layout, ("", *sorted(BY_NAME))),
    }
    findings: dict[str, object] = {"closes": "", "table": None, "warnings": ()}
    if checked is not None:
        from trainers.stock.bars_report import build_symbol_table, draw_closes, list_warnings  # slow to import

        findings["closes"] = draw_closes(checked.reading, checked.findings, page)
        findings["table"] = build_symbol_table(checked.findings[:MAX_LISTED])
        findings["warnings"] = tuple(list_warnings(checked))
    return page.render(
        {
            "problem": uploaded.problem,
            "names": uploaded.names,
            "choices": choices,
            "models": models,
            "trained": trained,
            "note": note,
            "kinds": KINDS,
            "read_as": "" if checked is None else str(checked.reading),
            "calendar": "" if checked is None else checked.calendar.name,
            "symbols": () if checked is None else checked.reading.panel.symbols,
            "has_suspects": checked is not None and any(finding.suspects for finding in checked.findings),
            **findings,
        }
    )


def render_training(frame: PageFrame, state: ShownTraining | None, bars: "BarsReport | None") -> str:
    """The training that runs or ran last, and a form for the next one."""
    page = PageBuilder(PACKAGE, "training.html.j2", frame)
    read_as = "" if bars is None else str(bars.reading)
    return page.render({"state": state, "read_as": read_as, "kinds": KINDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForecast:
    """A forecast of one symbol, and what moved one horizon and quantile of it."""

    info: ModelInfo
    reading: BarReading
    options: ReadingOptions
    """How the person chose to read the bars."""
    forecast: Forecast
    attribution: Attribution
    symbol: str
    can_use_suspects: bool


def render_forecast(frame: PageFrame, view: ShownForecast, models: Sequence[ModelInfo]) -> str:
    """The fan, the scores in sentences, the reasons and the request."""
    page = PageBuilder(PACKAGE, "forecast.html.j2", frame)
    info, bars, card = view.info, view.reading.panel, Card.from_json(view.info.card_json)
    return page.render(
        {
            "shown": view,
            "info": info,
            "models": models,
            "symbols": bars.symbols,
            "verdict": card.skill.verdict.value if card.skill else "undecided",
            "sentences": list(score_sentences(card)),
            "warnings": view.forecast.warnings,
            "remarks": ("" if view.forecast.prices is None else describe_prices(bars.select([view.symbol])),),
            "forecast": make_forecast_view(bars, view.forecast, view.symbol, page),
            "reason": make_reason_view(view.attribution, view.symbol, info, page),
            "internals_note": INTERNALS_NOTE,
            "requests": list(request_texts(view)),
        }
    )


def score_sentences(card: Card) -> Iterator[str]:
    """What a model's scores are worth, in up to three sentences."""
    if card.skill is None:
        yield "This model's skill is unknown: its card has no comparison with a baseline."
    else:
        yield card.skill.sentence
    if card.scores is None:
        return
    model_row = next((row for row in card.scores.rows if row.is_model), None)
    if model_row is not None and model_row.band_coverage:
        low, high = card.scores.band[0], card.scores.band[-1]
        share = sum(model_row.band_coverage) / len(model_row.band_coverage)
        yield (
            f"{format_percent(share)} of the outcomes fell between the quantiles {format_level(low)} and "
            f"{format_level(high)}; a calibrated forecast has {format_percent(high - low)}."
        )
    split = next((part for part in card.splits if part.name == card.scores.split), None)
    if split is not None:
        days = f"{format_session(split.first)} to {format_session(split.last)}"
        yield f"The days of these scores are {days}; nothing was fitted on them."


def request_texts(view: ShownForecast) -> Iterator[tuple[str, str]]:
    """The request in a shell, in Python and in C#; the bars are where the person has them."""
    name, reference = view.reading.name, f"{view.info.name}@{view.info.version}"
    folder = f"models/{view.info.name}/{view.info.version}"
    bars = name if ", " not in name and not name.endswith(" files") else "bars"
    horizon, quantile = view.attribution.horizon, view.attribution.quantile
    settings = {name: value for name, value in asdict(view.options).items() if value}
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ("--artifact", folder, "--bars", bars, *flags, "--symbol", view.symbol)
    words += ("--accept-suspect-bars",) if view.can_use_suspects else ()
    point = ("--horizon", str(horizon), "--quantile", f"{quantile:g}")
    yield "Shell", "\n".join(map(shlex.join, (("quantra", "predict", *words), ("quantra", "explain", *words, *point))))
    symbol, file = json.dumps(view.symbol, ensure_ascii=False), json.dumps(bars, ensure_ascii=False)
    wrapped = "Instance(input=bars, accept_suspect_bars=True)" if view.can_use_suspects else "bars"
    imports = "from predictor.instance import Instance\n" if view.can_use_suspects else ""
    imports += "from predictor.bars import ReadingOptions\n" if settings else ""
    # A panel model's forecast of a symbol depends on all symbols.
    python_selection, csharp_selection = (
        ("", "") if view.info.is_panel_model else (f".select([{symbol}])", f".Select({symbol})")
    )
    pairs = (f"{name}={value if isinstance(value, int) else repr(str(value))}" for name, value in settings.items())
    options = f", options=ReadingOptions({', '.join(pairs)})" if settings else ""
    python = (
        f"{imports}from quantra import BarPanel, Forecaster\n\n"
        f"bars = BarPanel.read({file}{options}){python_selection}\n"
        f'with Forecaster.load("{folder}") as model:\n'
        f"    print(model.predict({wrapped}))\n"
        f"    print(model.feature_importance({wrapped}, horizon={horizon}, quantile={quantile:g}))"
    )
    yield "Python", python
    clean = shlex.join(("quantra", "check", bars, *flags, "--fix", "clean.csv"))
    csharp = (
        f"// First, because C# reads plain files only: {clean}\n"
        "using Quantra.Client;\n\n"
        'await using var client = new QuantraClient(new Uri("http://127.0.0.1:50051"));\n'
        f'var bars = BarPanel.ReadCsv("clean.csv"){csharp_selection};\n'
        f'Console.WriteLine(await client.PredictAsync(new PredictionRequest("{reference}", bars)));'
    )
    yield "C#, while `quantra serve --models models` runs", csharp


def render_universe(
    frame: PageFrame, forecast: Forecast, info: ModelInfo, models: Sequence[ModelInfo], refused: Mapping[str, str]
) -> str:
    """A sortable table of all symbols."""
    page = PageBuilder(PACKAGE, "universe.html.j2", frame)
    return page.render(
        {
            "info": info,
            "models": models,
            "rows": sorted(_list_universe_rows(forecast), key=lambda row: (-row.middle, row.symbol)),
            "refused": refused,
            "warnings": [warning for warning in forecast.warnings if not warning.endswith(tuple(refused.values()))],
            "horizon": forecast.horizons[-1],
            "is_return": forecast.target_kind == LOG_RETURN,
            "levels": (forecast.quantiles[0], forecast.quantiles[-1]),
            "notes": forecast.notes,
        }
    )


def _list_universe_rows(forecast: Forecast) -> Iterator[UniverseRow]:
    is_return = forecast.target_kind == LOG_RETURN
    middle = int(np.argmin(np.abs(np.array(forecast.quantiles) - 0.5)))
    rows = [s for s, symbol in enumerate(forecast.symbols) if symbol not in forecast.refusals]
    for row, s in enumerate(rows):
        values = 100 * np.expm1(forecast.values[s]) if is_return else forecast.values[s]
        fan = charts.draw_fan_svg(
            forecast.horizons,
            forecast.quantiles,
            values,
            title=forecast.symbols[s],
            start=0.0 if is_return else None,
        )
        yield UniverseRow(
            symbol=forecast.symbols[s],
            middle=float(values[-1, middle]),
            low=float(values[-1, 0]),
            high=float(values[-1, -1]),
            rank=0 if forecast.ranks is None else int(forecast.ranks[s, -1]),
            fan=fan if row < MAX_FANS else "",
        )


def render_models(frame: PageFrame, models: Sequence[ModelView], note: str, result: Sequence[str] = ()) -> str:
    """What is live and why, with promotion and rollback.

    `note` says why nothing can be changed here, if so; `result` is that of the last change.
    """
    from trainers.stock.lifecycle.promotion import GATES  # slow to import, and the first page does not need it

    page = PageBuilder(PACKAGE, "models.html.j2", frame)
    return page.render({"models": models, "note": note, "gates": GATES, "result": result})


def render_calls(frame: PageFrame, described: Mapping[str, Any]) -> str:
    """The calls over HTTP and their messages, from their description as OpenAPI."""
    page, schemas = PageBuilder(PACKAGE, "calls.html.j2", frame), described["components"]["schemas"]
    messages = {
        _shorten_reference(name): list(_list_fields(schema))
        for name, schema in schemas.items()
        if "properties" in schema
    }
    names = {_shorten_reference(name): schema["enum"] for name, schema in schemas.items() if "enum" in schema}
    return page.render({"calls": list(_list_calls(described["paths"])), "messages": messages, "names": names})


def _list_calls(paths: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The calls over HTTP with their messages; `request` is empty without one."""

    def find_schema(part: Mapping[str, Any]) -> str:
        return _shorten_reference(part["content"]["application/json"]["schema"]["$ref"])

    for path, methods in paths.items():
        for method, call in methods.items():
            yield {
                "method": method.upper(),
                "path": path,
                "text": call["summary"],
                "request": find_schema(call["requestBody"]) if "requestBody" in call else "",
                "response": find_schema(call["responses"]["200"]),
            }


def _list_fields(schema: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The fields of a message; their own `message`, or list of names, is empty for others."""
    for name, field in schema["properties"].items():
        item = field.get("items", field)
        message = _shorten_reference(item["$ref"]) if "$ref" in item else ""
        if "oneOf" in item:
            kind = "numbers: base64, or a list"
        else:
            kinds = item.get("type", "")
            kind = kinds if isinstance(kinds, str) else " or ".join(kinds)
        yield {"name": name, "kind": f"list of {kind}".rstrip() if "items" in field else kind, "message": message}


def _shorten_reference(reference: str) -> str:
    return reference.rpartition(".")[2]


def render_message(frame: PageFrame, message: str) -> str:
    """A problem, in one paragraph."""
    return PageBuilder(PACKAGE, "message.html.j2", frame).render({"message": message})
