"""Batch preparation: the same inputs, warnings and errors as each instance prepared alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from artifacts import UNIVERSE, recent_bars, save_artifact, small_artifact, small_model
from covariate_files import artifact_with, pipeline_with, source
from covariate_files import bars as bars_beside_covariates
from ensembles import artifact_of, ensemble_of, manifest_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from predictor import artifact
from predictor.bars import BarPanel
from predictor.call_context import NEVER, Deadline
from predictor.covariates import Covariates
from predictor.errors import BarIncompleteError, ConfigurationError, InvalidInputError, QuantraError
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import FeatureWindow, GapPolicy, Instance
from predictor.model import Ensemble, Model, PreparedInstance
from predictor.model.ensemble import JointlyPrepared
from predictor.model.preparation import ROWS_AT_ONCE

FloatArray = NDArray[np.float64]
PRICES = ("open", "high", "low", "close")
WHOLE = recent_bars(*UNIVERSE)
PLAIN = replace(WHOLE, adj_close=None)
NOON = datetime(2013, 3, 1, 17, tzinfo=UTC)
"""Noon, during the last bar's session."""


# --- instances


def without_sessions(
    bars: BarPanel, left_out: Sequence[int], columns: Mapping[str, FloatArray] | None = None
) -> BarPanel:
    """The bars without some sessions, and with other columns."""
    changed = {name: getattr(bars, name) for name in (*PRICES, "volume", "adj_close")} | dict(columns or {})
    kept = np.delete(np.arange(len(bars.sessions)), left_out)
    parts = {name: None if values is None else values[:, kept] for name, values in changed.items()}
    return replace(bars, sessions=bars.sessions[kept], **parts)


def missing(bars: BarPanel, row: int, places: Sequence[int]) -> BarPanel:
    """The bars with missing sessions of one symbol."""
    columns: dict[str, FloatArray] = {}
    for name in (*PRICES, "volume", "adj_close"):
        values = getattr(bars, name)
        if values is not None:
            columns[name] = values.copy()
            columns[name][row, places] = np.nan
    return replace(bars, **columns)


def with_event(name: str, value: float, places: Sequence[int], row: int = 0) -> BarPanel:
    """Unadjusted bars in which one symbol has splits or dividends."""
    values = np.full(PLAIN.close.shape, 1.0 if name == "split_ratio" else 0.0)
    values[row, places] = value
    return replace(PLAIN, **{name: values})


def with_scaled_prices(bars: BarPanel, row: int, first: int, by: float) -> BarPanel:
    """The bars with one symbol's prices multiplied from a position on: a jump, or absurd prices."""
    columns = {name: getattr(bars, name).copy() for name in PRICES}
    for values in columns.values():
        values[row, first:] *= by
    return replace(bars, **columns)


def with_constant_price(bars: BarPanel, row: int) -> BarPanel:
    """The bars with one constant price."""
    columns = {name: getattr(bars, name).copy() for name in PRICES}
    for values in columns.values():
        values[row] = 10.0
    return replace(bars, **columns)


ASKED: Mapping[str, Instance] = {
    "one": Instance(input=WHOLE.select(["AAPL"])),
    "another": Instance(input=WHOLE.select(["MSFT"])),
    "several": Instance(input=WHOLE),
    "in another order": Instance(input=WHOLE.select(["MSFT", "AAPL"])),
    "unknown to training": Instance(input=replace(WHOLE.select(["IBM"]), symbols=("NEW",))),
    "as many as are needed": Instance(input=WHOLE.select(["GOOG"]).last(140)),
    "earlier": Instance(input=WHOLE.until(int(WHOLE.sessions[-9]))),
    "earlier still": Instance(input=WHOLE.select(["IBM"]).until(int(WHOLE.sessions[-20]))),
    "few": Instance(input=WHOLE.last(90)),
    "too few": Instance(input=WHOLE.last(10)),
    "gap": Instance(input=without_sessions(WHOLE, [-5, -30])),
    "gap masked": Instance(input=without_sessions(WHOLE, [-5, -30]), gap_policy=GapPolicy.MASK),
    "gap masked, few": Instance(input=without_sessions(WHOLE.last(80), [-5]), gap_policy=GapPolicy.MASK),
    "gap ignored": Instance(input=without_sessions(WHOLE, [-5, -30]), gap_policy=GapPolicy.IGNORE),
    "some without a bar": Instance(input=missing(WHOLE, 1, [-3, -50, -51])),
    "no last bar": Instance(input=missing(WHOLE, 1, [-1])),
    "hardly a bar": Instance(input=missing(WHOLE, 2, range(-60, -5))),
    "unadjusted": Instance(input=PLAIN),
    "split": Instance(input=with_event("split_ratio", 2.0, [-7])),
    "dividend": Instance(input=with_event("cash_dividend", 0.5, [-7, -40], row=3)),
    "splits beyond a double": Instance(input=with_event("split_ratio", 1e12, range(-60, -1), row=2)),
    "splits beyond a double, alone": Instance(input=with_event("split_ratio", 1e12, range(-60, -1)).select(["AAPL"])),
    "jump": Instance(input=with_scaled_prices(PLAIN, 1, -10, 3.0)),
    "impossible": Instance(input=with_scaled_prices(PLAIN, 1, -1, 1e150)),
    "still": Instance(input=with_constant_price(PLAIN, 3)),
    "no volume": Instance(input=replace(WHOLE, volume=np.zeros_like(WHOLE.volume))),
    "other calendar": Instance(input=replace(WHOLE, calendar="XLON")),
    "a holiday": Instance(input=replace(WHOLE, sessions=np.append(WHOLE.sessions[:-1], np.int32(20130302)))),
    "covariates that nobody reads": Instance(
        input=WHOLE, covariates=Covariates(observed={"mood": np.zeros(WHOLE.close.shape)})
    ),
    "the last bar as it is": Instance(input=WHOLE, allow_incomplete_last_bar=True),
}


def window_of(model: Model, bars: BarPanel) -> Instance:
    """Feature windows as a caller computes them."""
    pipeline = model.pipeline
    inputs = pipeline.latest_window(pipeline.encode_latest(bars))
    groups = {name: group.numpy() for name, group in inputs._asdict().items()}
    if not pipeline.normaliser.is_per_horizon:
        groups |= {name: groups[name][:, 0].copy() for name in ("location", "scale")}
    hash_ = pipeline.features.schema_hash
    return Instance(input=FeatureWindow(symbols=bars.symbols, schema_hash=hash_, **groups))


# --- comparison


def facts(prepared: object) -> object:
    """Everything in a prepared instance, as bytes and strings."""
    match prepared:
        case QuantraError():
            return type(prepared), prepared.message, dict(prepared.metadata)
        case JointlyPrepared():
            return prepared.data_warnings, [facts(one) for one in prepared.members]
        case PreparedInstance():
            return (
                (prepared.symbols, prepared.as_of, prepared.target_sessions, prepared.base_session, prepared.warnings),
                [_bits(group.contiguous().numpy()) for group in prepared.inputs],
                [_bits(part) for part in (prepared.usable, prepared.sessions)],
                None if prepared.anchor is None else _bits(prepared.anchor),
                {symbol: facts(error) for symbol, error in prepared.refusals.items()},
            )
        case _:
            raise AssertionError(prepared)


def _bits(values: NDArray[Any]) -> tuple[object, ...]:
    return values.dtype, values.shape, values.tobytes()


def prepare_alone(model: Model | Ensemble, instance: Instance, now: datetime = AFTER_ALL_SESSIONS) -> object:
    try:
        return facts(model.prepare(instance, now))
    except QuantraError as error:
        return facts(error)


def together(
    model: Model | Ensemble, instances: Sequence[Instance], now: datetime = AFTER_ALL_SESSIONS
) -> list[object]:
    return [facts(one) for one in model.prepare_each(instances, now, NEVER)]


@cache
def mixed_ensemble() -> Ensemble:
    """An ensemble: one member reads less, one looks across symbols, two read the same."""
    made = {
        "short": artifact_of(encoder_length=30, features=(0, 5, 9)),
        "first": artifact_of(seed=1),
        "second": artifact_of(seed=2),
        "graph": artifact_of("graph", encoder_length=40),
    }
    with TemporaryDirectory() as folder:
        stored = {name: artifact.load(save_artifact(Path(folder) / name, one)) for name, one in made.items()}
    return ensemble_of(manifest_of(stored), stored)


MODELS: Mapping[str, Callable[[], Model | Ensemble]] = {
    "lstm": cache(lambda: small_model(small_artifact())),
    "fitted levels": cache(lambda: small_model(small_artifact(fitted=True))),
    "graph": cache(lambda: small_model(small_artifact("graph"))),
    "ensemble": mixed_ensemble,
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model | Ensemble:
    return MODELS[request.param]()


# --- equal to single preparation


@pytest.mark.parametrize("now", [AFTER_ALL_SESSIONS, NOON], ids=["after the close", "before it"])
def test_each_gets_together_what_it_gets_alone(model: Model | Ensemble, now: datetime) -> None:
    found = together(model, [*ASKED.values()], now)
    for (name, instance), one in zip(ASKED.items(), found, strict=True):
        assert one == prepare_alone(model, instance, now), name


def test_windows_among_bars_get_what_they_get_alone() -> None:
    model = MODELS["lstm"]()
    assert isinstance(model, Model)
    window = window_of(model, WHOLE.select(["IBM"]))
    wrong = replace(window, input=replace(window.input, schema_hash="other"))
    asked = [ASKED["one"], window, ASKED["several"], wrong, ASKED["too few"], ASKED["another"]]
    assert together(model, asked) == [prepare_alone(model, instance) for instance in asked]


def with_number(window: Instance, group: str, value: float) -> Instance:
    """The instance with one number changed."""
    assert isinstance(window.input, FeatureWindow)
    values = getattr(window.input, group).copy()
    values.flat[-1] = value
    return replace(window, input=replace(window.input, **{group: values}))


@pytest.mark.parametrize("name", ["lstm", "fitted levels"])
def test_windows_get_together_what_they_get_alone_also_beside_impossible_ones(name: str) -> None:
    model = MODELS[name]()
    assert isinstance(model, Model)
    one, several = window_of(model, WHOLE.select(["IBM"])), window_of(model, WHOLE)
    assert isinstance(one.input, FeatureWindow)
    told = replace(one, input=replace(one.input, as_of_session=date(2013, 2, 28), anchor_price=np.array([70.0])))
    groups = (("observed", np.inf), ("known", 1e7), ("location", np.nan), ("scale", -1.0), ("scale", 11.0))
    bad = [with_number(several, group, value) for group, value in groups]
    unknown = np.zeros_like(one.input.mask)
    bad += [
        replace(one, input=replace(one.input, mask=unknown, observed=one.input.observed * shown)) for shown in (0, 1)
    ]
    asked = [one, bad[0], several, *bad[1:], told, one]
    found = together(model, asked)
    assert found == [prepare_alone(model, instance) for instance in asked]
    assert [issubclass(kind, InvalidInputError) for kind, *_ in map(_kind, found)].count(True) == len(bad)


def _kind(found: object) -> tuple[type, ...]:
    """The kind of an error, or a placeholder."""
    assert isinstance(found, tuple)
    return (found[0],) if isinstance(found[0], type) else (object,)


def test_windows_of_many_callers_share_a_computation_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    module, rows = import_module("predictor.model.window_inputs"), list[int]()
    joined = module._concatenate

    def counted(pipeline: object, windows: Sequence[FeatureWindow]) -> object:
        rows.append(sum(len(window.symbols) for window in windows))
        return joined(pipeline, windows)

    monkeypatch.setattr(module, "_concatenate", counted)
    model = MODELS["lstm"]()
    assert isinstance(model, Model)
    model.prepare_each([window_of(model, WHOLE)] * (ROWS_AT_ONCE // 4 + 2), AFTER_ALL_SESSIONS, NEVER)
    assert rows == [ROWS_AT_ONCE, 8]


@settings(max_examples=25, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(ASKED)), min_size=1, max_size=12))
def test_no_mixture_changes_what_one_of_it_gets(names: list[str]) -> None:
    model = MODELS["fitted levels"]()
    assert together(model, [ASKED[name] for name in names]) == [_alone_once(name) for name in names]


@cache
def _alone_once(name: str) -> object:
    return prepare_alone(MODELS["fitted levels"](), ASKED[name])


def test_one_bad_instance_of_a_thousand_is_answered_with_its_own_error() -> None:
    model = MODELS["lstm"]()
    asked = [ASKED["one"]] * 1000
    asked[417] = ASKED["splits beyond a double, alone"]
    found = together(model, asked)
    assert found[417] == prepare_alone(model, asked[417])
    assert all(one == found[0] for k, one in enumerate(found) if k != 417)


# --- covariates


@cache
def with_covariates() -> tuple[Model, tuple[Instance, ...]]:
    """A model that reads all groups of covariates, and instances of several dates."""
    with TemporaryDirectory() as folder:
        files = source(Path(folder))
        model = small_model(artifact_with(pipeline_with(files)))
    info, bars = model.info((), is_default=True), bars_beside_covariates()
    panels = [bars.between(20090102, last) for last in (20101020, 20101020, 20101101, 20100930)]
    parts = [(one, one.select(["GOOG"]), one.select(["IBM", "AAPL"]).last(150)) for one in panels]
    instances = [Instance(input=part, covariates=files.for_model(info, part)) for three in parts for part in three]
    first = instances[0]
    unknown = {name: np.full_like(values, np.nan) for name, values in first.covariates.observed.items()}
    strange = dict.fromkeys(first.covariates.categories, ("Farming", "", "Media"))
    assert isinstance(first.input, BarPanel)
    return model, (
        *instances,
        replace(first, covariates=replace(first.covariates, observed=unknown)),
        replace(first, covariates=replace(first.covariates, categories=strange)),
        replace(first, covariates=replace(first.covariates, future_sessions=first.covariates.future_sessions[:0])),
        replace(first, covariates=Covariates()),
        replace(instances[1], input=without_sessions(_panel(instances[1]), [-4]), gap_policy=GapPolicy.MASK),
    )


def _panel(instance: Instance) -> BarPanel:
    assert isinstance(instance.input, BarPanel)
    return instance.input


def test_covariates_of_several_dates_are_read_as_alone() -> None:
    model, asked = with_covariates()
    expected = [prepare_alone(model, instance) for instance in asked]
    assert together(model, asked) == expected
    assert together(model, asked[::-1]) == expected[::-1]
    assert any("is unknown on all sessions" in str(one) for one in expected)
    assert any("which no training symbol had" in str(one) for one in expected)


# --- batch size


def count_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of symbols of each computation."""
    module, rows = import_module("predictor.model.preparation"), list[int]()
    adjust_each = module.adjust_each

    def counted(stack: Any) -> object:
        rows.append(len(stack.symbols))
        return adjust_each(stack)

    monkeypatch.setattr(module, "adjust_each", counted)
    return rows


def test_instances_of_many_dates_share_a_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = count_rows(monkeypatch)
    asked = [ASKED[name] for name in ("one", "several", "earlier", "earlier still", "as many as are needed")]
    MODELS["lstm"]().prepare_each(asked, AFTER_ALL_SESSIONS, NEVER)
    assert rows == [1 + 4 + 4 + 1 + 1]


def test_no_computation_is_of_more_rows_than_the_bound_unless_one_instance_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, names = count_rows(monkeypatch), [f"S{k}" for k in range(ROWS_AT_ONCE + 50)]
    columns = {name: np.repeat(getattr(PLAIN, name)[:1], len(names), axis=0) for name in (*PRICES, "volume")}
    wide = Instance(input=replace(PLAIN, symbols=tuple(names), **columns))
    one = Instance(input=PLAIN.select(["AAPL"]))
    MODELS["lstm"]().prepare_each([*[one] * (ROWS_AT_ONCE + 1), wide, one], AFTER_ALL_SESSIONS, NEVER)
    assert rows == [ROWS_AT_ONCE, 1, len(names), 1]


def test_what_looks_across_symbols_is_prepared_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = count_rows(monkeypatch)
    MODELS["graph"]().prepare_each([ASKED["several"]] * 3, AFTER_ALL_SESSIONS, NEVER)
    assert rows == [4, 4, 4]


def test_members_that_read_rows_share_computations_and_one_that_looks_across_symbols_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = count_rows(monkeypatch)
    mixed_ensemble().prepare_each([ASKED["several"]] * 3, AFTER_ALL_SESSIONS, NEVER)
    assert sorted(rows) == [4, 4, 4, 12, 12]


def test_dates_that_instances_share_are_looked_up_once() -> None:
    asked = [ASKED["one"], ASKED["several"], ASKED["earlier"]]
    first, second, other = MODELS["lstm"]().prepare_each(asked, AFTER_ALL_SESSIONS, NEVER)
    assert isinstance(first, PreparedInstance)
    assert isinstance(second, PreparedInstance)
    assert isinstance(other, PreparedInstance)
    assert first.sessions is second.sessions
    assert first.sessions is not other.sessions


def test_dates_that_calls_share_are_looked_up_once_and_again_for_an_earlier_time() -> None:
    model, asked = small_model(small_artifact()), [ASKED["one"]]
    (first,), (again,) = (model.prepare_each(asked, AFTER_ALL_SESSIONS, NEVER) for _ in range(2))
    assert isinstance(first, PreparedInstance)
    assert isinstance(again, PreparedInstance)
    assert first.sessions is again.sessions
    (early,) = model.prepare_each(asked, NOON, NEVER)
    assert isinstance(early, BarIncompleteError)
    (unzoned,) = model.prepare_each(asked, AFTER_ALL_SESSIONS.replace(tzinfo=None), NEVER)
    assert isinstance(unzoned, ConfigurationError)


def test_more_dates_than_are_kept_are_read_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("predictor.model.dates"), "MAX_CACHED", 2)
    asked = [ASKED[name] for name in ("one", "earlier", "earlier still", "gap ignored", "few", "one")]
    expected = [_alone_once(name) for name in ("one", "earlier", "earlier still", "gap ignored", "few", "one")]
    assert together(small_model(small_artifact(fitted=True)), asked * 2) == expected * 2


# --- a pending batch


def test_a_batch_answers_any_of_its_instances_in_the_order_that_is_asked(model: Model | Ensemble) -> None:
    unread = InvalidInputError("not read")
    asked = [ASKED["several"], unread, ASKED["too few"], ASKED["earlier"]]
    batch = model.prepare_batch(asked, AFTER_ALL_SESSIONS, NEVER)
    every = model.predict(asked, AFTER_ALL_SESSIONS, NEVER)
    found = batch.outcomes([3, 1, 0, 2, 3], NEVER)
    assert [_id_or_message(one) for one in found] == [_id_or_message(every[place]) for place in (3, 1, 0, 2, 3)]
    assert found[1] is unread
    assert batch.outcomes([], NEVER) == ()


def _id_or_message(outcome: object) -> object:
    """The id of a forecast, which identifies its inputs, or the error message."""
    return outcome.message if isinstance(outcome, QuantraError) else getattr(outcome, "forecast_id")  # noqa: B009


def test_a_batch_looks_at_the_deadline_before_each_instance() -> None:
    class Counting:
        """A deadline that counts how often it is checked."""

        asked = 0

        def check(self) -> None:
            self.asked += 1

    deadline = Counting()
    checked: Deadline = deadline
    MODELS["lstm"]().prepare_batch([ASKED["one"], ASKED["too few"]] * 20, AFTER_ALL_SESSIONS, checked)
    assert deadline.asked >= 40
