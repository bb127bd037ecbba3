"""Every network kind and an ensemble behind one server: predictions and explanations over gRPC."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from artifacts import UNIVERSE, recent_bars, save_small_artifact
from ensembles import UNEVEN, save_ensemble
from serving import serving

from predictor.bars import BarPanel
from predictor.client import QuantraClient
from predictor.errors import ExplainUnsupportedError
from predictor.forecast import Attribution, Detail, Forecast, RowKind, TargetPoint
from predictor.instance import ExplanationQuery, Instance
from predictor.networks import KINDS
from predictor.service import PredictionService

MODELS = (*KINDS, "joint", "weighted")
MEMBERS = ("tft", "lstm")
SAME = 1e-6
"""Largest difference on returns."""

WHOLE = 3
"""Index of the panel of all stocks in `panels()`."""
TARGETS = (TargetPoint(5, 0.5), TargetPoint(20, 0.9))

each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    made = {kind: save_small_artifact(folder / kind / "1", kind) for kind in KINDS}
    save_ensemble(folder / "joint" / "1", {kind: made[kind] for kind in MEMBERS})
    save_ensemble(folder / "weighted" / "1", {kind: made[kind] for kind in MEMBERS}, UNEVEN)
    return folder


@pytest.fixture(scope="module")
def target(models: Path) -> Iterator[str]:
    """A server of all models."""
    with PredictionService.open(models) as service, serving(service) as served:
        yield served.target


def panels() -> list[BarPanel]:
    """Panels of several sizes, and one that ends earlier."""
    return [
        recent_bars("AAPL", "IBM"),
        recent_bars("GOOG"),
        recent_bars("MSFT"),
        recent_bars(*UNIVERSE),
        recent_bars(*UNIVERSE).until(20130215),
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelResponses:
    """Responses of a model over gRPC."""

    reasons: tuple[Attribution, ...]
    """Of `TARGETS`, for the panel of all stocks."""
    together: tuple[Forecast, ...]
    """Forecasts of `panels()` in one call."""
    alone: tuple[Forecast, ...]
    """Forecasts of `panels()` in separate calls."""


@pytest.fixture(scope="module")
def answers(target: str) -> dict[str, ModelResponses]:
    """Responses of every model, explanations first, because they yield to predictions."""
    reasons: dict[str, tuple[Attribution, ...]] = {}
    for name in MODELS:
        detail = Detail.FEATURES if name == "trees" else Detail.CELLS
        query = ExplanationQuery(instance=Instance(input=panels()[WHOLE]), targets=TARGETS, detail=detail)
        with QuantraClient(target, name) as client:
            reasons[name] = client.explain(query).attributions
    return {name: query_model(target, name, reasons[name]) for name in MODELS}


def query_model(target: str, name: str, reasons: tuple[Attribution, ...]) -> ModelResponses:
    with QuantraClient(target, name) as client:
        together = client.predict_many(panels())
        alone = tuple(client.predict(panel) for panel in panels())
    assert all(isinstance(one, Forecast) for one in together)
    return ModelResponses(
        reasons=reasons, together=tuple(one for one in together if isinstance(one, Forecast)), alone=alone
    )


def test_one_server_lists_every_kind(target: str) -> None:
    with QuantraClient(target) as client:
        assert {info.name: info.kind for info in client.models()} == {
            **{kind: kind for kind in KINDS},
            "joint": "ensemble",
            "weighted": "ensemble",
        }


@each_model
def test_a_model_forecasts_many_panels_as_each_alone(answers: dict[str, ModelResponses], name: str) -> None:
    for joined, single in zip(answers[name].together, answers[name].alone, strict=True):
        assert (joined.symbols, joined.model) == (single.symbols, name)
        np.testing.assert_allclose(joined.values, single.values, rtol=0, atol=SAME)


@each_model
def test_a_models_quantiles_are_finite_and_never_cross(answers: dict[str, ModelResponses], name: str) -> None:
    for found in answers[name].alone:
        assert np.isfinite(found.values).all()
        assert (np.diff(found.values, axis=-1) >= 0).all()


@each_model
def test_a_models_reasons_add_up_to_the_forecast_that_it_serves(answers: dict[str, ModelResponses], name: str) -> None:
    served = answers[name].alone[WHOLE]
    for found, (h, q) in zip(answers[name].reasons, ((1, 1), (3, 2)), strict=True):
        assert found.converged.all()
        np.testing.assert_allclose(found.prediction, served.values[:, h, q], rtol=0, atol=SAME)
        difference = found.prediction - found.baseline_prediction
        np.testing.assert_allclose(found.per_row.sum(axis=1), difference, rtol=0.01, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "trees"])
def test_a_models_cells_and_sessions_are_the_same_contributions(answers: dict[str, ModelResponses], name: str) -> None:
    found = answers[name].reasons[0]
    kinds = np.array(found.row_kinds)
    assert found.cells is not None
    np.testing.assert_allclose(found.cells.sum(axis=1), found.per_row[:, kinds == RowKind.OBSERVED], rtol=0, atol=1e-9)
    assert found.per_time is not None
    assert found.per_time.shape == (4, 60)


def test_trees_are_explained_by_their_own_method_in_the_rows_of_other_models(
    answers: dict[str, ModelResponses],
) -> None:
    found = {name: model.reasons[0] for name, model in answers.items()}
    assert {name: (one.method, one.baseline) for name, one in found.items() if name in {"trees", "lstm"}} == {
        "trees": ("tree-shap", "train_windows"),
        "lstm": ("integrated-gradients", "train_mean"),
    }
    assert found["trees"].row_names == found["lstm"].row_names
    difference = found["trees"].prediction - found["trees"].baseline_prediction
    np.testing.assert_allclose(found["trees"].per_row.sum(axis=1), difference, rtol=0, atol=1e-12)


@pytest.mark.parametrize("detail", [Detail.TIMES, Detail.CELLS])
def test_trees_have_no_contributions_per_session(target: str, detail: Detail) -> None:
    with (
        QuantraClient(target, "trees") as client,
        pytest.raises(ExplainUnsupportedError, match=f"detail is '{detail}', but a model of trees reads each feature"),
    ):
        client.explain(ExplanationQuery(instance=Instance(input=panels()[0]), detail=detail))


@pytest.mark.parametrize(("name", "method"), [("trees", "integrated-gradients"), ("lstm", "tree-shap")])
def test_the_method_of_another_kind_is_refused(target: str, name: str, method: str) -> None:
    with (
        QuantraClient(target, name) as client,
        pytest.raises(ExplainUnsupportedError, match=f"'{method}'; the model supports"),
    ):
        client.explain(ExplanationQuery(instance=Instance(input=panels()[0]), method=method))


def test_only_the_graph_ranks_and_has_neighbours(answers: dict[str, ModelResponses]) -> None:
    ranking = {name for name, found in answers.items() if found.alone[WHOLE].ranks is not None}
    with_neighbours = {name for name, found in answers.items() if RowKind.NEIGHBOURS in found.reasons[0].row_kinds}
    assert ranking == with_neighbours == {"graph"}


def test_only_the_fusion_transformer_has_internals_also_as_a_member(answers: dict[str, ModelResponses]) -> None:
    names = {name: [one.name for one in found.reasons[0].internals] for name, found in answers.items()}
    told = ["selection of past variables", "selection of future variables", "attention"]
    assert {name: found for name, found in names.items() if found} == {
        "tft": told,
        "joint": [f"tft: {name}" for name in told],
        "weighted": [f"tft: {name}" for name in told],
    }
