"""Covariates on the wire: exact round trips, and refusals before arrays are allocated."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from covariate_files import bars, save_artifact_with, source
from serving import serving

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.client import AsyncQuantraClient, QuantraClient
from predictor.covariates import Covariates, CovariateSource
from predictor.errors import CovariateMissingError, CovariatesError, MalformedRequestError, UnknownCovariateError
from predictor.forecast import Attribution, Forecast, TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import ExplanationQuery, Instance
from predictor.service import PredictionService
from predictor.wire import instances

NAN = float("nan")


def panel() -> BarPanel:
    return bars().last(3)


def random_covariates() -> Covariates:
    random = np.random.default_rng(0)
    return Covariates(
        observed={"a": random.normal(size=(3, 3)), "b": np.array([[1.0, NAN, 3.0]] * 3)},
        known={"c": random.normal(size=(3, 5))},
        future_sessions=np.array([20110103, 20110104], np.int32),
        numbers={"cap": np.array([1.5, NAN, 0.0])},
        categories={"sector": ("Tech", "", "Énergie")},
    )


def message() -> pb.Instance:
    return instances.encode(Instance(input=panel(), covariates=random_covariates()))


def test_covariates_come_back_bit_for_bit() -> None:
    sent, back = random_covariates(), instances.decode(pb.Instance.FromString(message().SerializeToString())).covariates
    for group in ("observed", "known", "numbers"):
        ours, theirs = getattr(sent, group), getattr(back, group)
        assert list(theirs) == list(ours)
        assert all(theirs[name].tobytes() == values.tobytes() for name, values in ours.items())
    assert np.array_equal(back.future_sessions, sent.future_sessions)
    assert back.categories == sent.categories


def test_no_covariates_take_no_bytes() -> None:
    encoded = instances.encode(Instance(input=panel()))
    assert not encoded.HasField("covariates")
    assert instances.decode(encoded).covariates.names == ()


def test_an_array_of_another_length_is_named() -> None:
    wrong = message()
    wrong.covariates.known[0].values = wrong.covariates.known[0].values[:-8]
    with pytest.raises(MalformedRequestError, match=r"covariates.known c: have 112 bytes, need 120 \(3 x 5 values"):
        instances.decode(wrong)


def test_a_duplicate_name_is_refused() -> None:
    wrong = message()
    wrong.covariates.observed[1].name = "a"
    with pytest.raises(MalformedRequestError, match=r"covariates\.observed: a name appears twice"):
        instances.decode(wrong)


def test_a_text_for_each_symbol_is_needed() -> None:
    wrong = message()
    wrong.covariates.categories[0].values.append("more")
    with pytest.raises(MalformedRequestError, match="categories sector: have 4 texts, need 3"):
        instances.decode(wrong)


def test_infinity_is_refused() -> None:
    wrong = message()
    wrong.covariates.numbers[0].values = np.array([1.0, np.inf, 2.0]).tobytes()
    with pytest.raises(CovariatesError, match="covariate cap holds infinity"):
        instances.decode(wrong)


def test_windows_take_no_covariates() -> None:
    wrong = message()
    wrong.window.symbols.append("A")
    with pytest.raises(MalformedRequestError, match="a window cannot have covariates"):
        instances.decode(wrong)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CovariateSource:
    return source(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, files: CovariateSource) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_artifact_with(folder / "covariates" / "1", files)
    return folder


def test_a_server_answers_as_the_process_itself(models: Path, files: CovariateSource) -> None:
    asked = bars().last(200)
    with (
        Forecaster.load(models / "covariates" / "1") as forecaster,
        PredictionService.open(models) as service,
        serving(service) as served,
        QuantraClient(served.target) as client,
    ):
        info = client.model()
        assert info.covariates == forecaster.model().covariates
        sent = files.for_model(info, asked)
        ours, theirs = forecaster.predict(asked, sent), client.predict(asked, sent)
        assert np.array_equal(ours.values, theirs.values)
        assert ours.warnings == theirs.warnings
        query = ExplanationQuery(instance=Instance(input=asked, covariates=sent), targets=(TargetPoint(5, 0.5),))
        one, other = (door.explain(query).attributions[0] for door in (forecaster, client))
        assert one.row_names == other.row_names
        assert np.array_equal(one.per_row, other.per_row)
        with pytest.raises(CovariateMissingError, match="covariate rebalance is not sent") as caught:
            client.predict(asked, sent.only([name for name in sent.names if name != "rebalance"]))
        assert caught.value.metadata["covariate"] == "rebalance"
        with pytest.raises(UnknownCovariateError, match="the model does not read covariate news"):
            client.predict(asked, replace(sent, observed={**sent.observed, "news": np.zeros((3, 200))}))


def test_the_asynchronous_client_sends_covariates_too(models: Path, files: CovariateSource) -> None:
    asked = bars().last(200)

    async def ask(target: str, sent: Covariates) -> tuple[Forecast, Attribution]:
        async with AsyncQuantraClient(target) as asking:
            return await asking.predict(asked, sent), await asking.feature_importance(asked, 5, 0.5, sent)

    with (
        PredictionService.open(models) as service,
        serving(service) as served,
        QuantraClient(served.target) as client,
    ):
        sent = files.for_model(client.model(), asked)
        forecast, importance = asyncio.run(ask(served.target, sent))
        assert np.array_equal(forecast.values, client.predict(asked, sent).values)
        assert np.array_equal(importance.per_row, client.feature_importance(asked, 5, 0.5, sent).per_row)
