"""Stale bars: their age, the allowed age, and refusals."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from artifacts import recent_bars, save_artifact, small_artifact, small_model
from serving import serving

from predictor.call_context import CallContext
from predictor.cli import app, run
from predictor.cli import server_commands as serve_command
from predictor.client import QuantraClient
from predictor.dates import to_date, to_optional_date
from predictor.errors import BarsStaleError, CalendarEndedError, ConfigurationError, InvalidInputError, QuantraError
from predictor.forecast import Forecast, TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import ExplanationQuery, FeatureWindow, Instance, limit_age
from predictor.model import Model
from predictor.registry import ModelVersions, Registry
from predictor.server import ServerSettings
from predictor.server import __main__ as plain
from predictor.service import PredictionService
from predictor.sessions import SessionCalendar
from predictor.wire import instances

NYSE = SessionCalendar.from_exchange("XNYS", 20130101, 20301231)
LAST = 20130301
"""A Friday, the last session of the bars."""
TUESDAY_NOON = datetime(2013, 3, 5, 17, tzinfo=UTC)
"""Monday's session has closed since."""
ASKED = Instance(input=recent_bars("AAPL"))


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(small_artifact())


def service_of(model: Model, *, now: datetime = TUESDAY_NOON, most: int | None = None) -> PredictionService:
    line = ModelVersions.of(model)
    return PredictionService(Registry(models={"small": line}, problems=()), clock=lambda: now, max_age_sessions=most)


def answers(service: PredictionService, *asked: Instance) -> tuple[Forecast | QuantraError, ...]:
    return service.predict("", asked, CallContext()).result(30)


# --- age


@pytest.mark.parametrize(
    ("now", "closed"),
    [
        (datetime(2024, 3, 28, 12, tzinfo=UTC), 0),
        (datetime(2024, 3, 28, 23, tzinfo=UTC), 0),
        (datetime(2024, 4, 1, 19, 59, 59, tzinfo=UTC), 0),  # Good Friday and a weekend lie between
        (datetime(2024, 4, 1, 20, tzinfo=UTC), 1),
        (datetime(2024, 4, 2, 20, tzinfo=UTC), 2),
        (datetime(2024, 4, 8, 12, tzinfo=UTC), 5),
        (datetime(2024, 3, 1, 12, tzinfo=UTC), 0),
    ],
)
def test_sessions_that_have_closed_since_are_counted_by_their_closes(now: datetime, closed: int) -> None:
    assert NYSE.closed_since(20240328, now) == closed


def test_the_count_is_that_of_every_close_that_has_passed() -> None:
    sessions = NYSE.sessions(20241101, 20250131).tolist()
    closes = [NYSE.close_instant(day) for day in sessions]
    for hours in range(0, 24 * 60, 7):
        now = datetime(2024, 11, 2, tzinfo=UTC) + timedelta(hours=hours)
        for place in (0, 10, 30):
            passed = sum(close is not None and close <= now for close in closes[place + 1 :])
            assert NYSE.closed_since(sessions[place], now) == passed


def test_without_close_times_a_session_counts_on_the_next_day_in_utc() -> None:
    weekdays = SessionCalendar.weekdays(20240101, 20241231)
    assert weekdays.closed_since(20240705, datetime(2024, 7, 8, 23, tzinfo=UTC)) == 0
    assert weekdays.closed_since(20240705, datetime(2024, 7, 9, tzinfo=UTC)) == 1
    assert weekdays.closed_since(20240706, datetime(2024, 7, 9, tzinfo=UTC)) == 1  # a Saturday is no session


def test_a_calendar_that_ends_before_today_cannot_count() -> None:
    with pytest.raises(CalendarEndedError, match="renew its calendar"):
        NYSE.closed_since(20301230, datetime(2031, 2, 3, tzinfo=UTC))
    with pytest.raises(ConfigurationError, match="without a time zone"):
        NYSE.closed_since(20240328, datetime(2024, 4, 1))  # noqa: DTZ001 - that is the fault


# --- allowed age


def test_bars_that_are_too_old_are_refused_with_their_age(model: Model) -> None:
    with service_of(model, most=0) as service:
        (error,) = answers(service, ASKED)
    assert isinstance(error, BarsStaleError)
    assert error.message.startswith(
        "the last bar is of 2013-03-01, and 1 sessions have closed since, but at most 0 may"
    )
    assert error.metadata == {"date": "2013-03-01", "have": "1", "most": "0"}


def test_bars_that_are_just_young_enough_are_answered(model: Model) -> None:
    with service_of(model, most=1) as service:
        (answer,) = answers(service, ASKED)
    assert isinstance(answer, Forecast)
    assert answer.as_of_session == to_date(LAST)


@pytest.mark.parametrize(("server", "own", "fails"), [(None, 0, True), (5, 0, True), (0, 5, True), (1, 1, False)])
def test_the_smaller_bound_holds(model: Model, server: int | None, own: int, *, fails: bool) -> None:
    with service_of(model, most=server) as service:
        (answer,) = answers(service, replace(ASKED, max_age_sessions=own))
    assert isinstance(answer, BarsStaleError) == fails


def test_old_bars_fail_alone(model: Model) -> None:
    older = Instance(input=recent_bars("AAPL").until(20130226))
    with service_of(model, most=1) as service:
        found = answers(service, ASKED, older, ASKED)
    assert [type(one) for one in found] == [Forecast, BarsStaleError, Forecast]
    assert isinstance(found[1], BarsStaleError)
    assert found[1].metadata["have"] == "4"


def test_a_call_of_its_own_thread_is_bound_too(model: Model) -> None:
    with service_of(model, most=0) as service:
        (answer,) = service.predict_inline("", [ASKED], CallContext())
    assert isinstance(answer, BarsStaleError)


def test_the_service_bounds_predictions_and_no_explanations_of_the_past(model: Model) -> None:
    with service_of(model, most=0) as service:
        query = ExplanationQuery(instance=ASKED, targets=(TargetPoint(5, 0.5),))
        assert service.explain("", query, CallContext()).result(30).attributions
        own = replace(query, instance=replace(ASKED, max_age_sessions=0))
        with pytest.raises(BarsStaleError):
            service.explain("", own, CallContext()).result(30)


def window(model: Model, as_of: int) -> Instance:
    inputs = model.pipeline.latest_window(model.pipeline.encode_latest(recent_bars("AAPL")))
    groups = {name: group.numpy() for name, group in inputs._asdict().items()}
    groups |= {name: groups[name][:, 0].copy() for name in ("location", "scale")}
    hash_ = model.pipeline.features.schema_hash
    return Instance(
        input=FeatureWindow(symbols=("AAPL",), schema_hash=hash_, as_of_session=to_optional_date(as_of), **groups)
    )


def test_windows_are_as_old_as_their_session_and_refused_without_one(model: Model) -> None:
    with service_of(model, most=1) as service:
        young, old, unknown = answers(service, window(model, LAST), window(model, 20130227), window(model, 0))
    assert isinstance(young, Forecast)
    assert isinstance(old, BarsStaleError)
    assert isinstance(unknown, BarsStaleError)
    assert "age is unknown" in unknown.message


def test_an_age_below_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="max_age_sessions is -1"):
        replace(ASKED, max_age_sessions=-1)
    with pytest.raises(ConfigurationError, match="max_age_sessions is -1"):
        ServerSettings(models=tmp_path, max_age_sessions=-1)


def test_a_bound_from_outside_never_widens_an_instances_own() -> None:
    assert [limit_age(replace(ASKED, max_age_sessions=own), 3).max_age_sessions for own in (None, 1, 3, 9)] == [
        3,
        1,
        3,
        3,
    ]


# --- at every interface


@pytest.mark.parametrize("age", [None, 0, 3])
def test_the_bound_travels_with_bars_and_windows(model: Model, age: int | None) -> None:
    for asked in (ASKED, window(model, LAST)):
        sent = instances.encode(replace(asked, max_age_sessions=age)).SerializeToString()
        message = type(instances.encode(asked)).FromString(sent)
        assert instances.decode(message).max_age_sessions == age


def test_the_error_is_the_same_in_process_and_over_the_network(model: Model) -> None:
    with service_of(model, most=0) as service, serving(service) as served, QuantraClient(served.target) as client:
        (here,) = answers(service, ASKED)
        with pytest.raises(BarsStaleError) as there:
            client.predict(ASKED)
    assert isinstance(here, BarsStaleError)
    assert (there.value.message, there.value.metadata) == (here.message, here.metadata)


def test_a_forecaster_looks_at_the_age_too(tmp_path: Path) -> None:
    stored = save_artifact(tmp_path / "small" / "1", small_artifact())
    with Forecaster.load(stored, "cpu") as forecaster:
        assert forecaster.predict(ASKED).as_of_session == to_date(LAST)
        with pytest.raises(CalendarEndedError):  # it ended years ago, so ages cannot be counted
            forecaster.predict(replace(ASKED, max_age_sessions=9))


def test_predict_on_the_command_line_looks_at_the_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = save_artifact(tmp_path / "small" / "1", small_artifact())
    recent_bars("AAPL").write_csv(tmp_path / "bars.csv")
    asked = ["predict", "--artifact", str(stored), "--bars", str(tmp_path / "bars.csv")]
    with pytest.raises(SystemExit) as ended:
        run(app, [*asked, "--max-age", "3"])
    assert ended.value.code == 1
    assert "train the model again (quantra train stock) to renew its calendar" in capsys.readouterr().err


@pytest.mark.parametrize("given", [None, 3])
def test_serve_hands_the_bound_to_the_server(
    given: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int | None] = []

    def served(settings: ServerSettings, *_: object) -> int:
        seen.append(settings.max_age_sessions)
        return 0

    monkeypatch.setattr(serve_command, "serve_models", served)
    monkeypatch.setattr(plain, "serve", served)
    flags = ["--models", str(tmp_path), *([] if given is None else ["--max-age", str(given)])]
    with pytest.raises(SystemExit):
        run(app, ["serve", *flags])
    plain.main(flags)
    assert seen == [given, given]
