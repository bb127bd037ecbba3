"""Conversion of a ledger's forecasts, evidence and events."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from predictor._pb import ledger_pb2 as pb
from predictor.dates import DateLike, is_valid_date, parse_date_number
from predictor.errors import MalformedRequestError
from predictor.evidence import Lamp
from predictor.ledger import (
    EvidenceRecord,
    ForecastFilter,
    ForecastRecord,
    ForecastRole,
    LabelStatus,
    LedgerRow,
    RecordedForecast,
    RecordedOutcome,
)
from predictor.ledger.ledger import list_forecast_columns
from predictor.model_health import ModelVersion, choose_worst_lamp
from predictor.wire import arrays
from predictor.wire.limits import check_text

_ROLES: Final[Mapping[ForecastRole, pb.ForecastRole]] = {
    ForecastRole.CHAMPION: pb.FORECAST_ROLE_CHAMPION,
    ForecastRole.CHALLENGER: pb.FORECAST_ROLE_CHALLENGER,
    ForecastRole.BASELINE: pb.FORECAST_ROLE_BASELINE,
    ForecastRole.CLIENT: pb.FORECAST_ROLE_CLIENT,
}
_ROLES_BY_NUMBER: Final[Mapping[int, ForecastRole]] = {number: role for role, number in _ROLES.items()}
_STATUSES: Final[Mapping[LabelStatus, pb.OutcomeStatus]] = {
    LabelStatus.SCORED: pb.OUTCOME_STATUS_SCORED,
    LabelStatus.UNSCORABLE: pb.OUTCOME_STATUS_UNSCORABLE,
}
_LAMPS: Final[Mapping[Lamp, pb.Lamp]] = {
    Lamp.LEARNING: pb.LAMP_LEARNING,
    Lamp.GREEN: pb.LAMP_GREEN,
    Lamp.AMBER: pb.LAMP_AMBER,
    Lamp.RED: pb.LAMP_RED,
}
_REFERENCE: Final = re.compile(r"([^@]+)(?:@([1-9][0-9]{0,8}))?")


def decode_filter(request: pb.ListForecastsRequest) -> ForecastFilter:
    """Decode which forecasts to list.

    Raises:
        MalformedRequestError: the model is not NAME or NAME@VERSION, a session is not a date, the first one is after
            the last one, a role is unknown, or `newest` is negative.
        RequestTooLargeError: the model's name is too long.
    """
    first = decode_session("first_session", request.first_session)
    last = decode_session("last_session", request.last_session)
    if last and first > last:
        raise _make_malformed_field_error("first_session", f"{first} is after last_session {last}; exchange them")
    unknown = [role for role in request.roles if role not in _ROLES_BY_NUMBER]
    if unknown:
        raise _make_malformed_field_error("roles", f"{unknown[0]} is not a role of a forecast; send none for all roles")
    if request.newest < 0:
        raise _make_malformed_field_error(
            "newest", f"{request.newest} is negative; send a number of forecasts, or 0 for all"
        )
    model, version = decode_reference(request.model)
    return ForecastFilter(
        model=model,
        version=version,
        symbol=request.symbol,
        first_session=first,
        last_session=last,
        roles=tuple(_ROLES_BY_NUMBER[role] for role in request.roles),
        newest=request.newest,
    )


def request_forecasts(model: str, symbol: str, since: DateLike, newest: int) -> pb.ListForecastsRequest:
    """A request for the forecasts of a model and symbol; empty fields do not restrict."""
    first = parse_date_number(since) if since else 0
    return pb.ListForecastsRequest(model=model, symbol=symbol, first_session=first, newest=newest)


def decode_reference(reference: str) -> tuple[str, int]:
    """Split NAME or NAME@VERSION; the version is 0 without @VERSION, and an empty reference means all models.

    Raises:
        MalformedRequestError: the reference has another form.
        RequestTooLargeError: it is too long.
    """
    check_text("model", reference)
    if not reference:
        return "", 0
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise _make_malformed_field_error(
            "model", f"{reference!r} is not NAME or NAME@VERSION with a number, such as mine@2"
        )
    return match[1], int(match[2] or 0)


def decode_session(field: str, day: int) -> int:
    """Check an optional session, 0 or yyyymmdd; raises MalformedRequestError."""
    if day and not is_valid_date(day):
        raise _make_malformed_field_error(field, f"{day} is not a date; send yyyymmdd, or 0 for any")
    return day


def _make_malformed_field_error(field: str, problem: str) -> MalformedRequestError:
    return MalformedRequestError(f"{field}: {problem}", metadata={"field": field})


def encode_forecast(recorded: RecordedForecast) -> pb.RecordedForecast:
    """Encode a forecast with its outcomes."""
    forecast = recorded.forecast
    return pb.RecordedForecast(
        forecast_id=forecast.forecast_id,
        symbol=forecast.symbol,
        role=_ROLES[forecast.role],
        model=forecast.model,
        version=forecast.version,
        weights_hash=forecast.weights_hash,
        as_of_session=forecast.as_of,
        base_session=forecast.base_session,
        target_kind=forecast.target_kind,
        horizons=forecast.horizons,
        target_sessions=forecast.target_sessions,
        quantiles=forecast.quantiles,
        values=arrays.encode_float64(forecast.values),
        anchor_price=forecast.anchor,
        is_prospective=forecast.is_prospective,
        made_at_ns=forecast.made_at,
        outcomes=map(_encode_outcome, recorded.outcomes),
    )


def _encode_outcome(outcome: RecordedOutcome) -> pb.RecordedOutcome:
    label, score = outcome
    message = pb.RecordedOutcome(
        horizon=label.horizon,
        session=label.session,
        revision=label.revision,
        status=_STATUSES[label.status],
        value=label.value,
        reason=label.reason,
    )
    if score is not None:
        message.pinball, message.is_inside, message.level = score.pinball, score.is_inside, score.pit
    return message


def decode_forecasts(messages: Sequence[pb.RecordedForecast]) -> dict[str, list[object]]:
    """Decode forecasts to columns: one row per forecast and horizon, with its newest outcome.

    Raises:
        MalformedRequestError: the values of a forecast have another length than its horizons and quantiles say, or its
            role is unknown.
    """
    columns = list_forecast_columns([_decode_forecast(message) for message in messages])
    del columns["forecast"]  # its number is known only to the ledger
    newest = {(k, outcome.horizon): outcome for k, message in enumerate(messages) for outcome in message.outcomes}
    rows = [newest.get((k, horizon)) for k, message in enumerate(messages) for horizon in message.horizons]
    for name in ("value", "pinball", "is_inside", "level"):
        columns[name] = [
            getattr(outcome, name) if outcome is not None and outcome.HasField(name) else None for outcome in rows
        ]
    columns["reason"] = ["" if outcome is None else outcome.reason for outcome in rows]
    return columns


def _decode_forecast(message: pb.RecordedForecast) -> ForecastRecord:
    """Decode a forecast, without what only the ledger knows."""
    if message.role not in _ROLES_BY_NUMBER:
        raise _make_malformed_field_error("role", f"{message.role} is unknown; the server is newer than this client")
    return ForecastRecord(
        forecast_id=message.forecast_id,
        symbol=message.symbol,
        role=_ROLES_BY_NUMBER[message.role],
        model=message.model,
        version=message.version,
        weights_hash=message.weights_hash,
        engine="",
        batch_rows=0,
        as_of=message.as_of_session,
        base_session=message.base_session,
        target_kind=message.target_kind,
        horizons=tuple(message.horizons),
        target_sessions=tuple(message.target_sessions),
        quantiles=tuple(message.quantiles),
        values=arrays.decode_float64(message.values, (len(message.horizons), len(message.quantiles)), "values"),
        anchor=message.anchor_price if message.HasField("anchor_price") else None,
        bars_batch=0,
        made_at=message.made_at_ns,
        is_prospective=message.is_prospective,
    )


def encode_health(version: ModelVersion, evidence: Sequence[EvidenceRecord], *, is_champion: bool) -> pb.ModelHealth:
    """Encode the newest evidence of a version."""
    return pb.ModelHealth(
        model=version.model,
        version=version.number,
        is_champion=is_champion,
        lamp=_LAMPS[choose_worst_lamp(evidence)],
        tests=map(_encode_test, evidence),
    )


def _encode_test(record: EvidenceRecord) -> pb.TestHealth:
    return pb.TestHealth(
        monitor=record.monitor,
        horizon=record.horizon,
        lamp=_LAMPS[record.lamp],
        session=record.session,
        state_json=json.dumps(dict(record.state), sort_keys=True),
        days=int(record.number("days") or 0),
        share=record.number("share"),
        promised=record.number("promised"),
    )


def encode_event(row: LedgerRow) -> pb.WatchEventsResponse:
    """Encode an event, from a row of the table `event` with the time of its batch."""
    return pb.WatchEventsResponse(
        number=row["id"],
        made_at_ns=row["made_at"],
        kind=row["kind"],
        model=row["model"],
        version=row["version"],
        session=row["session"],
        reason=row["reason"],
        detail_json=row["detail"],
    )
