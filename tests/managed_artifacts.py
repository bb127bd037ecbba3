"""Writes the artifacts that the C# package without Python is tested with, and Python's results for some requests.

    python tests/managed_artifacts.py [FOLDER]

FOLDER, by default the one of the C# tests, then holds `models/NAME/1` and `requests.json`: bars, options and the
expected forecast or error. A column of bars is base64, or an integer n: the last n sessions of the first request's.
`paths.json` has a request for price paths in the same form, and the expected paths and answers. The artifacts are
small: a short encoder, few features and narrow networks.
"""

import base64
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import ensembles
import numpy as np
from artifacts import NO_SKILL, SMALL, UNIVERSE, fitted_normaliser, random_weights, save_artifact, with_skill
from market import bokeh_panel, without_bars, without_last_bar

from predictor import artifact, golden
from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel, BarTable
from predictor.call_context import NEVER
from predictor.canonical import Json
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.dates import to_date
from predictor.errors import QuantraError, get_error_status
from predictor.features import CovariateFields, FeatureSet, FittedFeatures, StaticFeatures, load_default_features
from predictor.features.statics import StaticCategory, StaticNumber
from predictor.forecast import Forecast, require_forecast
from predictor.inference import choose_device
from predictor.instance import GapPolicy, Instance
from predictor.model import Predictor
from predictor.networks import Target, TargetKind, WindowNormaliser, get_kind
from predictor.price_paths import PathQuestions, simulate_paths
from predictor.registry import Runtime, load_model
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

FOLDER: Final = Path(__file__).parents[1] / "dotnet" / "Quantra.Client.Managed.Tests" / "Artifacts"
QUANTILES: Final = (0.1, 0.5, 0.9)
ENCODER: Final = 12
FEW: Final = ("return_1", "return_5", "gap", "close_in_day")
"""Observed features of most models: they look back a few days only."""
MIN_COLUMNS: Final = 30
"""Fewer columns than trees of these models read."""
SHORT: Final = Target(horizons=(1, 5))
AFTER: Final = datetime(2013, 6, 3, tzinfo=UTC)
COVARIATES: Final = CovariateFields(observed=("short_interest",), known=("rebalance",))
STATICS: Final = StaticFeatures(
    numbers=(StaticNumber(name="cap", center=3.0, scale=2.0),),
    categories=(StaticCategory(name="sector", categories=("Hardware", "Media")),),
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """One small model: its artifact's parts, apart from the defaults."""

    kind: str = "lstm"
    target: Target = SHORT
    features: tuple[str, ...] = FEW
    calendar: str = "XNYS"
    is_fitted: bool = False
    has_covariates: bool = False
    encoder_length: int = ENCODER
    seed: int = 0
    card: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def artifact(self) -> Artifact:
        """Build the artifact, with seeded random weights."""
        pipeline = self._pipeline()
        horizons, config = len(self.target.horizons), SMALL[self.kind]
        manifest = Manifest(
            kind=get_kind(self.kind),
            config=replace(config, dropout=0.1) if get_kind(self.kind).is_trainable else config,
            target=self.target,
            quantiles=QUANTILES,
            normaliser=pipeline.normaliser,
            encoder_length=pipeline.encoder_length,
            conformal=Conformal(offsets=((-0.05, 0.0, 0.08),) * horizons, effective_samples=(100.0,) * horizons),
            baseline=BaselineSpec(
                name="train_mean",
                known=(0.0,) * pipeline.sizes.known,
                static=(0.1,) * pipeline.sizes.static,
                location=(0.0,) * horizons,
                scale=(0.02,) * horizons,
            ),
            universe=UNIVERSE if get_kind(self.kind).is_panel_model else (),
            card={"note": "a small model with random weights, for tests", **self.card},
        )
        weights = random_weights(manifest, pipeline, self.seed)
        if self.kind == "trees":
            weights["columns"] %= MIN_COLUMNS
        return Artifact(manifest=manifest, pipeline=pipeline, weights=weights)

    def _pipeline(self) -> Pipeline:
        features = load_default_features()
        chosen = [one for one in features.observed if one.name in self.features or not self.features]
        features = replace(features, observed=tuple(chosen))
        history = bokeh_panel("AAPL").between(20090101, 20121231)
        is_level = self.target.kind is TargetKind.LOG_VOLATILITY
        return Pipeline(
            features=self._with_covariates(features, history) if self.has_covariates else _fit(features, history),
            target=self.target,
            normaliser=fitted_normaliser(self.target, self.kind)
            if self.is_fitted or get_kind(self.kind).is_scale_only
            else WindowNormaliser(window=30, centred=is_level, decay=1.0 if is_level else 0.94),
            calendar=SessionCalendar.named(self.calendar, 20100104, 20140630),
            encoder_length=self.encoder_length,
        )

    @staticmethod
    def _with_covariates(features: FeatureSet, history: BarPanel) -> FittedFeatures:
        chosen = features.with_covariates(COVARIATES)
        values, length = np.random.default_rng(3), len(history.sessions)
        observed = {"short_interest": np.exp(values.normal(0, 0.5, (1, length)))}
        known = {"rebalance": (values.random((1, length)) < 0.5).astype(np.float64)}
        calendar = SessionCalendar.named("XNYS", int(history.sessions[0]), int(history.sessions[-1]))
        return FittedFeatures.fit(
            chosen,
            chosen.columns(history.adjusted(), observed),
            known=chosen.evaluate_known(calendar.fields(history.sessions), known),
            statics=STATICS,
        )


def _fit(features: FeatureSet, history: BarPanel) -> FittedFeatures:
    return FittedFeatures.fit(features, features.columns(history.adjusted()))


DATA: Final[Mapping[str, Json]] = {
    "data": {
        "symbols": ["AAPL", "MSFT"],
        "first_session": 20090102,
        "last_session": 20121231,
        "sessions": 1006,
        "sha256": "0" * 64,
        "adjustment": "adj_close",
        "notes": [],
    }
}

MODELS: Final[Mapping[str, Made]] = {
    "plain": Made(features=()),
    "gru": Made(kind="gru"),
    "delayed": Made(kind="gru", target=Target(lag=1, horizons=(1, 3))),
    "fitted": Made(is_fitted=True, card=DATA),
    "volatility": Made(target=Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1, 5))),
    "weekdays": Made(calendar="weekdays"),
    "covariates": Made(has_covariates=True),
    "har": Made(kind="har"),
    "garch": Made(kind="garch"),
    "tft": Made(kind="tft"),
    "hybrid": Made(kind="hybrid"),
    "trees": Made(kind="trees"),
    "graph": Made(kind="graph"),
}
"""Models by name."""


@dataclass(frozen=True, kw_only=True)
class MadeEnsemble:
    """One small ensemble: its members, and how they are combined."""

    members: Mapping[str, Made]
    weights: tuple[tuple[float, ...], ...] = ()
    offsets: tuple[tuple[float, ...], ...] = ((-0.03, 0.0, 0.02), (0.01, 0.0, -0.01))
    card: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def save(self, folder: Path) -> None:
        """Write it with its members and golden instances."""
        with TemporaryDirectory() as drafts:
            folders = {name: save_artifact(Path(drafts) / name, made.artifact()) for name, made in self.members.items()}
            stored = {name: artifact.load(one) for name, one in folders.items()}
            manifest = replace(
                ensembles.manifest_of(stored, self.weights),
                conformal=Conformal(offsets=self.offsets, effective_samples=(100.0, 100.0)),
                card={"note": "a small ensemble with random weights, for tests", **self.card},
            )
            instance = golden.record_ensemble(ensembles.ensemble_of(manifest, stored))
            artifact.save_ensemble(folder, manifest, folders, instance)


ENSEMBLES: Final[Mapping[str, MadeEnsemble]] = {
    "ensemble": MadeEnsemble(
        members={
            "first": Made(kind="gru"),
            "again": Made(kind="gru", seed=1),
            "trees": Made(kind="trees", encoder_length=20),
        }
    ),
    "weighted": MadeEnsemble(
        members={
            "fitted": Made(is_fitted=True, card=DATA),
            "covariates": Made(has_covariates=True, encoder_length=15, card=DATA),
        },
        weights=ensembles.UNEVEN,
        card=DATA,
    ),
    "ranking": MadeEnsemble(members={"first": Made(kind="graph"), "again": Made(kind="graph", seed=1, card=DATA)}),
    "mixed": MadeEnsemble(members={"graph": Made(kind="graph"), "gru": Made(kind="gru", card=DATA)}),
}
"""Ensembles by name: one whose members partly read the same inputs, one with weights, and two with graphs."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request: the columns of a panel, which may be invalid, and options."""

    model: str = "plain"
    bars: BarPanel
    changed: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields that replace those of the bars, after all checks."""
    covariates: Covariates = NO_COVARIATES
    gap_policy: GapPolicy = GapPolicy.REFUSE
    allow_incomplete_last_bar: bool = False
    accept_suspect_bars: bool = False
    now: datetime = AFTER

    def describe(self, model: Predictor, first: BarPanel) -> dict[str, object]:
        """The request and Python's result; `first` are the bars of the first request."""
        columns = {name: getattr(self.bars, name) for name in ("symbols", "sessions", "calendar", *self.bars.columns)}
        columns |= self.changed
        return {
            "model": self.model,
            "bars": {
                name: to_plain(value) if self.bars is first else _described_column(value, getattr(first, name))
                for name, value in columns.items()
            },
            "covariates": {one.name: to_plain(getattr(self.covariates, one.name)) for one in fields(self.covariates)},
            "gap_policy": self.gap_policy.value,
            "allow_incomplete_last_bar": self.allow_incomplete_last_bar,
            "accept_suspect_bars": self.accept_suspect_bars,
            "now": self.now.isoformat(),
            "expected": _describe_outcome(self._outcome(model, columns)),
        }

    def _outcome(self, model: Predictor, columns: Mapping[str, object]) -> Forecast | QuantraError:
        sent = {name: value for name, value in columns.items() if isinstance(value, np.ndarray)}
        sessions = sent.pop("sessions")
        symbols, calendar = (columns[name] for name in ("symbols", "calendar"))
        assert isinstance(symbols, tuple)
        assert isinstance(calendar, str)
        try:
            bars, symbol_errors = BarPanel.of_possible_bars(
                BarTable(symbols=symbols, sessions=sessions, columns=sent), calendar=calendar
            )
            instance = Instance(
                input=bars,
                symbol_errors=symbol_errors,
                covariates=self.covariates,
                gap_policy=self.gap_policy,
                allow_incomplete_last_bar=self.allow_incomplete_last_bar,
                accept_suspect_bars=self.accept_suspect_bars,
            )
        except QuantraError as error:
            return error
        return model.predict([instance], self.now, NEVER)[0]


def _described_column(value: object, first: object) -> object:
    if isinstance(value, np.ndarray) and isinstance(first, np.ndarray):
        count = value.shape[-1]
        if np.array_equal(value, first[..., -count:], equal_nan=True):
            return count
    return to_plain(value)


def _describe_outcome(outcome: Forecast | QuantraError) -> dict[str, object]:
    if isinstance(outcome, QuantraError):
        return {"error": describe_error(outcome)}
    described = {one.name: to_plain(getattr(outcome, one.name)) for one in fields(outcome) if one.name != "skill"}
    described["refusals"] = {symbol: describe_error(error) for symbol, error in outcome.refusals.items()}
    described["skill"] = None if outcome.skill is None else outcome.skill.line
    return described


def describe_error(error: QuantraError) -> dict[str, object]:
    """Status, reason, message and metadata of an error."""
    answer = get_error_status(error)
    return {
        "status": answer.status.value,
        "reason": answer.reason,
        "message": error.message,
        "metadata": error.metadata,
    }


def to_plain(value: object) -> object:
    """The value as JSON; arrays are base64, dates are yyyymmdd."""
    if isinstance(value, np.ndarray):
        return base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    if isinstance(value, date):
        return int(value.strftime("%Y%m%d"))
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def decode(value: str | None) -> np.ndarray:
    """The float64 numbers of a described array; none for a missing one."""
    return np.frombuffer(base64.b64decode(value or ""), np.float64)


def list_requests(bars_needed: Callable[[str], int]) -> dict[str, Request]:
    """All requests by name."""
    two = bokeh_panel("AAPL", "IBM").last(bars_needed("plain"))
    few = {
        name: bokeh_panel("AAPL", "IBM").last(bars_needed(name)) for name in (*MODELS, *ENSEMBLES) if name != "plain"
    }
    unadjusted = replace(two, adj_close=None)
    events = replace(unadjusted, split_ratio=np.ones_like(two.close), cash_dividend=np.zeros_like(two.close))
    ratios, paid = events.split_ratio.copy(), events.cash_dividend.copy()  # pyright: ignore[reportOptionalMemberAccess]
    ratios[0, -20], paid[1, -9] = 2.0, 1.5
    four = bokeh_panel(*UNIVERSE).last(bars_needed("graph"))
    strange = replace(without_last_bar(four, "MSFT"), symbols=("AAPL", "X", "IBM", "MSFT"))
    reading = ("covariates", "weighted")
    plain = {name: Request(model=name, bars=bars) for name, bars in few.items() if name not in reading}
    return {
        "panel": Request(bars=two),
        **plain,
        "one": Request(bars=two.select(["AAPL"])),
        "late": Request(bars=without_last_bar(two, "IBM")),
        "a day without bars": Request(bars=without_bars(two, "IBM", slice(-8, -7))),
        "a young symbol": Request(bars=without_bars(two, "IBM", slice(0, -20))),
        "too young": Request(bars=without_bars(two, "IBM", slice(0, -6))),
        "few bars": Request(bars=two.last(30)),
        "too few bars": Request(bars=two.last(4)),
        "splits and dividends": Request(bars=replace(events, split_ratio=ratios, cash_dividend=paid)),
        "without adjustment": Request(bars=unadjusted),
        "without volumes": Request(bars=replace(two, volume=np.zeros_like(two.volume))),
        "unknown volumes": Request(bars=_changed(two, "volume", 1, slice(-7, -4), np.nan)),
        "no trade at the end": Request(bars=_untraded(two, slice(-2, None), (0, 1))),
        "one did not trade": Request(bars=_untraded(two, slice(-1, None), (1,))),
        "often no trade": Request(bars=_untraded(two, slice(20, 27), (1,))),
        "a bad tick": Request(bars=_scaled(two, 1, slice(-10, -9), 100.0)),
        "a bad last bar": Request(bars=_scaled(two, 1, slice(-1, None), 100.0)),
        "a bad tick, accepted": Request(bars=_scaled(two, 1, slice(-10, -9), 100.0), accept_suspect_bars=True),
        "another unit": Request(bars=_scaled(two, 0, slice(-30, None), 0.01)),
        "a jump": Request(bars=_scaled(unadjusted, 0, slice(-15, None), 0.5)),
        "a split and wrong closes": Request(bars=_with_wrong_closes(two)),
        "a wrong volume": Request(bars=_changed(two, "volume", 0, slice(-12, -11), 9e13)),
        "constant": Request(bars=_constant(two)),
        "a missing session": Request(bars=two.without_sessions([int(two.sessions[-2])])),
        "a missing session, masked": Request(
            bars=two.without_sessions([int(two.sessions[-2])]), gap_policy=GapPolicy.MASK
        ),
        "a missing session, ignored": Request(
            bars=two.without_sessions([int(two.sessions[-2])]), gap_policy=GapPolicy.IGNORE
        ),
        "an open session": Request(bars=two, now=datetime(2013, 3, 1, 15, tzinfo=UTC)),
        "an open session, allowed": Request(
            bars=two, now=datetime(2013, 3, 1, 15, tzinfo=UTC), allow_incomplete_last_bar=True
        ),
        "an open session of one": Request(bars=without_last_bar(two, "IBM"), now=datetime(2013, 3, 1, 15, tzinfo=UTC)),
        "an open session of one, with covariates": Request(
            model="covariates",
            bars=without_last_bar(few["covariates"], "IBM"),
            covariates=_covariates(few["covariates"]),
            now=datetime(2013, 3, 1, 15, tzinfo=UTC),
        ),
        "an open session of one, weighted": Request(
            model="weighted",
            bars=without_last_bar(few["weighted"], "IBM"),
            covariates=_covariates(few["weighted"]),
            now=datetime(2013, 3, 1, 15, tzinfo=UTC),
        ),
        "a day that has not begun of one": Request(
            bars=without_last_bar(two, "IBM"),
            now=datetime(2013, 2, 27, tzinfo=UTC),
            allow_incomplete_last_bar=True,
        ),
        "no day that has begun": Request(
            bars=without_bars(two, "IBM", slice(None)), now=datetime(2000, 1, 3, tzinfo=UTC)
        ),
        "weekends of one": Request(bars=_on_all_days(bokeh_panel("AAPL", "IBM").last(2 * bars_needed("plain")), "IBM")),
        "just closed": Request(bars=two, now=datetime(2013, 3, 1, 21, tzinfo=UTC)),
        "a holiday": Request(bars=two, changed={"sessions": _with_session(two, -10, 20130218)}),
        "another calendar": Request(bars=two, changed={"calendar": "XLON"}),
        "after the calendar": Request(
            bars=two, changed={"sessions": two.sessions + 100_000}, now=datetime(2023, 6, 5, tzinfo=UTC)
        ),
        "a day that has not begun": Request(bars=two, now=datetime(2013, 2, 27, tzinfo=UTC)),
        "a day that has not begun, allowed": Request(
            bars=two, now=datetime(2013, 2, 27, tzinfo=UTC), allow_incomplete_last_bar=True
        ),
        "a negative price": Request(bars=two, changed={"low": _cell(two.low, 1, -1, -1.0)}),
        "a high below the low": Request(bars=two, changed={"high": _cell(two.high, 0, -3, 1.0)}),
        "high and low exchanged": Request(bars=two, changed={"high": two.low, "low": two.high}),
        "closes of another adjustment": Request(bars=two, changed={"close": 7 * two.close}),
        "an infinite close": Request(bars=two, changed={"close": _cell(two.close, 0, 5, np.inf)}),
        "half a bar": Request(bars=two, changed={"open": _cell(two.open, 1, 5, np.nan)}),
        "a session twice": Request(bars=two, changed={"sessions": _with_session(two, -1, int(two.sessions[-2]))}),
        "unsorted": Request(bars=two, changed={"sessions": _with_session(two, -1, int(two.sessions[0]))}),
        "two of a name": Request(bars=two, changed={"symbols": ("AAPL", "AAPL")}),
        "a blank name": Request(bars=two, changed={"symbols": ("AAPL", " ")}),
        "a dividend above the close": Request(
            bars=events, changed={"cash_dividend": _cell(np.zeros_like(two.close), 1, -4, 1e4)}
        ),
        "an unknown covariate": Request(
            bars=two, covariates=Covariates(numbers={"cap": np.array([1.0, 2.0])}), model="plain"
        ),
        "in the future": Request(model="weekdays", bars=few["weekdays"], now=datetime(2012, 12, 3, tzinfo=UTC)),
        "few on weekdays": Request(model="weekdays", bars=few["weekdays"].last(10)),
        "covariates": Request(model="covariates", bars=few["covariates"], covariates=_covariates(few["covariates"])),
        "weighted": Request(model="weighted", bars=few["weighted"], covariates=_covariates(few["weighted"])),
        "weighted, covariates missing": Request(model="weighted", bars=few["weighted"]),
        "weighted, without adjustment": Request(
            model="weighted",
            bars=replace(few["weighted"], adj_close=None),
            covariates=_covariates(few["weighted"]),
        ),
        "weighted, too young for a member": Request(
            model="weighted",
            bars=without_bars(few["weighted"], "IBM", slice(0, -7)),
            covariates=_covariates(few["weighted"]),
        ),
        "ensemble, too young for a member": Request(
            model="ensemble", bars=without_bars(few["ensemble"], "IBM", slice(0, -8))
        ),
        "ensemble, too few bars for a member": Request(model="ensemble", bars=few["ensemble"].last(8)),
        "ensemble, no bar of either": Request(
            model="ensemble",
            bars=without_bars(without_bars(few["ensemble"], "IBM", slice(0, -8)), "AAPL", slice(0, -8)),
        ),
        "ensemble, an unknown covariate": Request(
            model="ensemble", bars=few["ensemble"], covariates=Covariates(numbers={"cap": np.array([1.0, 2.0])})
        ),
        "ensemble, after the calendar": Request(
            model="ensemble",
            bars=few["ensemble"],
            changed={"sessions": few["ensemble"].sessions + 100_000},
            now=datetime(2023, 6, 5, tzinfo=UTC),
        ),
        "a whole universe": Request(model="graph", bars=four),
        "a stranger and no bar of a neighbour": Request(model="graph", bars=strange),
        "ranked together": Request(model="ranking", bars=strange),
        "ranked by one member": Request(model="mixed", bars=strange),
        "covariates missing": Request(model="covariates", bars=few["covariates"]),
        "a covariate of another length": Request(
            model="covariates",
            bars=few["covariates"],
            covariates=replace(_covariates(few["covariates"]), known={}),
        ),
    }


def _covariates(bars: BarPanel) -> Covariates:
    random, length = np.random.default_rng(5), len(bars.sessions)
    future = SessionCalendar.named("XNYS", 20100104, 20140630).following(int(bars.sessions[-1]), 5)
    return Covariates(
        observed={"short_interest": np.exp(random.normal(0, 0.5, (2, length))).round(6)},  # exp differs by processor
        known={"rebalance": (random.random((2, length + 5)) < 0.5).astype(np.float64)},
        future_sessions=future,
        numbers={"cap": np.array([5.5, np.nan])},
        categories={"sector": ("Hardware", "")},
    )


def _cell(values: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    copy = values.copy()
    copy[row, column] = value
    return copy


def _on_all_days(bars: BarPanel, symbol: str) -> BarPanel:
    """The panel, in which a symbol has its first bar on all days of the week."""
    first, last = (np.datetime64(to_date(int(bars.sessions[at]))) for at in (0, -1))
    days = [int(str(day).replace("-", "")) for day in np.arange(first, last + 1)]
    longer, row = bars.on_sessions(np.array(days)), bars.symbols.index(symbol)
    columns = {name: getattr(longer, name).copy() for name in bars.columns}
    for name, values in columns.items():
        values[row] = getattr(bars, name)[row, 0]
    return replace(longer, **columns)


def _with_session(bars: BarPanel, place: int, day: int) -> np.ndarray:
    sessions = bars.sessions.copy()
    sessions[place] = day
    return sessions


def _changed(bars: BarPanel, name: str, row: int, days: slice, value: float) -> BarPanel:
    copy = getattr(bars, name).copy()
    copy[row, days] = value
    return replace(bars, **{name: copy})


def _scaled(bars: BarPanel, row: int, days: slice, factor: float) -> BarPanel:
    names = [name for name in ("open", "high", "low", "close", "adj_close") if name in bars.columns]
    columns = {name: getattr(bars, name).copy() for name in names}
    for values in columns.values():
        values[row, days] *= factor
    return replace(bars, **columns)


def _with_wrong_closes(bars: BarPanel) -> BarPanel:
    """The panel with a recorded split of the first symbol, and with a close in the middle and the last one wrong."""
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close")}
    for values in columns.values():
        values[0, :-15] *= 20
        values[1, -10] *= 100
        values[1, -1] *= 0.01
    return replace(bars, **columns)


def _untraded(bars: BarPanel, days: slice, rows: tuple[int, ...]) -> BarPanel:
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "adj_close", "volume")}
    for row in rows:
        first = range(*days.indices(len(bars.sessions)))[0]
        for name in ("open", "high", "low", "close"):
            columns[name][row, days] = bars.close[row, first - 1]
        columns["adj_close"][row, days] = bars.adj_close[row, first - 1]  # pyright: ignore[reportOptionalSubscript]
        columns["volume"][row, days] = 0.0
    return replace(bars, **columns)


def _constant(bars: BarPanel) -> BarPanel:
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close", "adj_close")}
    for values in columns.values():
        values[1] = 50.0
    return replace(bars, **columns)


def write(folder: Path) -> None:
    """Write all artifacts and requests."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, made in MODELS.items():
        parts = made.artifact()
        save_artifact(folder / "models" / name / "1", with_skill(parts, NO_SKILL) if made.is_fitted else parts)
    for name, ensemble in ENSEMBLES.items():
        ensemble.save(folder / "models" / name / "1")
    write_requests(folder)


def write_requests(folder: Path) -> None:
    """Write the requests with Python's results for the artifacts in the folder."""
    models = load_models(folder)
    requests = list_requests(lambda model: models[model].info((), is_default=True).bars_needed)
    first = next(iter(requests.values())).bars
    described = {name: request.describe(models[request.model], first) for name, request in requests.items()}
    (folder / "paths.json").write_text(json.dumps(describe_paths(models["plain"]), indent=1) + "\n", encoding="utf-8")
    (folder / "requests.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


QUESTIONS: Final = PathQuestions(
    day=3, level=0.9, holdings={"AAPL": 800.0, "IBM": -300.0}, prices=(("AAPL", 440.0), ("IBM", 190.0))
)


def describe_paths(model: Predictor) -> dict[str, object]:
    """A request for price paths, and Python's paths and answers; one bar of IBM is wrong, and some are missing."""
    bars = _scaled(without_bars(bokeh_panel("AAPL", "IBM").last(340), "IBM", slice(60, 64)), 1, slice(200, 201), 100.0)
    request = Request(bars=bars)
    forecast = require_forecast(model.predict([Instance(input=bars)], request.now, NEVER)[0])
    paths = simulate_paths(forecast, bars, paths=300, seed=(1 << 40) + 5)
    answers = paths.answer(QUESTIONS)
    estimates = [answers.value_at_risk, answers.expected_shortfall, answers.drawdown]
    estimates += [estimate for one in answers.prices for estimate in (one.above, one.touched)]
    return {
        **request.describe(model, bars),
        "bars": {name: to_plain(getattr(bars, name)) for name in ("symbols", "sessions", "calendar", *bars.columns)},
        "paths": len(paths.returns),
        "seed": paths.seed,
        "expected": {
            "symbols": list(paths.symbols),
            "past_days": paths.past_days,
            "returns": to_plain(paths.returns[:: len(paths.returns) // 20]),
            "estimates": [None if one is None else list(one) for one in estimates],
        },
    }


def load_models(folder: Path) -> dict[str, Predictor]:
    """Load the artifacts of a folder, which checks their golden instances."""
    runtime = Runtime(choose_device("cpu"), 256)
    return {name: load_model(folder / "models" / name / "1", (name, 1), runtime) for name in (*MODELS, *ENSEMBLES)}


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
