"""A small training run from bars to an artifact that loads, serves, and records its history."""

import json
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from functools import cache
from itertools import count
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
import torch
from market import bokeh_panel, learnable_bars

from predictor.artifact import load
from predictor.bars import BarPanel
from predictor.canonical import Record
from predictor.errors import ConfigurationError, format_date
from predictor.features import FeatureSet, load_default_features
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.instance import Instance
from predictor.model import Model
from predictor.networks import GraphConfig, LSTMConfig, Target, TargetKind, WindowNormaliser
from predictor.registry import Runtime, load_single
from predictor.windows import BarRequirements
from trainers.loop import Checkpoints, Loss, NoBestWeightsError, Report
from trainers.stock import Optimisation, SplitShares, StockRecipe, TrainingResult, train
from trainers.stock.card import encode_epochs, hash_bars
from trainers.stock.data import History, WindowBatch
from trainers.stock.model_fit import FittedNetwork, fit, fit_pipeline, prepare
from trainers.stock.objectives import QuantileTask
from trainers.stock.splits import DataSplits, RollingSplits
from trainers.stock.training_data import TrainingMaterial

QUICK = Optimisation(max_epochs=2, device="cpu")
TINY = StockRecipe(calendar="XNYS", config=LSTMConfig(hidden=4), optimisation=QUICK)
SHORT = StockRecipe(
    calendar="XNYS",
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    scale="window",
    normaliser=WindowNormaliser(window=20),
    optimisation=replace(QUICK, max_epochs=1),
)
"""Two horizons and few bars: where the training itself is not the point."""

OWN_FEATURES = {
    "operator_set": 1,
    "observed": [
        {"name": "r1", "expression": "Log($close / Ref($close, 1))", "meaning": "return", "unit": "log"},
        {"name": "range", "expression": "Log($high / $low)", "meaning": "range of the day", "unit": "log"},
    ],
    "known": [],
}


@cache
def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG").last(900)


@cache
def few_bars() -> BarPanel:
    return bokeh_panel("AAPL").last(400)


def no_progress(reports: Iterable[Report]) -> Iterator[Report]:
    return iter(reports)


def loaded(folder: Path) -> Model:
    return load_single(folder, ("tiny", 1), Runtime(device=torch.device("cpu"), max_rows=256))


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def training_result(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return train(
        TrainingMaterial(bars(), load_default_features()),
        TINY,
        tmp_path_factory.mktemp("first") / "1",
        consume=no_progress,
    )


@pytest.fixture(scope="module")
def custom_features_result(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A quick training with two custom features."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.json").write_text(json.dumps(OWN_FEATURES))
    features = FeatureSet.read(folder / "mine.json")
    return train(TrainingMaterial(few_bars(), features), SHORT, folder / "1", consume=no_progress)


# --- rolling splits


def test_a_training_without_a_test_split_claims_no_skill(tmp_path: Path) -> None:
    recipe = replace(SHORT, parts=RollingSplits(selection=40, calibration=60))
    made = train(TrainingMaterial(few_bars(), load_default_features()), recipe, tmp_path / "1", consume=no_progress)
    card = made.summary
    assert [split.name for split in card.splits] == ["train", "selection", "calibration"]
    assert card.trained_to == few_bars().sessions[-1]
    assert (card.scores, card.calibration, card.skill, card.conformal) == (None, None, None, None)
    assert any(note.startswith("no score: every session was used for training") for note in card.notes)
    assert loaded(tmp_path / "1").identity.name == "tiny"


# --- results


def test_the_artifact_loads_with_its_golden_instance_and_forecasts_in_order(training_result: TrainingResult) -> None:
    model = loaded(training_result.folder)
    forecast = model.forecast([model.prepare(Instance(input=bars().last(150)), AFTER_ALL_SESSIONS)])[0]
    assert forecast.values.shape == (2, 4, 3)
    assert (np.diff(forecast.values, axis=-1) > 0).all()
    assert forecast.as_of_session == date(2013, 3, 1)


def test_the_same_training_gives_the_same_bytes_whatever_the_state_of_the_generators(
    training_result: TrainingResult, tmp_path: Path
) -> None:
    torch.manual_seed(99)
    torch.rand(7)
    np.random.seed(99)  # noqa: NPY002 - the global generator is what is disturbed
    again = train(
        TrainingMaterial(bars(), load_default_features()), TINY, tmp_path / "elsewhere" / "7", consume=no_progress
    )
    assert files_of(again.folder) == files_of(training_result.folder)


def test_another_seed_gives_other_weights(custom_features_result: TrainingResult, tmp_path: Path) -> None:
    recipe = replace(SHORT, optimisation=replace(SHORT.optimisation, seed=1))
    other = train(
        TrainingMaterial(few_bars(), load(custom_features_result.folder).artifact.pipeline.features.features),
        recipe,
        tmp_path / "1",
        consume=no_progress,
    )
    assert load(other.folder).weights_hash != load(custom_features_result.folder).weights_hash


def test_other_test_bars_change_scores_and_nothing_that_forecasts(
    custom_features_result: TrainingResult, tmp_path: Path
) -> None:
    first = int(np.searchsorted(few_bars().sessions, part_of(custom_features_result, "test").integer("first")))
    columns = {name: np.array(getattr(few_bars(), name)) for name in ("open", "high", "low", "close", "adj_close")}
    factors = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(few_bars().sessions) - first)
    for column in columns.values():
        column[:, first:] *= factors
    features = load(custom_features_result.folder).artifact.pipeline.features.features
    changed = train(
        TrainingMaterial(replace(few_bars(), **columns), features), SHORT, tmp_path / "1", consume=no_progress
    )
    before, after = files_of(custom_features_result.folder), files_of(changed.folder)
    assert [name for name in before if before[name] != after[name]] == ["manifest.json", "manifest.sha256"]
    mine, theirs = load(custom_features_result.folder).artifact.manifest, load(changed.folder).artifact.manifest
    assert replace(mine, card={}) == replace(theirs, card={})
    assert custom_features_result.card["training"] == changed.card["training"]
    assert custom_features_result.card["scores"] != changed.card["scores"]


@pytest.fixture(scope="module")
def diverging_result(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A training run with large steps, whose selection loss soon rises, on learnable data."""
    folder = tmp_path_factory.mktemp("wild")
    (folder / "mine.json").write_text(json.dumps(OWN_FEATURES))
    settings = replace(QUICK, max_epochs=30, patience=2, learning_rate=0.03, batch_size=32)
    material = TrainingMaterial(learnable_bars(few_bars()), FeatureSet.read(folder / "mine.json"))
    return train(material, replace(SHORT, optimisation=settings), folder / "1", consume=no_progress)


def test_training_ends_when_the_selection_loss_stalls(diverging_result: TrainingResult) -> None:
    training = card_of(diverging_result).record("training")
    assert len(training.records("epochs")) == training.integer("best_epoch") + 2 < 30


def test_the_weights_are_those_of_the_best_selection_loss_and_not_the_last(diverging_result: TrainingResult) -> None:
    model, panel = loaded(diverging_result.folder), learnable_bars(few_bars())
    history = History(panel, model.pipeline)
    batch = history.gather(history.windows(DataSplits.by_shares(panel.sessions, SplitShares()).selection))
    with torch.inference_mode():
        loss = QuantileTask(model.engine.network, SHORT.quantiles).loss(batch)
    training = card_of(diverging_result).record("training")
    selections = [row.number("selection") for row in training.records("epochs")]
    assert loss.mean.item() == pytest.approx(training.number("best_selection"), rel=1e-5)
    assert training.number("best_selection") == min(selections)
    assert training.integer("best_epoch") == 1 + selections.index(min(selections)) < len(selections)


def test_the_start_is_kept_where_no_epoch_is_better(tmp_path: Path) -> None:
    recipe = replace(SHORT, optimisation=replace(QUICK, max_epochs=2, learning_rate=0.9))
    made = train(TrainingMaterial(few_bars(), load_default_features()), recipe, tmp_path / "1", consume=no_progress)
    training = card_of(made).record("training")
    assert training.integer("best_epoch") == 0
    assert training.number("best_selection") < min(row.number("selection") for row in training.records("epochs"))


# --- selection losses that are no numbers


def with_losses(*, unknown: Collection[int], folder: Path | None, epochs: int) -> FittedNetwork:
    """A fit of so many epochs whose validations at these numbers are NaN; number 0 is the start."""
    panel, recipe = few_bars(), replace(SHORT, optimisation=replace(QUICK, max_epochs=epochs, patience=9))
    splits = recipe.splits(panel.sessions)
    pipeline = fit_pipeline(panel, load_default_features(), recipe, splits)
    prepared = prepare(History(panel, pipeline), splits, recipe, None)
    objective, number = prepared.objective, count()

    def judge(batch: WindowBatch) -> Loss:
        found = objective.selection_loss(batch)
        return replace(found, mean=found.mean * nan) if next(number) in unknown else found

    checkpoints = None if folder is None else Checkpoints(folder)
    return fit(
        replace(prepared, objective=replace(objective, selection_loss=judge)),
        recipe.optimisation,
        checkpoints,
        no_progress,
    )


def test_a_start_that_scores_no_number_is_never_kept() -> None:
    fitted = with_losses(unknown=[0], folder=None, epochs=1)
    assert fitted.best_epoch == 1
    assert fitted.best_loss == fitted.epochs[0][1]


def test_an_epoch_that_scores_no_number_is_not_the_best_and_not_in_the_card() -> None:
    fitted = with_losses(unknown=[2], folder=None, epochs=2)
    assert fitted.best_epoch < 2
    assert isnan(fitted.epochs[1][1])
    assert encode_epochs(fitted.epochs) == [
        {"epoch": 1, "train": fitted.epochs[0][0], "selection": fitted.epochs[0][1]}
    ]


def test_a_start_that_scored_no_number_is_not_judged_again_after_a_resume(tmp_path: Path) -> None:
    with pytest.raises(NoBestWeightsError, match="no recorded value was finite \\(2 values\\)"):
        with_losses(unknown=range(9), folder=tmp_path, epochs=1)
    with pytest.raises(NoBestWeightsError, match="no recorded value was finite \\(3 values\\)"):
        with_losses(unknown=range(9), folder=tmp_path, epochs=2)


def test_conformal_offsets_make_both_tails_right_on_the_calibration_split(training_result: TrainingResult) -> None:
    model = loaded(training_result.folder)
    history = History(bars(), model.pipeline)
    windows = history.windows(DataSplits.by_shares(bars().sessions, SplitShares()).calibration)
    values = model.engine.compute_quantiles(history.gather(windows).inputs).numpy()
    below = (history.outcomes(windows)[..., None] <= values).mean(axis=0)
    np.testing.assert_allclose(below[:, [0, 2]], np.broadcast_to([0.1, 0.9], (4, 2)), atol=2 / len(windows))


def test_explanations_are_measured_from_the_average_training_window(training_result: TrainingResult) -> None:
    stored = load(training_result.folder).artifact
    history = History(bars(), stored.pipeline)
    inputs = history.gather(history.windows(DataSplits.by_shares(bars().sessions, SplitShares()).train)).inputs
    np.testing.assert_allclose(stored.manifest.baseline.known, inputs.known.double().mean(dim=(0, 1)), rtol=1e-6)
    assert stored.manifest.baseline.scale == tuple(inputs.scale.median(dim=0).values.tolist())


def test_a_users_own_features_are_trained_on_and_stored(custom_features_result: TrainingResult) -> None:
    model = loaded(custom_features_result.folder)
    assert model.pipeline.features.features.names == ("r1", "range")
    assert model.pipeline.sizes.known == 0


def test_log_volatility_trains_and_is_compared_with_har(tmp_path: Path) -> None:
    target = Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1, 3))
    recipe = replace(SHORT, target=target, normaliser=None)
    made = train(TrainingMaterial(few_bars(), load_default_features()), recipe, tmp_path / "1", consume=no_progress)
    model = loaded(made.folder)
    forecast = model.forecast([model.prepare(Instance(input=few_bars()), AFTER_ALL_SESSIONS)])[0]
    assert forecast.prices is None
    assert (np.exp(forecast.values) < 0.2).all()
    assert "HAR (1, 5, 22 days), refitted" in {row.text("name") for row in score_rows(made)}


def test_a_lag_and_other_quantiles_reach_the_artifact(tmp_path: Path) -> None:
    recipe = replace(SHORT, target=Target(horizons=(2,), lag=1), quantiles=(0.05, 0.25, 0.5, 0.75, 0.95))
    manifest = load(
        train(TrainingMaterial(few_bars(), load_default_features()), recipe, tmp_path / "1", consume=no_progress).folder
    ).artifact.manifest
    assert manifest.target == recipe.target
    assert manifest.quantiles == recipe.quantiles
    assert np.array(manifest.conformal.offsets).shape == (1, 5)


# --- the card


def card_of(made: TrainingResult) -> Record:
    return Record(made.card, "card")


def part_of(made: TrainingResult, name: str) -> Record:
    return card_of(made).record("splits").record(name)


def score_rows(made: TrainingResult) -> tuple[Record, ...]:
    return card_of(made).record("scores").records("rows")


def test_the_card_holds_no_time_path_or_host(training_result: TrainingResult) -> None:
    text = json.dumps(training_result.card)
    for stranger in (
        Path.cwd(),
        Path.home(),
        training_result.folder,
        training_result.folder.parent.parent,
        socket.gethostname(),
    ):
        assert f"{stranger}" not in text
    assert "/" not in re.sub(r"'quantra\[\w+\]'", "", text)
    assert not re.search(r"\d\d:\d\d|seconds|duration|\b20(1[4-9]|[2-9]\d)\b", text)


def test_the_card_that_is_returned_is_the_one_that_is_stored(training_result: TrainingResult) -> None:
    assert load(training_result.folder).artifact.manifest.card == training_result.card


def test_the_card_can_be_printed(training_result: TrainingResult) -> None:
    told = training_result.summary
    assert told.skill is not None
    assert told.skill.sentence == Record(training_result.card, "card").record("skill").text("sentence")
    assert told.scores is not None
    assert told.training is not None
    assert {row.name: row.fit for row in told.scores.rows}["GARCH(1,1)-t, refitted"] == "refitted"


def test_the_skill_says_against_what_and_on_which_days(training_result: TrainingResult) -> None:
    told, skill = training_result.summary, card_of(training_result).record("skill")
    assert told.scores is not None
    assert set(skill.texts("rivals")) == {row.name for row in told.scores.rows if not row.is_model}
    first, last = skill.integer("first_day"), skill.integer("last_day")
    assert (
        part_of(training_result, "calibration").integer("last")
        <= first
        < last
        < part_of(training_result, "test").integer("last")
    )
    best = f"the best of {len(told.scores.rows) - 1} baselines, {skill.text('baseline')}"
    assert f", {format_date(first)} to {format_date(last)}, the pinball loss" in skill.text("sentence")
    assert best in skill.text("sentence")


def test_the_model_stands_among_the_baselines_best_first(training_result: TrainingResult) -> None:
    rows = score_rows(training_result)
    means = [row.number("mean") for row in rows]
    assert means == sorted(means)
    assert [row.text("name") for row in rows if row.flag("is_model")] == ["this model"]
    assert {row.text("name") for row in rows} >= {
        "zero return",
        "volatility-scaled quantiles, refitted",
        "GARCH(1,1)-t, calibrated",
    }


def test_the_card_tells_parts_that_follow_one_another(training_result: TrainingResult) -> None:
    names = ("train", "selection", "calibration", "test")
    edges = [part_of(training_result, name).integer(edge) for name in names for edge in ("first", "last")]
    assert edges == sorted(edges)
    assert all(part_of(training_result, name).integer("windows") > 0 for name in names)


def test_every_setting_of_the_recipe_is_in_the_card(training_result: TrainingResult) -> None:
    settings = training_result.card["recipe"]
    assert settings == TINY.settings()
    assert isinstance(settings, Mapping)
    target = {"target", "horizons", "lag"}
    own_fields = {field.name for field in fields(StockRecipe)} - {
        "config",
        "target",
        "normaliser",
        "shares",
        "parts",
        "optimisation",
    }
    expected = {
        *(own_fields - {"minimum"}),
        *target,
        *(f"network_{name}" for name in asdict(TINY.config)),
        *(f"minimum_{name}" for name in asdict(TINY.minimum)),
        *(f"share_{name}" for name in asdict(TINY.shares)),
        *asdict(TINY.optimisation),
    }
    assert set(settings) == expected


@pytest.mark.parametrize(
    "other",
    [
        replace(TINY, quantiles=(0.2, 0.5, 0.8)),
        replace(TINY, target=Target(lag=1)),
        replace(TINY, target=Target(horizons=(1, 2))),
        replace(TINY, target=Target(kind=TargetKind.LOG_VOLATILITY)),
        replace(TINY, encoder_length=30),
        replace(TINY, calendar=""),
        replace(TINY, config=LSTMConfig(hidden=5)),
        replace(TINY, scale="window"),
        replace(TINY, scale="window", normaliser=WindowNormaliser(decay=0.9)),
        replace(TINY, minimum=BarRequirements(values=30)),
        replace(TINY, shares=SplitShares(train=0.5, selection=0.22)),
        replace(
            TINY,
            parts=DataSplits.by_dates(
                [(20100104, 20110630), (20110701, 20111230), (20120103, 20120629), (20120702, 20130301)]
            ),
        ),
        replace(TINY, optimisation=replace(QUICK, clip=2.0)),
    ],
)
def test_two_recipes_that_differ_have_different_cards(other: StockRecipe) -> None:
    assert other.settings() != TINY.settings()


def test_the_hash_of_the_bars_is_in_the_card_and_moves_with_every_column(training_result: TrainingResult) -> None:
    assert card_of(training_result).record("data").text("sha256") == hash_bars(bars())
    assert hash_bars(replace(bars(), adj_close=None)) != hash_bars(bars())
    assert hash_bars(replace(bars(), volume=bars().volume + 1)) != hash_bars(bars())


def test_a_session_of_the_exchange_without_bars_is_noted(tmp_path: Path) -> None:
    keep = few_bars().sessions != 20121015
    names = ("open", "high", "low", "close", "volume", "adj_close")
    columns = {name: np.array(getattr(few_bars(), name))[:, keep] for name in names}
    gap = replace(few_bars(), sessions=few_bars().sessions[keep], **columns)
    made = train(TrainingMaterial(gap, load_default_features()), SHORT, tmp_path / "1", consume=no_progress)
    assert card_of(made).texts("notes")[0] == (
        "sessions of XNYS without any bar: 1, such as 20121015; the bars around them were taken as consecutive"
    )


# --- refusals


@dataclass(frozen=True)
class Case:
    name: str
    bars: BarPanel
    recipe: StockRecipe
    message: str


def with_a_bar_on_christmas() -> BarPanel:
    sessions = few_bars().sessions.copy()
    sessions[np.searchsorted(sessions, 20121224)] = 20121225
    return replace(few_bars(), sessions=sessions)


REFUSED = [
    Case("unknown exchange", few_bars(), replace(SHORT, calendar="XNIX"), "unknown exchange 'XNIX'"),
    Case("bar on a holiday", with_a_bar_on_christmas(), SHORT, r"XNYS held no session on 2012-12-25"),
    Case(
        "another exchange's bars",
        few_bars(),
        replace(SHORT, calendar=""),
        "bars are of calendar XNYS, but the recipe's calendar is weekdays",
    ),
    Case("no session for a part", few_bars().last(3), SHORT, "3 sessions are too few"),
    Case(
        "no room to look back",
        bars().last(200),
        TINY,
        "have 200 sessions, and 120 .* needs at least 184",
    ),
    Case(
        "no room for the horizon",
        few_bars(),
        replace(SHORT, target=Target(horizons=(1, 60))),
        "split selection, .* has no room for a target that reaches 60 sessions",
    ),
    Case(
        "no rows to fit on",
        few_bars().last(20),
        SHORT,
        "have 20 sessions, .* give 157 sessions",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_cannot_be_trained_on_is_refused_before_anything_is_written(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=case.message):
        train(TrainingMaterial(case.bars, load_default_features()), case.recipe, tmp_path / "1", consume=no_progress)
    assert list(tmp_path.iterdir()) == []


def test_a_weekend_bar_of_an_unknown_exchange_is_refused(tmp_path: Path) -> None:
    sessions = few_bars().sessions.copy()
    sessions[np.searchsorted(sessions, 20121214)] = 20121215
    panel = replace(few_bars(), sessions=sessions, calendar="")
    with pytest.raises(ConfigurationError, match="2012-12-15"):
        train(
            TrainingMaterial(panel, load_default_features()),
            replace(SHORT, calendar=""),
            tmp_path / "1",
            consume=no_progress,
        )


def test_an_existing_folder_is_never_overwritten(training_result: TrainingResult) -> None:
    before = files_of(training_result.folder)
    with pytest.raises(ConfigurationError, match="exists already; an artifact is never overwritten"):
        train(TrainingMaterial(bars(), load_default_features()), TINY, training_result.folder, consume=no_progress)
    assert files_of(training_result.folder) == before


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_epochs", 0),
        ("patience", 0),
        ("batch_size", 0),
        ("accumulate", 0),
        ("learning_rate", float("nan")),
        ("weight_decay", float("nan")),
        ("weight_decay", -0.1),
        ("weight_decay", float("inf")),
        ("clip", 0.0),
        ("clip", float("nan")),
        ("seed", -1),
        ("seed", 2**32),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_value(setting: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"{value:g}" if isinstance(value, float) else f"{value}")):
        replace(QUICK, **{setting: value})


def test_gradients_that_are_never_clipped_are_a_setting_that_json_can_hold() -> None:
    settings = replace(TINY, optimisation=replace(QUICK, clip=float("inf"))).settings()
    assert settings["clip"] is None
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings


def test_a_network_takes_only_its_own_settings() -> None:
    with pytest.raises(ConfigurationError, match="a network of kind 'tft' takes TFTConfig, not LSTMConfig"):
        StockRecipe(kind="tft")


def test_a_ranking_model_that_is_kept_as_it_started_ranks_nobody_and_says_so(tmp_path: Path) -> None:
    """Its quantiles are meaningful, but its scores are untrained."""
    settings = replace(QUICK, max_epochs=1, learning_rate=0.9)
    config = GraphConfig(hidden=4, heads=1, neighbours=1)
    recipe = replace(SHORT, kind="graph", config=config, optimisation=settings)
    panel = bokeh_panel("AAPL", "IBM").last(400)
    made = train(TrainingMaterial(panel, load_default_features()), recipe, tmp_path / "1", consume=no_progress)
    assert card_of(made).record("training").integer("best_epoch") == 0
    assert "the model ranks all stocks alike" in " ".join(made.summary.notes)
    model = loaded(made.folder)
    found = model.forecast([model.prepare(Instance(input=panel), AFTER_ALL_SESSIONS)])[0]
    assert found.scores is not None
    assert found.ranks is not None
    assert not found.scores.any()
    assert (found.ranks == 1).all()
