"""Every HTML page of the programs, with made-up results as large as real ones."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import canned_service
import numpy as np
from audits import audit_record
from backtests import backtest
from cards import full_card
from daily_runs import daily_bars, run_evenings, save_daily_model
from evaluations import evaluation
from market import bokeh_panel

from predictor import canonical
from predictor.bars import BarPanel, read_file
from predictor.card import Card
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.dates import to_date
from predictor.features import load_default_features
from predictor.forecast import Attribution, Forecast, RowKind
from predictor.internals import Internal, InternalAxis
from predictor.ledger import Ledger
from predictor.price_paths import PathQuestions, simulate_paths
from predictor.replacement import replace_file
from predictor.report import (
    PastForecasts,
    ReportContent,
    select_past_forecasts,
    write_forecast_chart,
    write_paths_page,
    write_reason_chart,
    write_report,
)
from trainers.stock.audit.page import render_audit
from trainers.stock.backtest.page import render_backtest
from trainers.stock.bars_report import check_bars, list_warnings, write_bars_page
from trainers.stock.daily import DailySettings
from trainers.stock.daily.page import render_evenings
from trainers.stock.evaluation.report import render_evaluation

NAME: Final = "demo/1"
SYMBOLS: Final = ("AAPL", "GOOG")
HORIZONS: Final = (1, 20)
LEVELS: Final = (0.1, 0.5, 0.9)
WINDOW: Final = 60
"""Sessions that the model reads."""
_ALONE: Final = (RowKind.LOCATION, RowKind.SCALE, RowKind.CONFORMAL)


def bars() -> BarPanel:
    return bokeh_panel(*SYMBOLS).last(400)


def model_info() -> ModelInfo:
    """ModelInfo with the default features of a training run."""
    features = load_default_features()
    observed, known = (
        tuple(FeatureInfo(name=d.name, expression=str(d.expression), meaning=d.meaning, unit=d.unit) for d in part)
        for part in (features.observed, features.known)
    )
    return replace(
        canned_service.model_info(),
        card_json=canonical.to_bytes(full_card()).decode(),
        observed_features=observed,
        known_features=known,
        horizons=HORIZONS,
        quantiles=LEVELS,
        encoder_length=WINDOW,
    )


def forecast() -> Forecast:
    panel = bars()
    anchors = panel.close[:, -1]
    widths = 0.014 * np.sqrt(HORIZONS)[None, :, None] * np.array([-1.1, 0.05, 1.2])
    values = np.tile(widths, (len(SYMBOLS), 1, 1))
    return replace(
        canned_service.forecast(SYMBOLS),
        horizons=HORIZONS,
        target_sessions=(date(2013, 3, 4), date(2013, 4, 1)),
        as_of_session=date.fromisoformat(str(panel.sessions[-1])),
        values=values,
        returns=values,
        prices=anchors[:, None, None] * np.exp(values),
        anchor_price=anchors,
    )


def card() -> Card:
    return Card.from_json(model_info().card_json)


def past() -> PastForecasts:
    """Past forecasts of the same width, from the closes of 60, 40 and 20 sessions before."""
    made = [_as_of(-1 - ago) for ago in (60, 40, 20)]
    return select_past_forecasts(made, date(2013, 3, 1), card())


def _as_of(place: int) -> Forecast:
    panel, last = bars(), forecast()
    anchors = panel.close[:, place]
    days = panel.sessions[place:]
    return replace(
        last,
        as_of_session=to_date(int(days[0])),
        target_sessions=(to_date(int(days[1])), to_date(int(days[20]))),
        prices=anchors[:, None, None] * np.exp(last.values),
        anchor_price=anchors,
    )


def attributions(info: ModelInfo) -> tuple[Attribution, ...]:
    """One per horizon and quantile, with cells and internals."""
    return tuple(_attribution(info, h, q) for h in HORIZONS for q in LEVELS)


def _attribution(info: ModelInfo, horizon: int, quantile: float) -> Attribution:
    random = np.random.default_rng(round(1000 * horizon + 100 * quantile))
    observed, known = ([one.name for one in part] for part in (info.observed_features, info.known_features))
    names = (*observed, *known, *(kind.value for kind in _ALONE))
    kinds = (*[RowKind.OBSERVED] * len(observed), *[RowKind.KNOWN] * len(known), *_ALONE)
    count = len(SYMBOLS)
    shares = random.dirichlet(np.ones(len(names)), count)
    attention = random.dirichlet(np.ones(WINDOW), count)
    sessions = bars().sessions[-WINDOW:]
    return replace(
        canned_service.attribution(SYMBOLS),
        horizon=horizon,
        quantile=quantile,
        row_names=names,
        row_kinds=kinds,
        per_row=0.002 * random.standard_normal((count, len(names))),
        sessions=tuple(date.fromisoformat(str(day)) for day in sessions),
        per_time=0.001 * random.standard_normal((count, WINDOW)),
        cells=0.0003 * random.standard_normal((count, WINDOW, len(observed))),
        internals=(
            Internal(name="past selection", axis=InternalAxis.INPUTS, labels=names, values=shares),
            Internal(
                name="attention",
                axis=InternalAxis.SESSIONS,
                labels=tuple(str(place) for place in range(1 - WINDOW, 1)),
                values=attention,
            ),
        ),
    )


def _report(path: Path) -> None:
    info = model_info()
    content = ReportContent(
        info=info,
        bars=bars(),
        forecast=forecast(),
        attributions=attributions(info),
        symbols=SYMBOLS,
        audit=audit_record(),
    )
    write_report(path, content)


def _paths(path: Path) -> None:
    holdings = {"AAPL": 1000.0, "GOOG": -500.0}
    simulated = simulate_paths(forecast(), bars())
    answers = simulated.answer(PathQuestions(holdings=holdings))
    write_paths_page(path, simulated, bars(), forecast(), holdings=holdings, answers=answers, level=0.99)


def _reasons(path: Path) -> None:
    info = model_info()
    write_reason_chart(path, info, replace(attributions(info)[1], cells=None), SYMBOLS)


def _check(path: Path) -> None:
    source = path.with_suffix(".csv")
    bars().write_csv(source)
    checked = check_bars(read_file(source), "")
    write_bars_page(path, checked.reading, checked.findings, tuple(list_warnings(checked)))


def _evenings(path: Path) -> None:
    """Write the page of four months of evenings."""
    folder = path.parent / "evenings"
    model_folder = save_daily_model(folder / "models" / "mine") / "mine"
    summary = run_evenings(folder / "ledger.db", model_folder, daily_bars(20100507), first=20100104, evidence_every=20)
    with Ledger.open(folder / "ledger.db") as ledger:
        replace_file(path, render_evenings(DailySettings(ledger=ledger, model_folder=model_folder), summary).encode())


STOCK_PAGES: Final[dict[str, Callable[[Path], None]]] = {
    "report": _report,
    "predict": lambda path: write_forecast_chart(path, bars(), forecast(), SYMBOLS, card(), past()),
    "explain": _reasons,
    "paths": _paths,
    "evaluation": lambda path: replace_file(path, render_evaluation(NAME, evaluation(adaptive=True)).encode()),
    "backtest": lambda path: replace_file(path, render_backtest(NAME, backtest()).encode()),
    "check": _check,
    "audit": lambda path: replace_file(path, render_audit(NAME, audit_record()).encode()),
    "evenings": _evenings,
}


def media_pages() -> dict[str, Callable[[Path], None]]:
    """Pages of voices and images; none without their extras."""
    if any(find_spec(name) is None for name in ("soundfile", "scipy", "transformers", "diffusers", "PIL")):
        return {}
    from media_page_samples import PAGES

    return PAGES


def write_pages(folder: Path) -> dict[str, Path]:
    """Write each page to a file."""
    written: dict[str, Path] = {}
    for name, write in (STOCK_PAGES | media_pages()).items():
        written[name] = folder / f"{name}.html"
        write(written[name])
    return written
