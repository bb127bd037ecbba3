"""SimulatePaths of a real server."""

from collections.abc import Iterator
from contextlib import closing

import grpc
import numpy as np
import pytest
from artifacts import small_artifact, small_model
from market import bokeh_panel, without_bars
from request_bytes import flat_window
from serving import Served, serving

from predictor._pb import prediction_pb2 as pb
from predictor._pb.prediction_pb2_grpc import PredictionServiceStub
from predictor.forecaster import Forecaster
from predictor.instance import Instance, PathQuery
from predictor.price_paths import PathQuestions, PricePaths
from predictor.registry import ModelVersions, Registry
from predictor.server import ServerLimits
from predictor.service import PredictionService
from predictor.wire import price_paths

BARS = bokeh_panel("AAPL", "IBM").last(900)
QUERY = PathQuery(
    instance=Instance(input=BARS),
    paths=700,
    seed=5,
    questions=PathQuestions(day=10, level=0.95, holdings={"AAPL": 800.0, "IBM": -300.0}, prices=(("AAPL", 440.0),)),
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    model = small_model(small_artifact())
    registry = Registry(models={model.identity.name: ModelVersions.of(model)}, problems=())
    with PredictionService(registry) as service, serving(service) as opened:
        yield opened


@pytest.fixture(scope="module")
def here() -> PricePaths:
    return Forecaster.of(small_model(small_artifact())).simulate(BARS, paths=700, seed=5)


def call(served: Served, request: pb.SimulatePathsRequest) -> list[pb.SimulatePathsResponse]:
    options = [("grpc.max_receive_message_length", 16 << 20)]
    with closing(grpc.insecure_channel(served.target, options=options)) as channel:
        return [*PredictionServiceStub(channel).SimulatePaths(request)]


def encoded(query: PathQuery = QUERY, *, include_paths: bool = False) -> pb.SimulatePathsRequest:
    return price_paths.encode_query(query, "small", include_paths=include_paths)


def test_the_answers_are_those_of_the_library(served: Served, here: PricePaths) -> None:
    (response,) = call(served, encoded())
    answers = here.answer(QUERY.questions)
    assert ([*response.symbols], response.day, response.days, response.paths) == (["AAPL", "IBM"], 10, 20, 700)
    assert (response.forecast_id, response.past_days) == (here.forecast_id, here.past_days)
    assert answers.value_at_risk is not None
    found = response.value_at_risk
    assert (found.value, found.lower, found.upper) == tuple(answers.value_at_risk)
    assert response.prices[0].touched.value == answers.prices[0].touched.value
    assert np.frombuffer(response.anchor_price).tolist() == here.anchor_price.tolist()


def test_the_paths_follow_in_parts_with_the_same_bits(served: Served) -> None:
    many = PathQuery(instance=QUERY.instance, paths=7000, seed=5)
    first, *parts = call(served, encoded(many, include_paths=True))
    assert not first.returns
    assert len(parts) > 1
    count = 8 * 2 * 20
    assert [part.first_path for part in parts] == [
        sum(len(part.returns) for part in parts[:k]) // count for k in range(len(parts))
    ]
    returns = np.frombuffer(b"".join(part.returns for part in parts)).reshape(7000, 2, 20)
    local = Forecaster.of(small_model(small_artifact())).simulate(BARS, paths=7000, seed=5)
    assert np.array_equal(returns, local.returns)


def test_paths_that_nobody_reads_let_other_calls_of_the_connection_go_on(served: Served) -> None:
    options = [("grpc.http2.bdp_probe", 0)]  # a small window
    many = encoded(PathQuery(instance=QUERY.instance, paths=7000), include_paths=True)
    with closing(grpc.insecure_channel(served.target, options=options)) as channel:
        stub = PredictionServiceStub(channel)
        unread = [stub.SimulatePaths(many, timeout=20) for _ in range(4)]
        for stream in unread:
            next(stream)
        asked = pb.PredictRequest(model="small", instances=[many.instance])
        assert len(stub.Predict(asked, timeout=20).results) == 1
        for stream in unread:
            stream.cancel()


def test_a_call_with_unread_paths_counts_as_a_stream() -> None:
    model = small_model(small_artifact())
    registry = Registry(models={model.identity.name: ModelVersions.of(model)}, problems=())
    many = encoded(PathQuery(instance=QUERY.instance, paths=7000), include_paths=True)
    with (
        PredictionService(registry) as service,
        serving(service, ServerLimits(streams=1)) as opened,
        closing(grpc.insecure_channel(opened.target, options=[("grpc.http2.bdp_probe", 0)])) as channel,
    ):
        stub = PredictionServiceStub(channel)
        unread = stub.SimulatePaths(many, timeout=20)
        next(unread)
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.SimulatePaths(many, timeout=20))
        assert "1 streams are open already" in str(refused.value.details())
        unread.cancel()


def test_without_questions_the_day_is_the_longest_horizon(served: Served) -> None:
    (response,) = call(served, encoded(PathQuery(instance=QUERY.instance)))
    assert (response.day, response.paths, response.HasField("value_at_risk")) == (20, 1000, False)


def test_numbers_that_a_request_leaves_out_have_their_defaults(served: Served) -> None:
    request = encoded(PathQuery(instance=QUERY.instance, questions=PathQuestions(holdings={"AAPL": 1.0})))
    (whole,) = call(served, request)
    request.ClearField("paths")
    request.ClearField("level")
    (response,) = call(served, request)
    assert (response.paths, response.value_at_risk.value) == (whole.paths, whole.value_at_risk.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (PathQuery(instance=QUERY.instance, paths=60_000), "have 2,400,000 values, at most 2,000,000"),
        (PathQuery(instance=QUERY.instance, paths=-1), "paths is -1, but must be 1 to 100,000"),
        (PathQuery(instance=QUERY.instance, seed=-1), "seed is -1, but must be 0 or more"),
        (PathQuery(instance=Instance(input=flat_window())), "paths need bars, but the input has feature windows"),
        (PathQuery(instance=QUERY.instance, questions=PathQuestions(day=21)), "day 21 is not simulated; use 1 to 20"),
        (
            PathQuery(instance=QUERY.instance, questions=PathQuestions(day=21, holdings={"IBM": 1.0})),
            "day 21 is not simulated; use 1 to 20",
        ),
        (
            PathQuery(instance=QUERY.instance, questions=PathQuestions(holdings={"X": 1.0})),
            "there are no paths of X; there are paths of AAPL, IBM",
        ),
        (
            PathQuery(instance=QUERY.instance, questions=PathQuestions(prices=(("IBM", 1.0),) * 65)),
            "SimulatePathsRequest.prices: have more than 64, at most 64 in one request",
        ),
    ],
)
def test_an_impossible_request_is_refused(served: Served, query: PathQuery, message: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(served, encoded(query))
    assert message in str(refused.value.details())


def test_a_symbol_may_not_be_held_twice(served: Served) -> None:
    request = encoded()
    request.holdings.add(symbol="IBM", value=1.0)
    with pytest.raises(grpc.RpcError) as refused:
        call(served, request)
    assert "holdings: a symbol is held twice" in str(refused.value.details())


def test_other_symbols_get_paths_beside_a_young_one(served: Served) -> None:
    bars = without_bars(BARS, "IBM", slice(-200))
    (response,) = call(served, encoded(PathQuery(instance=Instance(input=bars))))
    assert [*response.symbols] == ["AAPL"]
    assert response.refusals[0].symbol == "IBM"
    assert "give a longer history" in response.refusals[0].error.message
