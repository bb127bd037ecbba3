"""Covariates from files to forecasts: same in training and serving, without look-ahead."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from artifacts import small_model
from covariate_files import (
    FIELDS,
    RECIPE,
    SPLITS,
    SYMBOLS,
    artifact_with,
    bars,
    pipeline_with,
    save_artifact_with,
    source,
)
from covariate_files import write_files as files
from numpy.typing import NDArray

from predictor import golden
from predictor.bars import BarPanel
from predictor.canonical import Record
from predictor.cli import run
from predictor.covariates import Covariates, CovariateSource, Series
from predictor.errors import ArtifactError, ConfigurationError, CovariateMissingError, CovariatesError, ExpressionError
from predictor.features import CovariateFields, FeatureDefinition, FeatureSet, load_default_features
from predictor.forecast import Forecast, RowKind, TargetPoint
from predictor.forecaster import Forecaster
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import ExplanationQuery, Instance
from predictor.model import Model
from predictor.networks import Inputs
from predictor.windows import Pipeline
from trainers.cli.commands import app
from trainers.stock.data import History, TrainingWindows, WindowBatch
from trainers.stock.feature_selection import list_covariate_fields
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.objectives import SHARE, StaticDropout, build_window_objective

LAST_LEARNT = SPLITS.train.last


@cache
def files_read() -> CovariateSource:
    with TemporaryDirectory() as folder:
        return source(Path(folder))


@cache
def pipeline() -> Pipeline:
    return pipeline_with(files_read())


@cache
def model() -> Model:
    return small_model(artifact_with(pipeline()))


@cache
def history() -> History:
    return History(bars(), pipeline(), files_read())


def windows_at(position: int) -> TrainingWindows:
    count = len(SYMBOLS)
    return TrainingWindows(symbols=np.arange(count), positions=np.full(count, position))


def served_inputs(covariates: CovariateSource, panel: BarPanel) -> Inputs:
    """The network's inputs when all covariates are sent."""
    beside = covariates.for_model(model().info((), is_default=True), panel)
    asked = Instance(input=panel, covariates=beside, allow_incomplete_last_bar=True)
    return model().prepare(asked, AFTER_ALL_SESSIONS).inputs


def changed_files(covariates: CovariateSource, name: str, after: int, by: float) -> CovariateSource:
    """The files with changed values in all rows of a column that became known after a day."""
    (old,) = (one for one in covariates.series if one.name == name)
    new = replace_values(old, np.where(old.known_from > after, old.value + by, old.value))
    return replace(covariates, series=tuple(new if one is old else one for one in covariates.series))


def replace_values(old: Series, value: NDArray[np.float64]) -> Series:
    return Series(
        name=old.name,
        symbols=old.symbols,
        owner=old.owner,
        date=old.date,
        known_from=old.known_from,
        value=value,
        row=old.row,
    )


def for_each_symbol(one: Series) -> Series:
    """A series for all symbols as separate, slightly different rows per symbol."""
    count, rows = len(SYMBOLS), len(one.date)
    owner = np.repeat(np.arange(count), rows)
    return Series(
        name=one.name,
        symbols=SYMBOLS,
        owner=owner,
        date=np.tile(one.date, count),
        known_from=np.tile(one.known_from, count),
        value=np.tile(one.value, count) + 0.1 * owner,
        row=np.arange(count * rows),
    )


@pytest.mark.parametrize("position", [139, 377, 600, 750])
def test_serving_reads_what_training_read_to_the_last_bit(position: int) -> None:
    trained = history().gather(windows_at(position)).inputs
    sent = served_inputs(files_read(), bars().until(int(bars().sessions[position])))
    names = pipeline().features.features.names
    beside = [names.index(name) for name in ("short_interest", "credit_spread")]
    assert torch.equal(sent.observed[..., beside], trained.observed[..., beside])
    # Adjusted prices count in the money of the last bar, which is another one in training: one rounding.
    assert torch.allclose(sent.observed, trained.observed, rtol=0, atol=1e-6)
    for name in ("known", "static", "mask"):
        assert torch.equal(getattr(sent, name), getattr(trained, name)), name


def test_known_covariates_may_differ_between_symbols() -> None:
    series = tuple(for_each_symbol(one) if one.name == "rebalance" else one for one in files_read().series)
    each = replace(files_read(), series=series)
    trained = History(bars(), pipeline(), each).gather(windows_at(600)).inputs
    sent = served_inputs(each, bars().until(int(bars().sessions[600])))
    assert torch.equal(sent.known, trained.known)
    assert not torch.equal(sent.known[0], sent.known[1])


def test_symbols_share_the_memory_of_what_is_the_same_for_all() -> None:
    assert history().stored.known.stride(0) == 0


@pytest.mark.parametrize("name", ["short_interest", "credit_spread"])
def test_values_that_become_known_later_change_no_input(name: str) -> None:
    position = 600
    day = int(bars().sessions[position])
    other = History(bars(), pipeline(), changed_files(files_read(), name, day, 5.0))
    assert_same_inputs(history().gather(windows_at(position)).inputs, other.gather(windows_at(position)).inputs)
    assert not torch.equal(history().stored.observed[:, position + 10 :], other.stored.observed[:, position + 10 :])


def assert_same_inputs(one: Inputs, other: Inputs) -> None:
    for name, left, right in zip(Inputs._fields, one, other, strict=True):
        assert torch.equal(left, right), name


def test_values_known_after_the_training_part_move_no_fitted_number() -> None:
    wild = changed_files(files_read(), "short_interest", LAST_LEARNT, 1e6)
    assert pipeline_with(wild).features.schema_hash == pipeline().features.schema_hash
    assert pipeline_with(changed_files(files_read(), "short_interest", 0, 1.0)).features.schema_hash != (
        pipeline().features.schema_hash
    )


def test_a_known_row_that_the_model_would_read_too_early_is_refused() -> None:
    (old,) = (one for one in files_read().series if one.name == "rebalance")
    late = Series(
        name="rebalance",
        symbols=(),
        owner=old.owner,
        date=old.date,
        known_from=old.date,
        value=old.value,
        row=old.row,
    )
    series = tuple(late if one is old else one for one in files_read().series)
    with pytest.raises(CovariatesError, match="known covariate rebalance: row 1 after the header is for 2008-02-29"):
        History(bars(), pipeline(), replace(files_read(), series=series))


def test_a_covariate_without_a_bar_is_unknown() -> None:
    panel = bars()
    columns = {name: np.array(getattr(panel, name)) for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[0, 300] = np.nan
    found = History(replace(panel, **columns), pipeline(), files_read()).encoded
    place = pipeline().features.features.names.index("credit_spread")
    assert found.mask[:, 300, place].tolist() == [False, True, True]


def test_a_value_not_yet_known_is_masked_and_not_filled() -> None:
    place = pipeline().features.features.names.index("short_interest")
    assert not history().encoded.mask[:, :3, place].any()
    assert not history().encoded.observed[:, :3, place].any()
    assert history().encoded.mask[:, 3:, place].all()


def test_a_known_value_that_nobody_knows_has_a_column_that_says_so() -> None:
    columns = pipeline().features.known_columns
    assert columns[-2:] == ("rebalance", "rebalance_is_known")
    first = int(history().encoded.known[0, :, -1].argmax())
    assert first == 40
    assert not history().encoded.known[0, :first, -2:].any()


def test_expressions_may_read_covariates() -> None:
    ratio = FeatureDefinition("squeeze", "Log($short_interest / Ref($short_interest, 20))", "change", "log ratio")
    features = FeatureSet(observed=(ratio,), covariates=CovariateFields(observed=("short_interest",)))
    assert features.with_covariates(features.covariates).names == ("squeeze",)
    found = fit_pipeline(bars(), features, RECIPE, SPLITS, files_read())
    values = files_read().values_for(found.covariates, bars(), np.zeros(0, np.int32), known_by=20101231)
    raw = values.observed["short_interest"]
    expected = np.full(raw.shape, np.nan)
    expected[:, 20:] = np.log(raw[:, 20:] / raw[:, :-20])
    np.testing.assert_allclose(features.evaluate(bars().adjusted(), values.observed)[..., 0], expected)


def test_an_expression_that_reads_an_unnamed_column_is_refused() -> None:
    with pytest.raises(ExpressionError, match=r"unknown field \$short_interest"):
        FeatureSet(observed=(FeatureDefinition("x", "$short_interest", "", ""),))


def test_a_covariate_with_the_name_of_a_price_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="covariate close has the name of another column"):
        CovariateFields(observed=("close",))


def test_a_covariate_that_no_file_has_is_named() -> None:
    with pytest.raises(CovariateMissingError, match=r"covariate \w+ is missing, but the model reads it"):
        fit_pipeline(bars(), load_default_features().with_covariates(FIELDS), RECIPE, SPLITS, CovariateSource())
    with pytest.raises(CovariateMissingError, match="covariate short_interest is not sent"):
        History(bars(), pipeline())


def fitted_on(folder: Path, *texts: str) -> Pipeline:
    """A pipeline with one static column, one text per symbol."""
    rows = "".join(f"{symbol},{text}\n" for symbol, text in zip(SYMBOLS, texts, strict=True))
    (folder / "static.csv").write_text(f"symbol,beta\n{rows}", encoding="utf-8")
    return fit_pipeline(
        bars(), load_default_features(), RECIPE, SPLITS, CovariateSource.read([], folder / "static.csv")
    )


def test_a_text_among_static_numbers_is_refused_as_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(CovariatesError, match="beta is a number for most symbols, but not for IBM; leave a cell"):
        fitted_on(tmp_path, "1.5", "2", "n/a")


@pytest.mark.parametrize(("texts", "columns"), [(("1.5", "2", ""), 2), (("10", "Tech", "Media"), 4)])
def test_numbers_and_unknown_are_a_number_and_a_number_among_texts_is_a_category(
    tmp_path: Path, texts: tuple[str, ...], columns: int
) -> None:
    assert fitted_on(tmp_path, *texts).sizes.static == columns


def test_known_inputs_must_be_columns_of_a_file() -> None:
    fields = list_covariate_fields(files_read(), "rebalance")
    assert (set(fields.observed), fields.known) == ({"short_interest", "credit_spread"}, ("rebalance",))
    with pytest.raises(ConfigurationError, match="known inputs dividends are in no covariate file"):
        list_covariate_fields(files_read(), "rebalance,dividends")


def test_a_share_of_training_windows_sees_unknown_and_always_the_same_ones() -> None:
    every = TrainingWindows(symbols=np.repeat(np.arange(50), 400), positions=np.tile(np.arange(400), 50))
    hidden = StaticDropout(history(), seed=3).hidden(every)
    assert np.array_equal(hidden, StaticDropout(history(), seed=3).hidden(every))
    assert not np.array_equal(hidden, StaticDropout(history(), seed=4).hidden(every))
    both, one = hidden.all(axis=1).mean(), hidden.mean(axis=0)
    assert both == pytest.approx(SHARE, abs=0.01)
    assert one == pytest.approx(2 * SHARE - SHARE**2, abs=0.01)


def test_windows_of_a_history_are_whole_and_those_that_are_learnt_from_lack_statics_now_and_then() -> None:
    windows = history().windows(SPLITS.train)
    dropped = StaticDropout(history(), seed=0).gather(windows).inputs
    whole = history().gather(windows).inputs
    hidden = StaticDropout(history(), seed=0).hidden(windows)
    groups = np.array(pipeline().features.static_groups)
    unknown = torch.from_numpy(pipeline().features.statics.unknown)
    assert torch.equal(dropped.static, torch.where(torch.from_numpy(hidden[:, groups]), unknown, whole.static))
    assert not torch.equal(dropped.static, whole.static)
    assert_same_inputs(dropped._replace(static=whole.static), whole)


def test_the_column_of_unknown_is_taught_though_every_training_symbol_has_a_sector() -> None:
    """The last static column is for unknown; its weight changes because training windows randomly hide sectors."""
    train, selection = history().windows(SPLITS.train), history().windows(SPLITS.selection)
    made = artifact_with(pipeline())
    network = made.network().train()
    objective = build_window_objective(network, history(), train, selection, RECIPE)
    weights = network.get_parameter("context.mix.weight")
    unknown = weights.shape[1] - pipeline().sizes.known - 1

    def gradient(batches: Iterable[WindowBatch]) -> float:
        network.zero_grad()
        for batch in batches:
            objective.loss(batch).mean.backward()
        assert weights.grad is not None
        return float(weights.grad[:, unknown].abs().max())

    assert gradient(islice(objective.train.batches(0), 4)) > 0
    assert gradient(islice(objective.selection.batches(0), 1)) == 0


def test_an_unheard_category_works_and_warns() -> None:
    info, panel = model().info((), is_default=True), bars().last(200)
    beside = files_read().for_model(info, panel)
    strange = replace(beside, categories={"sector": ("Hardware", "Mining", "Hardware")})
    (forecast,) = forecasts(panel, strange)
    assert "GOOG: sector is 'Mining', which no training symbol had; it counts as unknown" in forecast.warnings
    assert np.isfinite(forecast.values).all()
    (same,) = forecasts(panel, replace(beside, categories={"sector": ("Hardware", "", "Hardware")}))
    assert np.array_equal(forecast.values, same.values)
    (other,) = forecasts(panel, beside)
    assert not np.array_equal(forecast.values[1], other.values[1])


def test_a_covariate_that_is_unknown_on_all_sessions_is_reported() -> None:
    panel = bars().last(200)
    beside = files_read().for_model(model().info((), is_default=True), panel)
    unheard, late = (beside.observed["short_interest"].copy() for _ in range(2))
    unheard[1] = np.nan
    late[1, :-1] = np.nan
    warning = "GOOG: short_interest is unknown on all sessions, and the forecast is made without it"
    (forecast,) = forecasts(panel, replace(beside, observed={**beside.observed, "short_interest": unheard}))
    assert warning in forecast.warnings
    (forecast,) = forecasts(panel, replace(beside, observed={**beside.observed, "short_interest": late}))
    assert warning not in forecast.warnings


def forecasts(panel: BarPanel, beside: Covariates) -> list[Forecast]:
    asked = Instance(input=panel, covariates=beside, allow_incomplete_last_bar=True)
    return model().forecast([model().prepare(asked, AFTER_ALL_SESSIONS)])


def test_attributions_have_one_row_a_covariate_and_add_up() -> None:
    panel = bars().last(200)
    beside = files_read().for_model(model().info((), is_default=True), panel)
    asked = Instance(input=panel, covariates=beside, allow_incomplete_last_bar=True)
    with Forecaster.load(stored()) as forecaster:
        (found,) = forecaster.explain(ExplanationQuery(instance=asked, targets=(TargetPoint(5, 0.9),))).attributions
    rows = dict(zip(found.row_names, found.row_kinds, strict=True))
    assert rows["short_interest"] is RowKind.OBSERVED
    assert rows["rebalance"] is RowKind.KNOWN
    assert (rows["cap"], rows["sector"]) == (RowKind.STATIC, RowKind.STATIC)
    assert found.row_kinds.count(RowKind.STATIC) == 2
    assert "rebalance_is_known" not in rows
    difference = found.prediction - found.baseline_prediction
    assert np.allclose(found.per_row.sum(axis=1), difference, atol=0.02 * np.abs(difference).max())
    statics = [k for k, kind in enumerate(found.row_kinds) if kind is RowKind.STATIC]
    assert (np.abs(found.per_row[:, statics]) > 0.001 * np.abs(difference)[:, None]).any()


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def stored() -> Path:
    return save_artifact_with(Path(_folder().name) / "1", files_read())


def test_a_stored_model_says_what_it_reads_and_forecasts_with_it() -> None:
    panel = bars().last(200)
    with Forecaster.load(stored()) as forecaster:
        info = forecaster.model()
        assert [(one.name, one.group.value, one.categories) for one in info.covariates] == [
            ("short_interest", "observed", ()),
            ("credit_spread", "observed", ()),
            ("rebalance", "known", ()),
            ("cap", "static", ()),
            ("sector", "static", ("Hardware", "Media")),
        ]
        forecast = forecaster.predict(panel, covariates=files_read().for_model(info, panel))
        assert "GOOG: cap is unknown, and the forecast is made without it" in forecast.warnings
        with pytest.raises(CovariateMissingError, match="covariate short_interest is not sent"):
            forecaster.predict(panel)
        with pytest.raises(CovariatesError, match="pass covariates inside the instance"):
            forecaster.predict(Instance(input=panel), covariates=Covariates())


def test_the_golden_instance_covers_covariates() -> None:
    recorded = golden.record(model())
    assert recorded.text["categories"] == {"sector": ["", *["Hardware"] * 4]}
    assert Record(recorded.text, "golden").record("refusals").text("no covariates") == "COVARIATE_MISSING"
    golden.check(model(), recorded)
    name = "covariates.observed.short_interest"
    arrays = {**recorded.arrays, name: recorded.arrays[name].astype(np.float64) * 2}
    with pytest.raises(ArtifactError, match="stage features is off"):
        golden.check(model(), replace(recorded, arrays=arrays))


def exit_code(*arguments: str) -> int:
    """Run `quantra` and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        run(app, arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_training_with_covariates_is_served_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From files to a forecast, an explanation, and the refusal of a question without them."""
    dated, static = files(tmp_path)
    bars().last(400).write_csv(tmp_path / "bars.csv")
    beside = [text for path in dated for text in ("--covariates", str(path))]
    beside += ["--static", str(static)]
    out, panel = str(tmp_path / "models" / "1"), str(tmp_path / "bars.csv")
    quick = ["--epochs", "1", "--hidden", "4", "--layers", "1", "--horizons", "1,3", "--encoder-length", "10"]
    train = ["train", "stock", "--bars", panel, *beside, "--known", "rebalance", "--calendar", "XNYS", *quick]
    assert exit_code(*train, "--out", out, "--json") == 0
    card = json.loads(capsys.readouterr().out.splitlines()[-1])["card"]
    assert card["covariates"]["known"] == ["rebalance"]
    ask = ["--artifact", out, "--bars", panel, "--symbol", "GOOG", "--json"]
    assert exit_code("predict", *ask, *beside) == 0
    forecast = json.loads(capsys.readouterr().out)
    assert "GOOG: cap is unknown, and the forecast is made without it" in forecast["warnings"]
    assert exit_code("explain", *ask, *beside, "--horizon", "3") == 0
    assert "sector" in capsys.readouterr().out
    assert exit_code("predict", *ask) == 1
    assert "covariate short_interest is not sent" in capsys.readouterr().err
