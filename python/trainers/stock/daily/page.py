"""The self-contained HTML page of a model's evenings, built only from its ledger."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from predictor import charts
from predictor.adaptive_widths import WIDTHS
from predictor.arrays import FloatArray
from predictor.dates import to_date
from predictor.errors import format_count, format_date
from predictor.evidence import ALPHA, CoverageSide, Lamp, LevelShares, bound_level_shares, describe_notice
from predictor.forecast import LOG_RETURN
from predictor.ledger import EvidenceRecord, ForecastRecord, LedgerEvent
from predictor.model_health import COVERAGE, SKILL, ModelVersion, read_axes, read_level_shares
from predictor.report import FILE, PageBuilder, PageFrame
from predictor.skill import Verdict
from trainers.stock.daily.evenings import EVENING, DailySettings, DailySummary, describe_alarm
from trainers.stock.daily.served_forecasts import read_forecasts, read_served

_MAX_FANS: Final = 60
"""Symbols whose fan is drawn in the table."""
_MAX_PAST_FANS: Final = 4
"""Symbols whose past fans are drawn with the later bars."""
_PAST_FAN_AGES: Final = (20, 40, 60)
"""Ages of the past fans in sessions."""
_BARS: Final = charts.SESSIONS_SHOWN + 1
_UNIT: Final = 1e4
"""Losses are shown in units of 1/10,000."""
_VERDICTS: Final = {Lamp.GREEN: Verdict.BETTER, Lamp.RED: Verdict.WORSE}


def render_evenings(settings: DailySettings, summary: DailySummary, frame: PageFrame = FILE) -> str:
    """The page as deterministic HTML; raises MissingPackageError without the packages of pages."""
    ledger, version = settings.ledger, ModelVersion(summary.model, summary.champion)
    page = PageBuilder("trainers.stock.daily", frame=frame)
    tonight = (
        read_served(ledger, summary.served, summary.session)
        if summary.served
        else read_forecasts(ledger, version, summary.session)
    )
    evidence = ledger.records(EvidenceRecord, "model = ? and version = ?", version)
    newest = [look for look in evidence if look.session == evidence[-1].session]
    events = ledger.records(
        LedgerEvent, f"kind not in ('{EVENING}', '{WIDTHS}') and model in ('', ?)", (summary.model,)
    )
    first = tonight[0] if tonight else None
    return page.render(
        {
            "summary": summary,
            "look": _VERDICTS.get(summary.lamp, Verdict.UNDECIDED),
            "horizon": first.horizons[-1] if first else 0,
            "is_return": first is not None and first.target_kind == LOG_RETURN,
            "levels": (first.quantiles[0], first.quantiles[-1]) if first else (),
            "max_fans": _MAX_FANS,
            "rows": sorted(map(_make_fan_row, tonight), key=lambda row: (-row["middle"], row["symbol"]))
            if tonight
            else (),
            "past": list(_draw_past_fans(settings, page, tonight)),
            "coverage": list(_draw_coverage(page, evidence)),
            "reliability": _draw_reliability(page, settings, version),
            "skill": list(_draw_skill(page, evidence)),
            "lamps": [
                (f"{record.monitor}, {record.horizon} ahead", record.lamp.value, describe_state(record))
                for record in newest
            ],
            "events": [(format_date(event.session) if event.session else "", event) for event in events],
        }
    )


def _make_fan_row(record: ForecastRecord) -> dict[str, Any]:
    """Tonight's forecast of one symbol at the last horizon, in percent for returns, and its small chart."""
    is_return = record.target_kind == LOG_RETURN
    values = 100 * np.expm1(record.values) if is_return else record.values
    start = 0.0 if is_return else None
    return {
        "symbol": record.symbol,
        "middle": float(values[-1, len(record.quantiles) // 2]),
        "low": float(values[-1, 0]),
        "high": float(values[-1, -1]),
        "fan": charts.draw_fan_svg(record.horizons, record.quantiles, values, title=record.symbol, start=start),
    }


def _draw_past_fans(
    settings: DailySettings, page: PageBuilder, tonight: Sequence[ForecastRecord]
) -> Iterator[tuple[str, str]]:
    """Tonight's fan of the first symbols, with earlier fans and the bars since then."""
    forecasts = [
        forecast
        for forecast in tonight
        if forecast.target_kind == LOG_RETURN and forecast.base_session == forecast.as_of
    ][:_MAX_PAST_FANS]
    if not forecasts:
        return
    bars = settings.ledger.panel([forecast.symbol for forecast in forecasts], last=forecasts[0].as_of).last(_BARS)
    for row, record in enumerate(forecasts):
        there = bars.present[row]
        close = bars.close[row, there]
        sessions = bars.sessions[there]
        days = [int(sessions[-1 - ago]) for ago in _PAST_FAN_AGES if ago < len(sessions)]
        past = settings.ledger.records(
            ForecastRecord,
            "symbol = ? and model = ? and role = 'champion' and as_of = any(?)",
            (record.symbol, settings.model_folder.name, days),
        )
        chart = charts.FanChart(
            candles=charts.Candles(
                dates=sessions,
                open=bars.open[row, there],
                high=bars.high[row, there],
                low=bars.low[row, there],
                close=close,
            ),
            target_dates=[to_date(day) for day in record.target_sessions],
            quantiles=record.quantiles,
            prices=float(close[-1]) * np.exp(record.values),
            past=[
                charts.PastFan(
                    start=to_date(outcome.as_of),
                    close=(past_close := float(close[sessions == outcome.as_of][0])),
                    target_dates=tuple(map(to_date, outcome.target_sessions)),
                    prices=past_close * np.exp(outcome.values),
                )
                for outcome in past
                if outcome.quantiles == record.quantiles
            ],
            title=record.symbol,
            currency=bars.currency,
        )
        yield (
            record.symbol,
            page.chart(charts.draw_fan(chart), f"{record.symbol}: past and tonight's forecasts", top=64),
        )


def _make_series(
    name: str, records: Sequence[EvidenceRecord], field: str, *bounds: str, unit: float = 1.0
) -> charts.BoundedSeries:
    def column(name: str) -> FloatArray:
        return unit * np.array([record.number(name) for record in records], np.float64)

    lower, upper = map(column, bounds) if bounds else (None, None)
    dates = np.array([record.session for record in records], np.int32)
    return charts.BoundedSeries(name=name, dates=dates, values=column(field), lower=lower, upper=upper)


def _draw_coverage(page: PageBuilder, evidence: Sequence[EvidenceRecord]) -> Iterator[str]:
    """The share inside the band, and the capital of the bets against it."""
    looks = [
        look for look in evidence if look.monitor == f"{COVERAGE} {CoverageSide.TOO_FEW}" and look.state.get("days")
    ]
    horizons = sorted({look.horizon for look in looks})
    if not horizons or len({look.session for look in looks}) == 1:
        return
    by_horizon = {horizon: [look for look in looks if look.horizon == horizon] for horizon in horizons}
    shares = [_make_series(f"{horizon} ahead", of, "share") for horizon, of in by_horizon.items()]
    promised = looks[0].number("promised") or 0.0
    figure = charts.draw_bounded_lines(
        shares, title="Share inside the band", what="share inside", level=promised, level_name="promised"
    )
    yield page.chart(figure, "Share of outcomes inside the band", top=64)
    capital = [_make_series(f"{horizon} ahead", of, "guarded") for horizon, of in by_horizon.items()]
    figure = charts.draw_bounded_lines(
        capital, title="Capital", what="capital", level=1 / ALPHA, level_name="red", is_log=True
    )
    yield page.chart(figure, "Capital of the bets that the band is too narrow", top=64)


def _draw_reliability(page: PageBuilder, settings: DailySettings, version: ModelVersion) -> str:
    """The share of outcomes at or below each quantile, by horizon; empty without outcomes."""
    axes = read_axes(settings.ledger, version)
    names: list[str] = []
    level_shares: list[LevelShares] = []
    for horizon in axes.horizons:
        shares = read_level_shares(settings.ledger, version, horizon, len(axes.quantiles))
        if len(shares):
            level_shares.append(bound_level_shares(shares, horizon=horizon))
            names.append(f"{horizon} ahead, {format_count(len(shares), 'date')}")
    if not level_shares:
        return ""
    _, observed, lower, upper = map(np.array, zip(*level_shares, strict=True))
    figure = charts.draw_calibration(axes.quantiles, names, observed, lower, upper)
    return page.chart(figure, "Share of outcomes at or below each quantile minus its level, by horizon", top=88)


def _draw_skill(page: PageBuilder, evidence: Sequence[EvidenceRecord]) -> Iterator[tuple[str, str]]:
    """The difference of losses from each rival at the shortest horizon, with its bounds."""
    looks = [look for look in evidence if look.monitor.startswith(SKILL) and look.state.get("lower") is not None]
    shortest = min((look.horizon for look in looks), default=0)
    for monitor in sorted({look.monitor for look in looks}):
        of = [look for look in looks if look.monitor == monitor and look.horizon == shortest]
        if len(of) <= 1:
            continue
        rival = monitor.removeprefix(SKILL).strip()
        series = _make_series("smaller loss", of, "mean", "lower", "upper", unit=_UNIT)
        figure = charts.draw_bounded_lines(
            [series], title=rival, what="smaller loss (1/10,000)", level=0.0, level_name="no difference"
        )
        yield f"Against {rival}, {shortest} ahead", page.chart(figure, f"Skill against {rival}", top=64)


def describe_state(record: EvidenceRecord) -> str:
    """A monitor's outcomes so far, and the changes that it would notice."""
    if record.lamp is Lamp.RED:
        return describe_alarm(record)
    days = int(record.number("days") or 0)
    if record.monitor.startswith(SKILL):
        bounded = record.state.get("lower") is not None
        reason = "the bounds include no difference" if bounded else "too few outcomes for bounds"
        return f"{days} dates; {reason}" if record.lamp is Lamp.LEARNING else f"{days} dates; better"
    share = record.number("share")
    inside = "" if share is None else f", {100 * share:.1f} % inside"
    if record.monitor != f"{COVERAGE} {CoverageSide.TOO_FEW}":
        return f"{days} dates{inside}"
    notice = describe_notice(record.number("promised") or 0.0, int(record.number("notice_days") or 0))
    return f"{days} dates{inside}; it {notice}"
