"""The HTML report: one file that explains a forecast and the model behind it, and that loads nothing from anywhere.

Texts and tables need no JavaScript; the charts do. Every number that is shown rounded stands in full in its `<data>`.
"""

import json
import math
import shlex
from dataclasses import dataclass
from importlib import resources
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from predictor import charts
from predictor.bars import BarPanel
from predictor.card import MEAN_EXPLAINED, Calibration, Card, Scores, Training
from predictor.catalog import ModelInfo
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.forecast import LOG_RETURN, Attribution, Forecast, RowKind
from predictor.replacement import replace_file

if TYPE_CHECKING:
    from jinja2 import Template
    from plotly.graph_objects import Figure

BASIS_POINTS: Final = 10_000.0
TEMPLATE: Final = "report.html.j2"

_CHART: Final = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}
_FEATURES_IN_HEATMAP: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """What a report shows.

    Attributes:
        info: the model; its card holds data, splits, scores, calibration and skill, each section if there is one.
        bars: the bars that the forecast was made from, raw.
        forecast: of a panel that holds the symbol.
        attributions: one a horizon and quantile, with cells where a heat map is wanted; may be empty.
        symbol: whose forecast is shown.
    """

    info: ModelInfo
    bars: BarPanel
    forecast: Forecast
    attributions: tuple[Attribution, ...]
    symbol: str


def write_report(path: Path, content: ReportContent) -> None:
    """Write the report, whole or not at all.

    Raises:
        ConfigurationError: the symbol has no forecast, or no bars.
        ArtifactError: the model's card holds something else than it must.
        MissingPackageError: plotly or jinja2 is not installed.
        OSError: the file cannot be written.
    """
    replace_file(path, render_report(content).encode())


def render_report(content: ReportContent) -> str:
    """The report as HTML text; raises as `write_report`, but for OSError. The same content gives the same text."""
    card = Card.from_json(content.info.card_json)
    drawing = Drawing()
    return _template().render(
        info=content.info,
        card=card,
        symbol=content.symbol,
        forecast=_forecast_view(content, drawing),
        reasons=[_reason_view(found, content.symbol, drawing) for found in content.attributions],
        shown_first=_nearest_to_median(content.attributions),
        scores=None if card.scores is None else _score_table(card.scores),
        mean_explained=MEAN_EXPLAINED,
        loss=_loss_chart(card.training, drawing),
        calibration=_calibration_chart(card.calibration, drawing),
        ask=_ask_again(content),
        forecast_id=content.forecast.forecast_id,
        plotly_js=drawing.library(),
    )


def forecast_chart(bars: BarPanel, forecast: Forecast, symbol: str) -> "Figure":
    """The fan at the raw price, after the last year of bars; the quantiles alone where there are no prices.

    Raises:
        BarsError: the panel has no such symbol.
        MissingPackageError: plotly is not installed.
    """
    s = forecast.symbols.index(symbol)
    title = f"{symbol}: {forecast.model} version {forecast.version}"
    if forecast.prices is None or not len(forecast.target_sessions):
        return charts.quantile_lines(
            forecast.horizons, forecast.quantiles, forecast.values[s], title=title, unit=forecast.target_kind
        )
    return charts.fan(
        _candles(bars, symbol),
        forecast.target_sessions,
        forecast.quantiles,
        forecast.prices[s],
        title=title,
        currency=bars.currency,
    )


def _candles(bars: BarPanel, symbol: str) -> charts.Candles:
    """The bars of one symbol, without the sessions on which it has none."""
    one = bars.select([symbol])
    there = one.present[0]
    return charts.Candles(
        dates=one.sessions[there],
        open=one.open[0, there],
        high=one.high[0, there],
        low=one.low[0, there],
        close=one.close[0, there],
    )


@final
class Drawing:
    """Turns figures into HTML; numbers them, so that the same figures always give the same text."""

    def __init__(self) -> None:
        self._ids = count(1)

    def html(self, figure: "Figure", *, top: int = 40) -> str:
        """The figure's `<div>` and the script that fills it, without the title and with `top` pixels in its place."""
        figure.update_layout(title=None, autosize=True, margin_t=top)
        text: str = figure.to_html(
            full_html=False, include_plotlyjs=False, config=_CHART, div_id=f"chart-{next(self._ids)}"
        )
        return text

    def library(self) -> str:
        """The text of plotly.js."""
        try:
            from plotly.offline import get_plotlyjs
        except ModuleNotFoundError as error:
            raise MissingPackageError.of("plotly", "report", "a report") from error
        text: str = get_plotlyjs()
        return text


# --- the forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCell:
    """One quantile of one horizon; `price` is None where the model forecasts no price."""

    value: float
    price: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastLine:
    """One horizon of the forecast table; `session` is empty where unknown."""

    horizon: int
    session: str
    cells: tuple[ForecastCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastView:
    """The forecast of one symbol as the page shows it."""

    chart: str
    as_of: str
    anchor: float | None
    currency: str
    is_return: bool
    lag: int
    levels: tuple[str, ...]
    lines: tuple[ForecastLine, ...]
    warnings: tuple[str, ...]


def _forecast_view(content: ReportContent, drawing: Drawing) -> ForecastView:
    forecast, s = content.forecast, _row_of(content.symbol, content.forecast)
    return ForecastView(
        chart=drawing.html(forecast_chart(content.bars, forecast, content.symbol)),
        as_of=_iso(forecast.as_of_session),
        anchor=None if forecast.anchor_price is None else float(forecast.anchor_price[s]),
        currency=content.bars.currency,
        is_return=forecast.target_kind == LOG_RETURN,
        lag=forecast.lag,
        levels=tuple(map(_level, forecast.quantiles)),
        lines=tuple(_forecast_line(forecast, s, h) for h in range(len(forecast.horizons))),
        warnings=forecast.warnings,
    )


def _row_of(symbol: str, forecast: Forecast) -> int:
    if symbol not in forecast.symbols:
        raise ConfigurationError(f"the forecast has no symbol {symbol!r}; it has {list(forecast.symbols)}")
    s = forecast.symbols.index(symbol)
    if not np.isfinite(forecast.values[s]).all():
        raise ConfigurationError(f"{symbol} has no forecast to report: {'; '.join(forecast.warnings)}")
    return s


def _forecast_line(forecast: Forecast, s: int, h: int) -> ForecastLine:
    prices: list[float | None] = [None] * len(forecast.quantiles)
    if forecast.prices is not None:
        prices = forecast.prices[s, h].tolist()
    values: list[float] = forecast.values[s, h].tolist()
    session = int(forecast.target_sessions[h]) if len(forecast.target_sessions) else 0
    return ForecastLine(
        horizon=forecast.horizons[h],
        session=_iso(session),
        cells=tuple(ForecastCell(value=v, price=p) for v, p in zip(values, prices, strict=True)),
    )


# --- the reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """One input's contribution, in the view's unit."""

    name: str
    kind: str
    value: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonView:
    """One attribution as the page shows it; `heatmap` is empty without cells."""

    label: str
    unit: str
    method: str
    baseline: str
    prediction: float
    baseline_prediction: float
    relative_gap: float
    converged: bool
    rows: tuple[ReasonRow, ...]
    bars: str
    heatmap: str


def _nearest_to_median(attributions: tuple[Attribution, ...]) -> int:
    """Position of the attribution to show first, from 1; of those as near as each other the first."""
    distances = [abs(found.quantile - 0.5) for found in attributions]
    return 1 + distances.index(min(distances)) if distances else 0


def _reason_view(found: Attribution, symbol: str, drawing: Drawing) -> ReasonView:
    if symbol not in found.symbols:
        raise ConfigurationError(f"the attribution has no symbol {symbol!r}; it has {list(found.symbols)}")
    s = found.symbols.index(symbol)
    factor, unit = _display_unit(found.unit)
    values = factor * found.per_row[s]
    return ReasonView(
        label=f"{_sessions(found.horizon)}, {_level(found.quantile)}",
        unit=unit,
        method=found.method,
        baseline=found.baseline,
        prediction=factor * float(found.prediction[s]),
        baseline_prediction=factor * float(found.baseline_prediction[s]),
        relative_gap=float(found.relative_gap[s]),
        converged=bool(found.converged[s]),
        rows=_reason_rows(found, values),
        bars=drawing.html(charts.importance_bars(found.row_names, values, unit), top=12),
        heatmap=_heatmap(found, s, drawing),
    )


def _reason_rows(found: Attribution, values: NDArray[np.float64]) -> tuple[ReasonRow, ...]:
    """Largest first."""
    total = float(np.abs(values).sum()) or 1.0
    rows = [
        ReasonRow(name=name, kind=kind.value, value=value, share=abs(value) / total)
        for name, kind, value in zip(found.row_names, found.row_kinds, values.tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _heatmap(found: Attribution, s: int, drawing: Drawing) -> str:
    """Observed features by session, the most important on top; empty without cells or sessions."""
    if found.cells is None or not len(found.sessions):
        return ""
    observed = [r for r, kind in enumerate(found.row_kinds) if kind is RowKind.OBSERVED]
    names = [found.row_names[r] for r in observed]
    order = np.argsort(-np.abs(found.per_row[s, observed]), kind="stable")[:_FEATURES_IN_HEATMAP]
    factor, unit = _display_unit(found.unit)
    cells = factor * found.cells[s][:, order]
    figure = charts.importance_heatmap(found.sessions, [names[f] for f in order.tolist()], cells, unit)
    return drawing.html(figure, top=70)


def _display_unit(unit: str) -> tuple[float, str]:
    """Log returns are small numbers; people read them in basis points."""
    return (BASIS_POINTS, "basis points") if unit == "log return" else (1.0, unit)


# --- the model


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCell:
    """One loss, and whether it is the least of its column."""

    value: float
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLine:
    """One row of the table of scores: a cell a horizon, then the mean."""

    name: str
    is_model: bool
    cells: tuple[ScoreCell, ...]
    coverage: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Scores of the model and the baselines on the same outcomes."""

    unit: str
    split: str
    horizons: tuple[int, ...]
    band: tuple[float, ...]
    lines: tuple[ScoreLine, ...]


def _score_table(scores: Scores) -> ScoreTable:
    losses = [(*row.pinball, row.mean) for row in scores.rows]
    best = [min(column) for column in zip(*losses, strict=True)]
    return ScoreTable(
        unit=scores.unit,
        split=scores.split,
        horizons=scores.horizons,
        band=scores.band,
        lines=tuple(
            ScoreLine(
                name=row.name,
                is_model=row.is_model,
                cells=tuple(ScoreCell(value=v, is_best=v == b) for v, b in zip(values, best, strict=True)),
                coverage=row.band_coverage,
            )
            for row, values in zip(scores.rows, losses, strict=True)
        ),
    )


def _loss_chart(training: Training | None, drawing: Drawing) -> str:
    if training is None or not training.epochs:
        return ""
    epochs = training.epochs
    return drawing.html(
        charts.loss_curve(
            [e.epoch for e in epochs],
            [e.train for e in epochs],
            [e.selection for e in epochs],
            training.best_epoch,
            unit="pinball loss",
        )
    )


def _calibration_chart(found: Calibration | None, drawing: Drawing) -> str:
    if found is None:
        return ""
    matrices = [np.asarray(matrix, np.float64) for matrix in (found.observed, found.lower, found.upper)]
    return drawing.html(charts.calibration(found.levels, [_sessions(h) for h in found.horizons], *matrices))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgain:
    """Commands that repeat the question."""

    command_line: str
    python: str


def _ask_again(content: ReportContent) -> AskAgain:
    reference = f"{content.info.name}@{content.info.version}"
    folder = f"models/{content.info.name}/{content.info.version}"
    symbol = json.dumps(content.symbol, ensure_ascii=False)
    return AskAgain(
        command_line=(
            "quantra serve --models models\n"
            f"quantra predict --server 127.0.0.1:50051 --model {shlex.quote(reference)} --bars bars.csv "
            f"--symbol {shlex.quote(content.symbol)}"
        ),
        python=(
            "from predictor import BarPanel, Forecaster\n\n"
            f'forecaster = Forecaster.load("{folder}")\n'
            f'forecast = forecaster.predict(BarPanel.read("bars.csv").select([{symbol}]))\n'
            f'reasons = forecaster.feature_importance(BarPanel.read("bars.csv").select([{symbol}]), '
            f"horizon={content.info.horizons[-1]})"
        ),
    )


# --- text


def _template() -> "Template":
    try:
        from jinja2 import Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("jinja2", "report", "a report") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "iso": _iso,
        "level": _level,
        "sessions": _sessions,
        "percent": _percent,
        "signed": _signed,
        "signed_percent": _signed_percent,
    }
    return environment.from_string(resources.files("predictor").joinpath(TEMPLATE).read_text("utf-8"))


def _iso(session: int) -> str:
    """A yyyymmdd for people; empty for 0, which means unknown."""
    return f"{session // 10000:04d}-{session // 100 % 100:02d}-{session % 100:02d}" if session else ""


def _level(quantile: float) -> str:
    return "median" if quantile == 0.5 else f"{100 * quantile:g} %"  # noqa: PLR2004 - the definition of the median


def _sessions(horizon: int) -> str:
    return "1 session" if horizon == 1 else f"{horizon} sessions"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def _signed(value: float, digits: int = 2) -> str:
    """A number with its sign; no digits are wasted on large ones."""
    text = f"{value:+,.{digits if math.fabs(value) < 1000 else 0}f}"  # noqa: PLR2004 - four digits before the point
    return text.replace("-", "\N{MINUS SIGN}")


def _signed_percent(share: float) -> str:
    return f"{_signed(100 * share)}\N{NO-BREAK SPACE}%"
