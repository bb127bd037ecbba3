"""Large panels through both clients: trimmed to the last bars, split into several calls, same results as one call."""

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import UNIVERSE, save_small_artifact, small_models
from canned_service import CannedService, forecast_of
from covariate_files import bars as covariate_bars
from covariate_files import save_artifact_with, source
from serving import serving
from universes import (
    NEEDED,
    AsyncRecordingInterceptor,
    RecordingInterceptor,
    SentCall,
    VersionSwitchingService,
    raw,
    two_versions,
    universe,
    with_events,
    with_holes,
    without_bars,
)

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.call_context import NEVER, CallContext
from predictor.calls import PredictionCalls
from predictor.cli import app, run
from predictor.client import AsyncQuantraClient, QuantraClient
from predictor.client import calls as client_calls
from predictor.client.panel_calls import InstanceSizes
from predictor.covariates import Covariates
from predictor.errors import (
    BarsError,
    CallCancelledError,
    DeadlineExceededError,
    MalformedRequestError,
    NoUsableSymbolError,
    QuantraError,
    QueueFullError,
    RequestTooLargeError,
    TooFewBarsError,
)
from predictor.forecast import Attribution, Forecast, TargetPoint, require_forecast
from predictor.forecaster import Forecaster
from predictor.global_importance import GlobalExplanationQuery
from predictor.instance import ExplanationQuery, GapPolicy, Instance, InstanceLike
from predictor.limits import QueueLimits, ServiceLimits
from predictor.server import ServerLimits
from predictor.service import PredictionService
from predictor.wire import instances, models
from predictor.wire.limits import RequestLimits

TIGHT = ServerLimits(receive_bytes=60_000)
"""Request limit for seven symbols of a small model, and room for one more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = small_models(tmp_path_factory.mktemp("models"))
    save_small_artifact(made / "graph" / "1", "graph")
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[PredictionService]:
    with PredictionService.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def forecaster(folder: Path) -> Iterator[Forecaster]:
    with Forecaster.load(folder / "small" / "1") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def default_server(service: PredictionService) -> Iterator[str]:
    """A server with the default limits."""
    with serving(service) as served:
        yield served.target


@pytest.fixture(scope="module")
def limited_server(service: PredictionService) -> Iterator[str]:
    """A server with a small request limit."""
    with serving(service, TIGHT) as served:
        yield served.target


def asking(target: str, model: str = "small") -> tuple[QuantraClient, RecordingInterceptor]:
    noting = RecordingInterceptor()
    return QuantraClient(target, model, channel=noting.channel(target)), noting


def assert_same(ours: Forecast | Attribution, theirs: Forecast | Attribution, *but: str) -> None:
    """Assert bit-for-bit equality, except for these fields and those that a bare artifact lacks."""
    for one in dataclasses.fields(ours):
        left, right = getattr(ours, one.name), getattr(theirs, one.name)
        if one.name in {"model", "version", *but}:
            continue
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, one.name
            assert left.tobytes() == right.tobytes(), one.name
        elif one.name == "refusals":
            assert refusal_facts(left) == refusal_facts(right)
        else:
            assert left == right, one.name


def refusal_facts(refusals: dict[str, QuantraError]) -> dict[str, tuple[type[QuantraError], str]]:
    return {symbol: (type(error), error.message) for symbol, error in refusals.items()}


def full_forecast(forecaster: Forecaster, question: BarPanel | Instance) -> Forecast:
    """The forecast from all bars, without trimming."""
    return forecaster.predict(question)


# --- the last bars

PANELS = {
    "adjusted closes": universe(6),
    "splits and dividends": with_events(universe(6)),
    "no adjustment": raw(universe(6)),
    "holes": with_holes(universe(6)),
    "holes and events": with_events(with_holes(universe(6))),
    "one symbol": universe(1, 3000),
    "one bar more than is read": universe(6, NEEDED + 1),
    "as many bars as are read": universe(6, NEEDED),
    "fewer bars than are read": universe(6, NEEDED - 20),
}


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS.keys())
def test_the_last_bars_alone_are_sent_and_the_forecast_is_that_of_all(
    default_server: str, forecaster: Forecaster, panel: BarPanel
) -> None:
    client, noting = asking(default_server)
    assert_same(client.predict(panel), full_forecast(forecaster, panel))
    assert noting.names == ["GetModel", "Predict"]
    assert noting.predictions[0].sessions == {min(NEEDED, len(panel.sessions))}


@pytest.mark.parametrize("policy", [GapPolicy.MASK, GapPolicy.IGNORE])
def test_sessions_that_all_bars_lack_count_as_in_the_whole_panel(
    default_server: str, forecaster: Forecaster, policy: GapPolicy
) -> None:
    gaps = universe(6).sessions[[-200, -NEEDED - 1, -NEEDED, -NEEDED + 1, -80, -20]]
    panel = without_sessions(universe(6), *gaps.tolist())
    asked = Instance(input=panel, gap_policy=policy)
    client, noting = asking(default_server)
    assert_same(client.predict(asked), full_forecast(forecaster, asked))
    assert noting.predictions[0].sessions == {NEEDED}


def without_sessions(panel: BarPanel, *sessions: int) -> BarPanel:
    kept = ~np.isin(panel.sessions, sessions)
    columns = {name: getattr(panel, name)[:, kept] for name in panel.columns}
    return replace(panel, sessions=panel.sessions[kept], **columns)


def test_one_bar_less_would_be_another_forecast(forecaster: Forecaster) -> None:
    panel = universe(6)
    assert_same(forecaster.predict(panel.last(NEEDED)), full_forecast(forecaster, panel))
    assert forecaster.predict(panel.last(NEEDED - 1)).forecast_id != full_forecast(forecaster, panel).forecast_id


def test_a_small_request_goes_as_it_is_and_asks_for_nothing_before(default_server: str) -> None:
    client, noting = asking(default_server)
    client.predict(universe(1, 300))
    assert noting.names == ["Predict"]
    assert noting.predictions[0].sessions == {300}


def test_what_a_model_reads_is_learnt_once(default_server: str) -> None:
    client, noting = asking(default_server)
    for _ in range(2):
        client.predict(universe(6))
        client.feature_importance(universe(6).rows([0, 1]))
    assert noting.names == ["GetModel", "Predict", "Explain", "Predict", "Explain"]


def test_reasons_of_the_last_bars_are_those_of_all(default_server: str, forecaster: Forecaster) -> None:
    panel = with_events(universe(6))
    client, noting = asking(default_server)
    query = ExplanationQuery(instance=Instance(input=panel), targets=(TargetPoint(5, 0.9),), symbols=("S0003", "S0000"))
    for ours, theirs in zip(client.explain(query).attributions, forecaster.explain(query).attributions, strict=True):
        assert_same(ours, theirs)
    assert noting.names == ["GetModel", "Explain"]
    assert len(noting.calls[1].request.instance.bars.session_yyyymmdd) == NEEDED


def test_reasons_in_general_are_of_the_last_bars_too(default_server: str, forecaster: Forecaster) -> None:
    query = GlobalExplanationQuery(
        instances=(Instance(input=universe(3)), Instance(input=with_events(universe(4)))),
        targets=(TargetPoint(5, 0.5),),
    )
    client, noting = asking(default_server)
    ours, theirs = list(client.explain_global(query)), list(forecaster.explain_global(query))
    assert [one.targets[0].mean_size.tobytes() for one in ours] == [
        one.targets[0].mean_size.tobytes() for one in theirs
    ]
    assert noting.names == ["GetModel", "ExplainGlobal"]
    assert noting.calls[1].sessions == {NEEDED}
    assert noting.calls[1].request.model == "small@1"


@pytest.fixture(scope="module")
def covariate_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads covariates."""
    made = tmp_path_factory.mktemp("covariates")
    save_artifact_with(made / "covariates" / "1", source(made))
    return made


def test_covariates_are_cut_with_the_bars(covariate_model: Path) -> None:
    panel = covariate_bars()
    with (
        PredictionService.open(covariate_model) as opened,
        serving(opened, ServerLimits(receive_bytes=40_000)) as served,
    ):
        sent = source(covariate_model).for_model(opened.model(""), panel)
        asked = Instance(input=panel, covariates=sent)
        with Forecaster.load(covariate_model / "covariates" / "1") as forecaster:
            theirs = full_forecast(forecaster, asked)
        client, noting = asking(served.target, "covariates")
        assert_same(client.predict(asked), theirs)
        assert noting.predictions[0].sessions == {opened.model("").bars_needed}


def test_covariates_that_do_not_fit_the_bars_are_refused_and_not_made_to_fit(default_server: str) -> None:
    panel = universe(6)
    wrong = Covariates(observed={"spread": np.zeros((6, 399))})
    client, noting = asking(default_server)
    with pytest.raises(MalformedRequestError, match="spread"):
        client.predict(Instance(input=panel, covariates=wrong))
    assert noting.predictions[0].sessions == {400}


# --- several calls


def test_a_panel_that_is_too_large_goes_in_several_calls_in_its_order(
    limited_server: str, forecaster: Forecaster
) -> None:
    panel = with_holes(universe(35))
    client, noting = asking(limited_server)
    ours, theirs = client.predict(panel), full_forecast(forecaster, panel)
    assert_same(ours, theirs, "values", "returns", "prices", "warnings", "forecast_id")
    assert [len(call.symbols) for call in noting.predictions] == [7, 7, 7, 7, 7]
    assert [symbol for call in noting.predictions for symbol in call.symbols] == list(panel.symbols)
    assert all(call.request.ByteSize() <= TIGHT.receive_bytes for call in noting.predictions)


def test_values_of_parts_are_those_of_one_call_and_of_each_symbol(limited_server: str, forecaster: Forecaster) -> None:
    panel = with_holes(universe(35))
    with QuantraClient(limited_server, "small") as client:
        ours = client.predict(panel)
    theirs = full_forecast(forecaster, panel)
    for name in ("values", "returns", "prices"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-7)
    alone = np.concatenate([full_forecast(forecaster, part).values for part in parts_of(limited_server, panel)])
    assert ours.values.tobytes() == alone.tobytes()


def parts_of(target: str, panel: BarPanel) -> list[BarPanel]:
    """Parts into which a panel is split for this server."""
    client, noting = asking(target)
    client.predict(panel)
    return [panel.select(call.symbols) for call in noting.predictions]


def test_the_id_of_parts_is_a_hash_of_their_own(limited_server: str, forecaster: Forecaster) -> None:
    panel = universe(25)
    ids = [full_forecast(forecaster, part).forecast_id for part in parts_of(limited_server, panel)]
    with QuantraClient(limited_server, "small") as client:
        assert client.predict(panel).forecast_id == hashlib.sha256("|".join(ids).encode()).hexdigest()[:16]


def test_parts_end_where_forward_passes_do_so_that_the_numbers_are_those_of_one_call(
    service: PredictionService, forecaster: Forecaster
) -> None:
    panel = universe(600, NEEDED)
    with serving(service, ServerLimits(receive_bytes=2_500_000)) as served:
        client, noting = asking(served.target)
        ours = client.predict(panel)
    assert [len(call.symbols) for call in noting.predictions] == [256, 344]
    assert_same(ours, full_forecast(forecaster, panel), "forecast_id", "warnings")


def test_covariates_are_split_with_the_bars(covariate_model: Path) -> None:
    panel = covariate_bars()
    with PredictionService.open(covariate_model) as opened:
        asked = Instance(input=panel, covariates=source(covariate_model).for_model(opened.model(""), panel))
        count = opened.model("").bars_needed
        size = InstanceSizes.of(replace(asked, input=panel.last(count), covariates=asked.covariates.last(count))).total
        with serving(opened, ServerLimits(receive_bytes=size - 2000)) as served:
            client, noting = asking(served.target, "covariates")
            ours = client.predict(asked)
        parts = [opened.predict_inline("", [part], NEVER)[0] for part in (rows_of(asked, 0, 1), rows_of(asked, 2))]
    assert [call.symbols for call in noting.predictions] == [["AAPL", "GOOG"], ["IBM"]]
    theirs = np.concatenate([part.values for part in parts if isinstance(part, Forecast)])
    assert ours.values.tobytes() == theirs.tobytes()


def rows_of(asked: Instance, *rows: int) -> Instance:
    assert isinstance(asked.input, BarPanel)
    return replace(asked, input=asked.input.rows(rows), covariates=asked.covariates.rows(rows))


def test_many_panels_go_in_as_many_calls_as_they_need(limited_server: str, forecaster: Forecaster) -> None:
    panels: list[InstanceLike] = [universe(7), Instance(input=universe(4), request_id="b"), universe(25), universe(3)]
    client, noting = asking(limited_server)
    outcomes = client.predict_many(panels)
    theirs = forecaster.predict_many([one for one in panels if isinstance(one, BarPanel | Instance)])
    for ours, other in zip(outcomes, theirs, strict=True):
        assert isinstance(ours, Forecast)
        assert isinstance(other, Forecast)
        assert ours.symbols == other.symbols
        np.testing.assert_allclose(ours.values, other.values, rtol=1e-5, atol=1e-7)
    assert [[len(panel.symbols) for panel in call.panels] for call in noting.predictions] == [
        [7],
        [4],
        [7],
        [7],
        [7],
        [4, 3],
    ]


def test_a_part_without_forecasts_gives_the_reason_per_symbol(limited_server: str, forecaster: Forecaster) -> None:
    panel = universe(35)
    for row in range(8, 24):
        panel = without_bars(panel, row, slice(-1, None) if row % 2 else slice(-80, -2))
    client, noting = asking(limited_server)
    ours, theirs = client.predict(panel), full_forecast(forecaster, panel)
    assert refusal_facts(dict(ours.refusals)) == refusal_facts(dict(theirs.refusals))
    assert list(ours.refusals) == list(theirs.refusals)
    assert ours.symbols == theirs.symbols
    assert np.isnan(ours.values).tobytes() == np.isnan(theirs.values).tobytes()
    assert any(set(call.symbols) <= {*theirs.refusals, "S0000"} for call in noting.predictions)


@pytest.mark.parametrize(("when", "kind"), [(slice(-1, None), NoUsableSymbolError), (slice(-60, -10), TooFewBarsError)])
def test_a_panel_without_any_forecast_is_refused(limited_server: str, when: slice, kind: type[QuantraError]) -> None:
    panel = universe(25)
    for row in range(25):
        panel = without_bars(panel, row, when)
    with (
        QuantraClient(limited_server, "small") as client,
        pytest.raises(kind, match=r"S0000: has no bar|S0000: have 10 bars"),
    ):
        client.predict(panel)


def test_a_model_that_looks_across_symbols_says_what_is_too_large_and_what_to_do(limited_server: str) -> None:
    client, noting = asking(limited_server, "graph")
    with pytest.raises(RequestTooLargeError) as refused:
        client.predict(universe(25))
    assert "25 symbols of 140 sessions take up to" in refused.value.message
    assert "a request may have 60000 bytes and 10000 symbols" in refused.value.message
    assert "graph@1 looks across the symbols of a panel, which therefore cannot be split; send fewer symbols" in (
        refused.value.message
    )
    assert noting.names == ["GetModel"]


def test_a_panel_too_large_for_a_model_that_looks_across_symbols_leaves_others_their_forecasts(
    limited_server: str,
) -> None:
    with QuantraClient(limited_server, "graph") as client:
        small, large = client.predict_many([named_for_graph(), universe(25)])
    assert isinstance(small, Forecast)
    assert isinstance(large, RequestTooLargeError)


def named_for_graph() -> BarPanel:
    return replace(universe(4), symbols=UNIVERSE)


def test_the_last_bars_are_enough_for_a_model_that_looks_across_symbols(default_server: str, folder: Path) -> None:
    with Forecaster.load(folder / "graph" / "1") as graph:
        theirs = full_forecast(graph, named_for_graph())
    with QuantraClient(default_server, "graph") as client:
        assert_same(client.predict(named_for_graph()), theirs)


def test_reasons_that_do_not_fit_into_a_call_say_so(limited_server: str) -> None:
    client, noting = asking(limited_server)
    with pytest.raises(RequestTooLargeError, match="an explanation cannot be split; send fewer symbols"):
        client.feature_importance(universe(25))
    assert noting.names == ["GetModel"]


def test_sessions_that_fit_into_no_call_say_so(service: PredictionService) -> None:
    with (
        serving(service, ServerLimits(receive_bytes=10_000)) as served,
        QuantraClient(served.target, "small") as client,
        pytest.raises(RequestTooLargeError, match="not even two symbols fit into one call; send fewer sessions"),
    ):
        client.predict(universe(6))


# --- time and failures


class Clock:
    """The client's clock, advanced by the test."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(client_calls, "time", made)
    return made


def test_all_calls_have_one_deadline(limited_server: str, clock: Clock) -> None:
    client, noting = asking(limited_server)

    def pass_time(_: SentCall) -> None:
        clock.now_s += 7

    noting.before = pass_time
    client.predict(universe(25), timeout_s=60)
    assert [call.timeout_s for call in noting.calls] == [60, 53, 46, 39, 32]


def test_all_calls_of_the_asynchronous_client_have_one_deadline(limited_server: str, clock: Clock) -> None:
    noting = RecordingInterceptor()

    def pass_time(_: SentCall) -> None:
        clock.now_s += 7

    async def ask() -> None:
        channel = AsyncRecordingInterceptor(noting).channel(limited_server)
        async with AsyncQuantraClient(limited_server, "small", channel=channel) as client:
            await client.predict(universe(25), timeout_s=60)
        await channel.close()

    noting.before = pass_time
    asyncio.run(ask())
    assert [call.timeout_s for call in noting.calls] == [60, 53, 46, 39, 32]


def test_time_that_is_over_between_two_calls_names_who_is_left_and_asks_no_more(
    limited_server: str, clock: Clock
) -> None:
    client, noting = asking(limited_server)

    def pass_time(_: SentCall) -> None:
        clock.now_s += 10

    noting.before = pass_time
    with pytest.raises(DeadlineExceededError) as late:
        client.predict(universe(25), timeout_s=20)
    assert noting.names == ["GetModel", "Predict"]
    assert "within 20 s" in late.value.message
    assert late.value.metadata["first_symbol"] == "S0007"


def test_a_failing_part_names_its_symbols_and_ends_all(limited_server: str) -> None:
    client, noting = asking(limited_server)

    def break_second(call: SentCall) -> None:
        if len(noting.predictions) == 2:
            call.request.model = "nobody"

    noting.before = break_second
    with pytest.raises(QuantraError, match="in the part with S0007") as failure:
        client.predict(universe(35))
    assert "there is no model" in failure.value.message
    assert failure.value.metadata["first_symbol"] == "S0007"
    assert len(noting.predictions) == 2


def test_a_panel_that_the_model_refuses_is_refused_with_the_part_named(limited_server: str) -> None:
    panel = replace(universe(25), calendar="XLON")
    with QuantraClient(limited_server, "small") as client, pytest.raises(BarsError, match=r"S0000.*'XLON'.*'XNYS'"):
        client.predict(panel)


def held_service() -> CannedService:
    service = CannedService(forecast_of)
    service.predictions_released.clear()
    return service


def test_a_task_that_is_cancelled_cancels_its_call_and_makes_no_more() -> None:
    service = held_service()

    async def ask(target: str) -> None:
        async with AsyncQuantraClient(target) as client:
            waiting = asyncio.create_task(client.predict(universe(60)))
            await asyncio.to_thread(service.begun.wait)
            waiting.cancel()
            await waiting

    with serving(service, TIGHT) as held:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(ask(held.target))
        assert service.is_cancelled_soon()
        service.predictions_released.set()
        service.settle()
    assert len(service.contexts) == 1


def test_a_client_that_is_closed_cancels_all_parts() -> None:
    service = held_service()

    async def ask(target: str) -> None:
        client = AsyncQuantraClient(target)
        waiting = asyncio.create_task(client.predict(universe(60)))
        await asyncio.to_thread(service.begun.wait)
        await client.close()
        await waiting

    with serving(service, TIGHT) as held:
        with pytest.raises(CallCancelledError, match="in the part with S0000"):
            asyncio.run(ask(held.target))
        service.predictions_released.set()
        service.settle()
    assert len(service.contexts) == 1


def test_a_full_queue_stays_what_it_is() -> None:
    with serving(CannedService(lambda _: QueueFullError("no room", metadata={"retry_after_ms": "70"})), TIGHT) as full:
        client, _ = asking(full.target, "canned")
        with pytest.raises(QueueFullError) as refused:
            client.predict(universe(60))
    assert refused.value.retry_after_s == 0.07
    assert refused.value.metadata["first_symbol"] == "S0000"


def test_the_asynchronous_client_gives_the_same(limited_server: str) -> None:
    async def ask() -> tuple[Forecast, Attribution]:
        async with AsyncQuantraClient(limited_server, "small") as client:
            return await client.predict(universe(35)), await client.feature_importance(universe(6))

    forecast, reasons = asyncio.run(ask())
    with QuantraClient(limited_server, "small") as client:
        assert_same(forecast, client.predict(universe(35)))
        assert_same(reasons, client.feature_importance(universe(6)))


# --- the command line


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bars of thirty symbols."""
    path = tmp_path_factory.mktemp("bars") / "universe.csv"
    universe(30).write_csv(path)
    return path


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Parsed JSON output of a successful command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(app, [*map(str, arguments), "--json"])
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)


def test_the_command_line_forecasts_a_universe_by_a_server_and_in_its_own_process(
    limited_server: str, folder: Path, forecaster: Forecaster, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = full_forecast(forecaster, BarPanel.read(file))
    by_server = json_of(capsys, "predict", "--server", limited_server, "--model", "small", "--bars", file)
    by_artifact = json_of(capsys, "predict", "--artifact", folder / "small" / "1", "--bars", file)
    assert by_artifact["values"] == theirs.values.tolist()
    assert by_artifact["forecast_id"] == theirs.forecast_id
    assert by_server["symbols"] == list(theirs.symbols)
    np.testing.assert_allclose(by_server["values"], theirs.values, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_the_command_line_reads_as_few_bars_as_it_is_told(
    command: str, default_server: str, forecaster: Forecaster, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (command, "--server", default_server, "--model", "small", "--bars", file, "--symbol", "S0001")
    few = BarPanel.read(file).select(["S0001"]).last(100)
    found = json_of(capsys, *asked, "--last", 100)
    if command == "predict":
        assert found["values"] == full_forecast(forecaster, few).values.tolist()
        assert "from fewer than the 140 bars" in found["warnings"][0]
    else:
        reasons = found["attributions"][0]
        assert reasons["per_row"] == forecaster.feature_importance(few, 5, 0.5).per_row.tolist()


# --- another version


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictionService]:
    """Version 1 reads 140 bars, version 2 reads 180."""
    with PredictionService.open(two_versions(tmp_path_factory.mktemp("versions"))) as opened:
        yield opened


def in_process(service: PredictionService, version: int, panel: BarPanel) -> Forecast:
    return require_forecast(service.predict_inline(f"small@{version}", [Instance(input=panel)], NEVER)[0])


def test_a_version_that_reads_more_is_asked_again_with_more(versions: PredictionService) -> None:
    panel = universe(6)
    with serving(VersionSwitchingService(versions, 1, 2)) as served:
        client, noting = asking(served.target)
        assert_same(client.predict(panel), in_process(versions, 1, panel))
        assert_same(client.predict(panel), in_process(versions, 2, panel))
        assert_same(client.predict(panel), in_process(versions, 2, panel))
    assert noting.names == ["GetModel", "Predict", "Predict", "GetModel", "Predict", "Predict"]
    assert [call.sessions for call in noting.predictions] == [{140}, {140}, {180}, {180}]


def test_a_version_that_reads_less_is_answered_at_once(versions: PredictionService) -> None:
    panel = universe(6)
    with serving(VersionSwitchingService(versions, 2, 1)) as served:
        client, noting = asking(served.target)
        client.predict(panel)
        for _ in range(2):
            assert_same(client.predict(panel), in_process(versions, 1, panel))
    assert noting.names == ["GetModel", "Predict", "Predict", "GetModel", "Predict"]
    assert [call.sessions for call in noting.predictions] == [{180}, {180}, {140}]


def test_parts_are_all_of_one_version(versions: PredictionService) -> None:
    panel = universe(25)
    with serving(VersionSwitchingService(versions, 1, 1, 2), TIGHT) as served:
        client, noting = asking(served.target)
        ours = client.predict(panel)
    theirs = in_process(versions, 2, panel)
    assert (ours.version, ours.weights_hash) == (2, theirs.weights_hash)
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-5, atol=1e-7)
    again = noting.calls[noting.names.index("GetModel", 1) + 1 :]
    assert [symbol for call in again for symbol in call.symbols] == list(panel.symbols)


def test_a_refusal_that_another_version_would_not_give_is_not_believed(versions: PredictionService) -> None:
    panel = universe(6)
    for row in range(6):
        panel = without_bars(panel, row, slice(-37, -2))
    with pytest.raises(TooFewBarsError, match="in the last 60 sessions, need 30"):
        in_process(versions, 1, panel)
    with serving(VersionSwitchingService(versions, 1, 2)) as served:
        client, noting = asking(served.target)
        assert_same(client.predict(panel), in_process(versions, 2, panel))
    assert noting.names == ["GetModel", "Predict", "GetModel", "Predict"]


def test_reasons_of_a_version_that_reads_more_are_asked_again_with_more(versions: PredictionService) -> None:
    query = ExplanationQuery(instance=Instance(input=universe(6)), targets=(TargetPoint(5, 0.5),))
    with serving(VersionSwitchingService(versions, 1, 2)) as served:
        client, noting = asking(served.target)
        assert client.explain(query).attributions[0].version == 1
        ours = client.explain(query).attributions[0]
    theirs = versions.explain("small@2", query, CallContext()).result().attributions[0]
    assert_same(ours, theirs)
    assert noting.names == ["GetModel", "Explain", "Explain", "GetModel", "Explain"]


def test_a_version_that_is_never_the_one_told_is_sent_all_bars(versions: PredictionService) -> None:
    panel = universe(6)
    with serving(VersionSwitchingService(versions, 2, told=1)) as served:
        client, noting = asking(served.target)
        assert_same(client.predict(panel), in_process(versions, 2, panel))
    assert [call.sessions for call in noting.predictions] == [{140}, {140}, {140}, {400}]


# --- server metadata


def test_a_server_reports_its_request_limits(service: PredictionService) -> None:
    calls = PredictionCalls(service, ServiceLimits(), max_bytes=1234)
    asked = pb.GetModelRequest(model="small").SerializeToString()
    answer = pb.GetModelResponse.FromString(calls.handle("GetModel", asked, CallContext()).result())
    assert models.decode_limits(answer.limits) == RequestLimits(size=1234)
    calls.close()


def test_a_door_that_takes_any_request_tells_where_requests_wait(service: PredictionService) -> None:
    limits = ServiceLimits(uncounted=QueueLimits(size=5000), predictions=QueueLimits(rows=7))
    calls = PredictionCalls(service, limits)
    asked = pb.GetModelRequest(model="small").SerializeToString()
    answer = pb.GetModelResponse.FromString(calls.handle("GetModel", asked, CallContext()).result())
    assert models.decode_limits(answer.limits) == RequestLimits(size=5000, rows=7)
    calls.close()


def test_a_server_without_limits_gets_the_default_ones() -> None:
    assert models.decode_limits(pb.RequestLimits()) == RequestLimits()


@pytest.mark.parametrize("panel", [universe(3, NEEDED), with_events(universe(9)), universe(1)])
def test_sizes_are_bounds_and_near(panel: BarPanel) -> None:
    asked = Instance(input=panel, request_id="ä" * 20)
    true, bound = instances.encode(asked).ByteSize(), InstanceSizes.of(asked).total
    assert true <= bound <= true + 1500
