"""Fine-tuning: parts from the parent artifact, refitted parts, training history, and refusals."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from baseline_cases import few_baselines
from command_exits import exit_code, program_exit_code
from market import bokeh_panel
from torch import Tensor, nn

from predictor import artifact
from predictor.artifact import Artifact, Golden
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.card import Card, read_ancestors
from predictor.covariates import CovariateSource
from predictor.errors import ArtifactError, ConfigurationError, InSampleError, format_date
from predictor.features import FeatureDefinition, FeatureSet
from predictor.model import Model
from predictor.networks import (
    Edges,
    GraphConfig,
    GraphForecaster,
    HybridConfig,
    LSTMConfig,
    Target,
    TFTConfig,
    UnconditionalConfig,
)
from predictor.registry import Runtime, load_model, load_single
from trainers.cli.commands import app as quantra
from trainers.loop import Report, ResumeMismatchError, StepReport, WeightsMismatchError
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.stock import (
    CheckpointSettings,
    DataSplits,
    Optimisation,
    ParentArtifact,
    StockRecipe,
    TrainingMaterial,
    TrainingResult,
    command,
    train,
)
from trainers.stock.audit import AuditBudget, audit
from trainers.stock.backtest import BacktestFolder, StrategySettings, TradingTerms, artifact_source, backtest
from trainers.stock.backtest import WalkForwardPlan as Walk
from trainers.stock.backtest.source import refuse_in_sample
from trainers.stock.data import NO_COVARIATE_FILES, History
from trainers.stock.edges import fit_training_edges
from trainers.stock.ensembles import join
from trainers.stock.evaluation.bound_model import find_last_seen
from trainers.stock.evaluation.evaluation import EvaluationSettings, evaluate
from trainers.stock.feature_selection import list_covariate_fields
from trainers.stock.model_fit import fit_pipeline, prepare

FEATURES = FeatureSet(
    observed=(
        FeatureDefinition("r1", "Log($close / Ref($close, 1))", "return", "log return"),
        FeatureDefinition("range", "Log($high / $low)", "range of the day", "log ratio"),
    )
)
OTHERS = FeatureSet(observed=(*FEATURES.observed[:1], FeatureDefinition("gap", "Log($open / $close)", "gap", "log")))
OLD = DataSplits.by_dates([(20080102, 20091231), (20100104, 20100430), (20100503, 20100831), (20100901, 20101231)])
NEW = DataSplits.by_dates([(20080701, 20101231), (20110103, 20110630), (20110701, 20111230), (20120103, 20121231)])
LATE = DataSplits.by_dates([(20090102, 20111230), (20120103, 20120430), (20120501, 20120831), (20120904, 20121231)])
QUICK = Optimisation(max_epochs=2, device="cpu")
OTHERWISE = replace(QUICK, seed=3)
RECIPE = StockRecipe(
    calendar="XNYS",
    config=LSTMConfig(hidden=4, layers=1),
    target=Target(horizons=(1, 3)),
    encoder_length=10,
    parts=OLD,
    optimisation=QUICK,
)
CHILD = replace(RECIPE, parts=NEW)
SEEN = 20100831


@cache
def old_bars() -> BarPanel:
    return bokeh_panel("AAPL").between(20080102, 20101231)


@cache
def new_bars(*symbols: str) -> BarPanel:
    return bokeh_panel(*(symbols or ("GOOG", "IBM"))).between(20080701, 20121231)


def tuned(parent: Path, out: Path, recipe: StockRecipe = CHILD, bars: BarPanel | None = None) -> TrainingResult:
    material = TrainingMaterial(bars or new_bars(), FEATURES, parent=ParentArtifact.load(parent))
    return train(material, recipe, out, consume=ConsumerChain())


@pytest.fixture(autouse=True, scope="module")
def with_few_baselines() -> Iterator[None]:
    with few_baselines():
        yield


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        TrainingMaterial(old_bars(), FEATURES), RECIPE, tmp_path_factory.mktemp("parent") / "1", consume=ConsumerChain()
    ).folder


@pytest.fixture(scope="module")
def child(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return tuned(parent, tmp_path_factory.mktemp("child") / "1")


@pytest.fixture(scope="module")
def sibling(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(parent, tmp_path_factory.mktemp("sibling") / "1", replace(CHILD, optimisation=OTHERWISE)).folder


def loaded(folder: Path) -> Model:
    return load_single(folder, ("tuned", 1), Runtime(device=torch.device("cpu"), max_rows=256))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rewritten(folder: Path, out: Path, **sections: Json) -> Path:
    """The artifact with other sections in its card."""
    stored = artifact.load(folder)
    manifest = stored.artifact.manifest
    made = replace(stored.artifact, manifest=replace(manifest, card={**manifest.card, **sections}))
    artifact.save(out, made, stored.golden)
    return out


# --- where the network starts


def history_of(recipe: StockRecipe, bars: BarPanel) -> History:
    splits = recipe.splits(bars.sessions)
    return History(bars, fit_pipeline(bars, FEATURES, recipe, splits), NO_COVARIATE_FILES)


KINDS = {
    "lstm": (LSTMConfig(hidden=4, layers=1), set[str]()),
    "hybrid": (HybridConfig(hidden=4, layers=1, blocks=1, heads=1), set[str]()),
    "tft": (TFTConfig(hidden=4, heads=1), {"highway.weight"}),
    "graph": (GraphConfig(hidden=4, heads=1, neighbours=1), {"neighbours", "weights"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_but_what_each_training_finds_for_itself_starts_at_the_given_weights(kind: str) -> None:
    config, anew = KINDS[kind]
    recipe = replace(CHILD, kind=kind, config=config, optimisation=replace(QUICK, seed=5))
    before = prepare(history_of(replace(recipe, parts=OLD), old_bars()), OLD, recipe, None).network.state_dict()
    before |= {name: before[name] + 1 for name in ("head.bias", *anew)}
    history = history_of(recipe, new_bars())
    fresh = prepare(history, NEW, recipe, None).network
    prepared = prepare(history, NEW, recipe, None, before)
    found, expected = prepared.network.state_dict(), {**before, **{name: fresh.state_dict()[name] for name in anew}}
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert prepared.started is not None
    assert set(prepared.started.new) == set(prepared.started.dropped) == anew
    assert trained_parameters(prepared.network) == trained_parameters(fresh)


def trained_parameters(network: nn.Module) -> set[str]:
    return {name for name, parameter in network.named_parameters() if parameter.requires_grad}


def test_weights_of_another_network_are_named_and_not_bent_to_fit() -> None:
    history = history_of(CHILD, new_bars())
    wide = prepare(history, NEW, replace(CHILD, config=LSTMConfig(hidden=6, layers=1)), None).network.state_dict()
    with pytest.raises(WeightsMismatchError, match=r"lstm\.weight_ih_l0 is float32\[24, 3\].*float32\[16, 3\]"):
        prepare(history, NEW, CHILD, None, wide)


# --- results


def test_the_network_is_the_parents_and_every_fitted_number_that_of_the_new_training_part(
    parent: Path, child: TrainingResult
) -> None:
    before, after = (artifact.load(folder).artifact for folder in (parent, child.folder))
    anew = fit_pipeline(new_bars(), FEATURES, CHILD, NEW)
    assert after.pipeline.features.to_json() == anew.features.to_json() != before.pipeline.features.to_json()
    assert after.pipeline.normaliser == anew.normaliser != before.pipeline.normaliser
    assert after.manifest.conformal != before.manifest.conformal
    assert after.manifest.config == before.manifest.config
    assert after.manifest.target == before.manifest.target


def test_training_begins_with_the_selection_loss_of_the_parents_network(parent: Path, tmp_path: Path) -> None:
    recipe = replace(CHILD, optimisation=replace(QUICK, max_epochs=1, learning_rate=0.9))
    made = tuned(parent, tmp_path / "1", recipe)
    assert Record(made.card, "card").record("training").integer("best_epoch") == 0
    weights, own = artifact.load(made.folder).weights_hash, artifact.load(parent).weights_hash
    assert weights == own


def test_the_card_names_the_parents_weights_and_all_that_they_had_seen(parent: Path, child: TrainingResult) -> None:
    assert child.card["ancestors"] == [
        {
            "weights_hash": artifact.load(parent).weights_hash,
            "symbols": ["AAPL"],
            "seen_from": 20080102,
            "seen_until": SEEN,
        }
    ]
    note = child.summary.notes[0]
    assert note.startswith(f"fine-tuned from the weights {artifact.load(parent).weights_hash[:16]}, trained on")
    assert "labels from 2008-01-02 to 2010-08-31 of AAPL; baselines are fitted on the model's own splits only" in note


def test_the_same_fine_tuning_gives_the_same_bytes_and_another_seed_other_weights(
    parent: Path, child: TrainingResult, sibling: Path, tmp_path: Path
) -> None:
    torch.manual_seed(99)
    assert files_of(tuned(parent, tmp_path / "again" / "7").folder) == files_of(child.folder)
    assert artifact.load(sibling).weights_hash != artifact.load(child.folder).weights_hash


def test_a_card_of_a_fresh_training_has_no_ancestors(parent: Path) -> None:
    card = artifact.load(parent).artifact.manifest.card
    assert "ancestors" not in card
    assert read_ancestors(card) == ()


def test_inspect_shows_what_it_started_from(
    parent: Path, child: TrainingResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call_quantra("inspect", child.folder, "--all") == 0
    shown = capsys.readouterr().out
    assert "parent weights" in shown
    assert f"{artifact.load(parent).weights_hash}, which had seen labels 2008-01-02 to 2010-08-31 of AAPL" in shown


def test_symbols_of_the_parent_count_as_trained_on(child: TrainingResult) -> None:
    assert loaded(child.folder).training_summary.symbols == {"AAPL", "GOOG", "IBM"}


def test_bars_of_another_adjustment_than_the_parents_are_doubted(parent: Path, tmp_path: Path) -> None:
    heard: list[str] = []
    material = TrainingMaterial(replace(new_bars(), adj_close=None), FEATURES, parent=ParentArtifact.load(parent))
    train(material, CHILD, tmp_path / "1", consume=ConsumerChain(), warn=heard.append)
    assert any("the model was trained on bars with splits and dividends" in line for line in heard)


def test_a_symbol_that_the_parent_learnt_is_not_said_to_be_unlearnt(parent: Path, tmp_path: Path) -> None:
    def warnings(symbol: str) -> str:
        young = bokeh_panel("GOOG", symbol).between(20080701, 20121231)
        late = young.sessions < 20110601
        columns = {name: np.array(getattr(young, name)) for name in COLUMNS}
        for column in columns.values():
            column[young.symbols.index(symbol), late] = np.nan
        heard: list[str] = []
        material = TrainingMaterial(replace(young, **columns), FEATURES, parent=ParentArtifact.load(parent))
        train(material, CHILD, tmp_path / symbol, consume=ConsumerChain(), warn=heard.append)
        return " ".join(heard)

    assert "IBM: too few bars for a window of the training part" in warnings("IBM")
    assert "too few bars" not in warnings("AAPL")


COLUMNS = ("open", "high", "low", "close", "volume", "adj_close")


def test_a_graph_that_stays_as_the_parents_keeps_its_ranking_and_its_given_edges(tmp_path: Path) -> None:
    """An untrained graph ranks nothing; a trained parent's graph does."""
    config = GraphConfig(hidden=4, heads=1, neighbours=1)
    recipe = replace(RECIPE, kind="graph", config=config, target=Target(lag=1, horizons=(1, 3)), scale="window")
    bars = bokeh_panel("AAPL", "IBM").between(20080102, 20101231)
    given = Edges(neighbours=torch.tensor([[1], [-1]]), weights=torch.tensor([[0.5], [0.0]]))
    learnt = replace(QUICK, max_epochs=3, learning_rate=0.003)
    first = train(
        TrainingMaterial(bars, FEATURES, edges=given),
        replace(recipe, optimisation=learnt),
        tmp_path / "1",
        consume=ConsumerChain(),
    )
    assert not network_of(first.folder).has_equal_scores
    wild = replace(recipe, parts=NEW, optimisation=replace(QUICK, max_epochs=1, learning_rate=0.9))
    panel = bokeh_panel("GOOG", "IBM", "AAPL").between(20080701, 20121231)
    made = tuned(first.folder, tmp_path / "2", wild, panel)
    network = network_of(made.folder)
    assert Record(made.card, "card").record("training").integer("best_epoch") == 0
    assert not network.has_equal_scores
    assert not any("ranks all stocks alike" in note for note in made.summary.notes)
    assert network.neighbours.tolist() == [[-1], [-1], [1]]
    assert made.card["edges"] == {"source": "given"}


def network_of(folder: Path) -> GraphForecaster:
    network = artifact.load(folder).artifact.network()
    assert isinstance(network, GraphForecaster)
    return network


def test_edges_of_returns_are_those_of_the_new_training_part(tmp_path: Path) -> None:
    config = GraphConfig(hidden=4, heads=1, neighbours=1)
    recipe = replace(RECIPE, kind="graph", config=config, target=Target(lag=1, horizons=(1, 3)), scale="window")
    bars = bokeh_panel("AAPL", "IBM").between(20080102, 20101231)
    first = train(TrainingMaterial(bars, FEATURES), recipe, tmp_path / "1", consume=ConsumerChain())
    made = tuned(first.folder, tmp_path / "2", replace(recipe, parts=NEW), new_bars("GOOG", "IBM", "MSFT"))
    expected = fit_training_edges(new_bars("GOOG", "IBM", "MSFT"), NEW.train.last, neighbours=1)
    assert torch.equal(network_of(made.folder).neighbours, expected.neighbours)
    assert made.card["edges"] == {"source": "training returns"}


# --- static values


def facts(folder: Path, rows: str) -> CovariateSource:
    (folder / "static.csv").write_text(f"symbol,{rows}", encoding="utf-8")
    return CovariateSource.read([], folder / "static.csv")


def test_columns_of_texts_stand_for_what_they_stood_for(tmp_path: Path) -> None:
    bars = bokeh_panel("AAPL", "IBM").between(20080102, 20101231)
    beside = facts(tmp_path, "sector\nAAPL,Phones\nIBM,Mainframes\nGOOG,Search\n")
    first = train(TrainingMaterial(bars, FEATURES, beside), RECIPE, tmp_path / "1", consume=ConsumerChain())
    material = TrainingMaterial(new_bars(), FEATURES, beside, parent=ParentArtifact.load(first.folder))
    made = train(material, CHILD, tmp_path / "2", consume=ConsumerChain())
    (sector,) = artifact.load(made.folder).artifact.pipeline.features.statics.categories
    assert sector.categories == ("Mainframes", "Phones")


def test_other_static_covariates_than_the_parents_are_named(parent: Path, tmp_path: Path) -> None:
    material = TrainingMaterial(
        new_bars(), FEATURES, facts(tmp_path, "beta\nGOOG,1.5\nIBM,0.5\n"), parent=ParentArtifact.load(parent)
    )
    with pytest.raises(ConfigurationError, match=r"are beta \(a number\), but the artifact to start from reads none"):
        train(material, CHILD, tmp_path / "1", consume=ConsumerChain())


# --- training history


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        (
            [(20080701, 20091231), (20100601, 20100831), (20110103, 20110630), (20120103, 20121231)],
            r"up to 2010-08-31, which lie in selection \(2010-06-01 to 2010-08-31\); .* begin on 2010-09-01 or later",
        ),
        (
            [(20080701, 20091231), (20100104, 20100331), (20100401, 20100630), (20100831, 20121231)],
            r"selection \(.*\), calibration \(.*\), test \(2010-08-31 to 2012-12-31\); .* 2010-09-01",
        ),
    ],
)
def test_a_day_that_the_parent_has_seen_is_no_day_to_select_calibrate_or_test_on(
    ranges: list[tuple[int, int]], told: str, parent: Path, tmp_path: Path
) -> None:
    with pytest.raises(InSampleError, match=told):
        tuned(parent, tmp_path / "1", replace(CHILD, parts=DataSplits.by_dates(ranges)))
    assert list(tmp_path.iterdir()) == []


def test_the_day_after_the_parents_last_label_is_allowed(parent: Path) -> None:
    edge = DataSplits.by_dates([(20080701, 20100831), (20100901, 20110630), (20110701, 20111230), (20120103, 20121231)])
    ParentArtifact.load(parent).check_unseen(edge, new_bars().sessions)


def test_bars_that_end_before_anything_unseen_are_refused_for_later_ones(parent: Path, tmp_path: Path) -> None:
    bars = bokeh_panel("GOOG").between(20080102, 20100831)
    with pytest.raises(InSampleError, match="the bars end on 2010-08-31: give later ones"):
        tuned(parent, tmp_path / "1", replace(CHILD, parts=None), bars)


def test_two_parents_deep_everything_before_is_kept(parent: Path, child: TrainingResult, tmp_path: Path) -> None:
    bars = bokeh_panel("MSFT").between(20090102, 20121231)
    made = tuned(child.folder, tmp_path / "1", replace(CHILD, parts=LATE), bars)
    hashes = [artifact.load(folder).weights_hash for folder in (child.folder, parent)]
    ancestors = made.summary.ancestors
    assert [one.weights_hash for one in ancestors] == hashes
    assert [one.seen_until for one in ancestors] == [NEW.calibration.last, SEEN]
    assert loaded(made.folder).training_summary.symbols == {"AAPL", "GOOG", "IBM", "MSFT"}
    assert "labels from 2008-01-02 to 2011-12-30 of GOOG, IBM, AAPL" in made.summary.notes[0]
    with pytest.raises(InSampleError, match="up to 2011-12-30"):
        tuned(child.folder, tmp_path / "2", CHILD)


@pytest.fixture(scope="module")
def informed_child(child: TrainingResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The child with a grandparent that had seen half of the child's test part."""
    (first,) = Card.from_json(json.dumps(child.card)).ancestors
    grandparent: Json = {"weights_hash": "ab" * 32, "symbols": ["MSFT"], "seen_from": 20080102, "seen_until": 20120629}
    own: Json = {
        "weights_hash": first.weights_hash,
        "symbols": list(first.symbols),
        "seen_from": first.seen_from,
        "seen_until": first.seen_until,
    }
    return rewritten(child.folder, tmp_path_factory.mktemp("knowing") / "1", ancestors=[own, grandparent])


def test_evaluations_hold_to_what_any_ancestor_has_seen(informed_child: Path) -> None:
    model = loaded(informed_child)
    assert find_last_seen(model) == 20120629
    wanted = EvaluationSettings(start=20120601, seeds=5, device="cpu")
    with pytest.raises(InSampleError, match=r"seen labels up to 2012-06-29.*first allowed decision day is 2012-07-02"):
        evaluate(model, new_bars(), wanted, consume=ConsumerChain(), announce=print)
    found = evaluate(model, new_bars(), replace(wanted, start=None), consume=ConsumerChain(), announce=print)
    assert (found.period.seen_until, found.period.first) == (20120629, 20120702)
    assert found.seeds is None
    assert found.notes[0].startswith("fine-tuned from the weights ")
    assert "a fine-tuned artifact lacks its parent's weights, so it is not trained from other seeds" in found.notes


def test_backtests_hold_to_what_any_ancestor_has_seen_and_refit_nothing(informed_child: Path, tmp_path: Path) -> None:
    source = artifact_source(informed_child, "cpu")
    plan = Walk(start=20120601, end=20121130)
    with pytest.raises(InSampleError, match="labels up to 2012-06-29"):
        backtest(
            source,
            new_bars(),
            plan,
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            folder=BacktestFolder(path=tmp_path / "a"),
        )
    later = replace(plan, start=20120702)
    with pytest.raises(ConfigurationError, match="so it cannot be refitted; use --refit never"):
        backtest(
            source,
            new_bars(),
            replace(later, refit=63),
            terms=TradingTerms(horizon=3),
            strategy_settings=StrategySettings(),
            folder=BacktestFolder(path=tmp_path / "b"),
        )
    assert list(tmp_path.iterdir()) == []
    found = backtest(
        source,
        new_bars(),
        later,
        terms=TradingTerms(horizon=3),
        strategy_settings=StrategySettings(),
        folder=BacktestFolder(path=tmp_path / "c"),
    )
    assert found.notes[0].startswith("fine-tuned from the weights ")
    assert source.trained_model is not None
    refuse_in_sample(source.trained_model, new_bars().sessions, 20120702)


def test_audits_hold_to_what_any_ancestor_has_seen(informed_child: Path) -> None:
    found = audit(
        artifact_source(informed_child, "cpu"),
        new_bars(),
        terms=TradingTerms(horizon=3),
        strategy_settings=StrategySettings(),
        depth=AuditBudget(sessions=1, permutations=1, epochs=1),
        announce=print,
    )
    assert found.first_session == 20120702
    assert any(note.startswith("fine-tuned from") and "start from new weights" in note for note in found.notes)


def test_an_ensemble_of_children_says_where_they_come_from(
    child: TrainingResult, sibling: Path, informed_child: Path, tmp_path: Path
) -> None:
    folders = {"one": child.folder, "other": sibling}
    made = join(new_bars(), folders, tmp_path / "joint")
    told = [note for note in made.summary.notes if "fine-tuned from the weights" in note]
    assert [note.partition(":")[0] for note in told] == ["member one", "member other"]
    stricter = join(new_bars(), {**folders, "one": informed_child}, tmp_path / "stricter")
    model = load_model(stricter.folder, ("joint", 1), Runtime(device=torch.device("cpu"), max_rows=256))
    assert find_last_seen(model) == 20120629  # pyright: ignore[reportArgumentType] - it is an ensemble


# --- refusals


def test_settings_that_would_give_the_weights_another_meaning_are_all_named(parent: Path, tmp_path: Path) -> None:
    recipe = replace(
        CHILD, config=LSTMConfig(hidden=5, layers=1), quantiles=(0.2, 0.5, 0.8), encoder_length=12, scale="window"
    )
    with pytest.raises(ConfigurationError) as refused:
        train(
            TrainingMaterial(new_bars(), OTHERS, parent=ParentArtifact.load(parent)),
            recipe,
            tmp_path / "1",
            consume=ConsumerChain(),
        )
    for said in (
        "quantiles is [0.2, 0.5, 0.8], the artifact's is [0.1, 0.5, 0.9]",
        "network_hidden is 5, the artifact's is 4",
        "encoder_length is 12, the artifact's is 10",
        "scale is window, the artifact's is har",
        "the features are r1, gap, the artifact's are r1, range",
    ):
        assert said in refused.value.message
    assert list(tmp_path.iterdir()) == []


def test_dropout_is_no_part_of_the_weights(parent: Path) -> None:
    ParentArtifact.load(parent).check(FEATURES, replace(CHILD, config=LSTMConfig(hidden=4, layers=1, dropout=0.1)))


def test_what_has_no_network_of_its_own_is_refused_with_the_reason(
    child: TrainingResult, sibling: Path, tmp_path: Path
) -> None:
    har = replace(RECIPE, kind="har", config=UnconditionalConfig(), scale="har")
    fitted = train(TrainingMaterial(old_bars(), FEATURES), har, tmp_path / "har", consume=ConsumerChain())
    with pytest.raises(
        ConfigurationError, match="model har has no weights of a network to start from; fit it again: --model har"
    ):
        ParentArtifact.load(fitted.folder)
    joint = join(new_bars(), {"one": child.folder, "other": sibling}, tmp_path / "joint")
    with pytest.raises(ConfigurationError, match=r"it is an ensemble; name one of its members: .*joint/members/NAME"):
        ParentArtifact.load(joint.folder)
    assert (
        ParentArtifact.load(joint.folder / "members" / "one").weights_hash == artifact.load(child.folder).weights_hash
    )


def test_an_artifact_without_training_history_is_refused(parent: Path, tmp_path: Path) -> None:
    stored = artifact.load(parent)
    bare = replace(stored.artifact, manifest=replace(stored.artifact.manifest, card={}))
    artifact.save(tmp_path / "bare", bare, stored.golden)
    with pytest.raises(ConfigurationError, match="its card has no data, recipe, splits, so what it has seen"):
        ParentArtifact.load(tmp_path / "bare")
    card = artifact.load(parent).artifact.manifest.card["recipe"]
    assert isinstance(card, dict)
    unknown = rewritten(parent, tmp_path / "unknown", recipe={**card, "momentum": 0.9})
    with pytest.raises(ConfigurationError, match=r"no training can start from .*momentum"):
        ParentArtifact.load(unknown)


def test_a_damaged_artifact_is_refused_with_its_folder_and_file(parent: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in parent.rglob("*"):
        if path.is_file():
            place = copy / path.relative_to(parent)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(path.read_bytes()[: -1 if path.name == "weights.safetensors" else None])
    with pytest.raises(ArtifactError, match=r"copy/weights\.safetensors.*the file was truncated or changed"):
        ParentArtifact.load(copy)


def test_weights_that_are_no_numbers_are_refused(parent: Path, tmp_path: Path) -> None:
    stored = artifact.load(parent)
    weights: dict[str, Tensor] = {**stored.artifact.weights, "head.bias": torch.full((2, 3), torch.nan)}
    made = Artifact(manifest=stored.artifact.manifest, pipeline=stored.artifact.pipeline, weights=weights)
    artifact.save(tmp_path / "1", made, Golden(text=stored.golden.text, arrays=stored.golden.arrays))
    with pytest.raises(ArtifactError, match=r"head\.bias holds a value that is not finite"):
        ParentArtifact.load(tmp_path / "1")


# --- stopping and resuming


class TrainingStopped(Exception):  # noqa: N818 - as if the process had ended
    """Raised to end a training run."""


def until(epoch: int, window: int) -> ReportConsumer:
    """A consumer that stops the training in mid-epoch."""

    def ending(reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            yield report
            if isinstance(report, StepReport) and (report.epoch, report.window) == (epoch, window):
                raise TrainingStopped

    return ending


def stop(material: TrainingMaterial, out: Path) -> None:
    checkpoint_settings = CheckpointSettings(folder=out.parent / "run", every_seconds=1e-9)
    with pytest.raises(TrainingStopped):
        train(material, CHILD, out, consume=until(1, 3), checkpoint_settings=checkpoint_settings)
    assert list((out.parent / "run").glob("window-*"))


def test_a_fine_tuning_stopped_in_mid_epoch_resumes_to_the_same_bytes(
    parent: Path, child: TrainingResult, tmp_path: Path
) -> None:
    material = TrainingMaterial(new_bars(), FEATURES, parent=ParentArtifact.load(parent))
    stop(material, tmp_path / "1")
    train(
        material,
        CHILD,
        tmp_path / "1",
        consume=ConsumerChain(),
        checkpoint_settings=CheckpointSettings(folder=tmp_path / "run", resume=True),
    )
    assert files_of(tmp_path / "1") == files_of(child.folder)


def test_a_resume_with_another_parent_or_with_none_is_refused_by_name(parent: Path, tmp_path: Path) -> None:
    stop(TrainingMaterial(new_bars(), FEATURES, parent=ParentArtifact.load(parent)), tmp_path / "1")
    mine = artifact.load(parent).weights_hash
    cousin = train(
        TrainingMaterial(old_bars(), FEATURES),
        replace(RECIPE, optimisation=replace(QUICK, seed=4)),
        tmp_path / "cousin",
        consume=ConsumerChain(),
    )
    for other in (None, ParentArtifact.load(cousin.folder)):
        material = TrainingMaterial(new_bars(), FEATURES, parent=other)
        with pytest.raises(ResumeMismatchError, match=rf'parent_weights was "{mine[:40]}.* and is now'):
            train(
                material,
                CHILD,
                tmp_path / "1",
                consume=ConsumerChain(),
                checkpoint_settings=CheckpointSettings(folder=tmp_path / "run", resume=True),
            )


# --- the command


call_quantra = partial(program_exit_code, quantra)


train_by_command = partial(exit_code, command.stock)


SPLITS = ",".join("/".join(map(format_date, (part.first, part.last))) for part in NEW.parts)
FLAGS = ("--splits", SPLITS, "--epochs", "2", "--device", "cpu")


@pytest.fixture(scope="module")
def bars_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    new_bars().write_csv(path)
    return path


def without_breaks(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_the_command_takes_network_features_and_target_from_the_artifact(
    parent: Path, child: TrainingResult, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "1"
    assert train_by_command("--from", parent, "--bars", bars_file, "--out", out, *FLAGS) == 0
    shown = without_breaks(capsys.readouterr().out)
    assert (
        f"starting from the weights {artifact.load(parent).weights_hash[:16]}: 10 reused, none initialised from scratch"
        in shown
    )
    assert "note: fine-tuned from the weights" in shown
    assert files_of(out) == files_of(child.folder)
    again = ("--from", parent, "--bars", bars_file, "--out", out, *FLAGS, "--resume")
    assert train_by_command(*again) == 0
    assert "is finished; there is nothing to resume" in capsys.readouterr().out


def test_a_finished_model_of_another_parent_is_not_called_finished(
    parent: Path, child: TrainingResult, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also not in its own folder."""
    flags = ("--bars", bars_file, "--out", child.folder, *FLAGS, "--resume")
    assert train_by_command("--from", child.folder, *flags) == 1
    own, before = (artifact.load(folder).weights_hash[:16] for folder in (child.folder, parent))
    assert (
        f"the weights that it started from were {before} (labels up to 2010-08-31) and are now {own} (labels up to "
        f"2011-12-30), of {before} (labels up to 2010-08-31)"
    ) in without_breaks(capsys.readouterr().err)


def test_the_artifact_itself_is_no_place_for_what_starts_from_it(
    parent: Path, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(parent)
    assert train_by_command("--from", parent, "--bars", bars_file, "--out", parent, *FLAGS) == 1
    assert "an artifact is never overwritten" in capsys.readouterr().err
    assert files_of(parent) == before


def test_flags_that_contradict_the_artifact_are_all_named_and_those_that_agree_are_not(
    parent: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    flags = (
        "--model gru --horizons 1,5 --quantiles 0.1,0.5,0.9 --lag 1 --target log-return --scale window --heads 2 "
        "--encoder-length 60 --features default --hidden 4"
    )
    asked = ("--from", parent, "--bars", bars_file, "--out", tmp_path / "1", *flags.split())
    assert train_by_command(*asked) == 2
    said = without_breaks(capsys.readouterr().err)
    for contradiction in (
        "--model is gru and the artifact's lstm",
        "--horizons is 1,5 and the artifact's 1,3",
        "--lag is 1 and the artifact's 0",
        "--scale is window and the artifact's har",
        "--heads is 2 and the artifact's none",
        "--encoder-length is 60 and the artifact's 10",
        "--features is default, whose features are not the artifact's",
    ):
        assert contradiction in said
    for agreeing in ("--quantiles is", "--target is", "--hidden is"):
        assert agreeing not in said
    assert list(tmp_path.iterdir()) == []


def test_covariates_that_the_artifact_reads_are_needed_and_cannot_become_known_ahead(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    days = [day for day in map(format_date, new_bars().sessions.tolist()) if day > "2008-01"]
    rows = "".join(f"{day},{day},{10 + k % 7}\n" for k, day in enumerate(days))
    (tmp_path / "vix.csv").write_text(f"date,known_from,vix\n{rows}", encoding="utf-8")
    beside = CovariateSource.read([tmp_path / "vix.csv"], None)
    reading = FEATURES.with_covariates(list_covariate_fields(beside))
    parts = DataSplits.by_dates(
        [(20090102, 20091231), (20100104, 20100430), (20100503, 20100831), (20100901, 20101231)]
    )
    first = train(
        TrainingMaterial(old_bars(), reading, beside),
        replace(RECIPE, parts=parts),
        tmp_path / "1",
        consume=ConsumerChain(),
    ).folder
    asked = ("--from", first, "--bars", bars_file, "--out", tmp_path / "2", *FLAGS)
    assert train_by_command(*asked) == 1
    assert "vix" in capsys.readouterr().err
    files = ("--covariates", tmp_path / "vix.csv")
    assert train_by_command(*asked, *files, "--known", "vix") == 2
    assert "--known is vix and the artifact's none" in without_breaks(capsys.readouterr().err)
    assert train_by_command(*asked, *files) == 0
    assert ParentArtifact.load(tmp_path / "2").features.names == ("r1", "range", "vix")


def test_days_that_the_artifact_has_seen_are_bad_usage(
    parent: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early = "2008-07-01/2009-12-31,2010-01-04/2010-12-31,2011-01-03/2011-12-30,2012-01-03/2012-12-31"
    asked = ("--from", parent, "--bars", bars_file, "--out", tmp_path / "1", "--splits", early, "--json")
    assert train_by_command(*asked) == 2
    said = capsys.readouterr()
    assert "let selection begin on 2010-09-01 or later (--splits)" in without_breaks(said.err)
    assert json.loads(said.out.splitlines()[-1])["error"]["reason"] == "IN_SAMPLE"
    assert list(tmp_path.iterdir()) == []


def test_dropout_and_learning_are_the_commands_own(
    parent: Path, bars_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[TrainingMaterial, StockRecipe]] = []

    def ask(material: TrainingMaterial, recipe: StockRecipe, out: Path, **_: object) -> TrainingResult:
        asked.append((material, recipe))
        return TrainingResult(folder=out, card={})

    monkeypatch.setattr(command, "train", ask)
    flags = ("--dropout", "0.25", "--learning-rate", "0.001", "--seed", "7", "--json", "--calendar", "weekdays")
    assert train_by_command("--from", parent, "--bars", bars_file, "--out", tmp_path / "1", *flags) == 0
    ((material, recipe),) = asked
    assert recipe == StockRecipe(
        calendar="weekdays",
        config=LSTMConfig(hidden=4, layers=1, dropout=0.25),
        target=Target(horizons=(1, 3)),
        encoder_length=10,
        optimisation=Optimisation(learning_rate=0.001, seed=7),
    )
    assert material.features == FEATURES
    assert material.parent is not None
