"""Conversion of forecasts and of their model's skill."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.dates import to_date_number, to_optional_date_number
from predictor.forecast import Forecast
from predictor.skill import Skill, Verdict
from predictor.wire import arrays, errors

_VERDICTS: Final[Mapping[Verdict, pb.SkillVerdict]] = {
    Verdict.BETTER: pb.SKILL_VERDICT_BETTER,
    Verdict.UNDECIDED: pb.SKILL_VERDICT_UNDECIDED,
    Verdict.WORSE: pb.SKILL_VERDICT_WORSE,
}


@lru_cache(maxsize=256)
def encode_skill(skill: Skill | None) -> pb.Skill | None:
    """Encode a skill; None leaves the field unset. Cached: the message is shared and must not be modified."""
    if skill is None:
        return None
    return pb.Skill(
        rival=skill.rival,
        improvement=skill.improvement,
        lower=skill.lower,
        upper=skill.upper,
        level=skill.level,
        verdict=_VERDICTS[skill.verdict],
        sentence=skill.sentence,
        days_short=skill.days_short,
        line=skill.line,
    )


def decode_skill(message: pb.Skill) -> Skill:
    """Decode a skill; its verdict and line are derived from the numbers."""
    return Skill(
        rival=message.rival,
        improvement=message.improvement,
        lower=message.lower,
        upper=message.upper,
        level=message.level,
        sentence=message.sentence,
        days_short=message.days_short,
    )


def encode(forecast: Forecast) -> bytes:
    """Encode a forecast as the bytes of a message; those that the forecasts of a model for one day share are cached."""
    values = arrays.encode_float64(forecast.values)
    message = pb.Forecast(
        symbols=forecast.symbols,
        lag=forecast.lag,
        values=values,
        returns=values if forecast.returns is forecast.values else arrays.encode_float64(forecast.returns),
        prices=arrays.encode_float64(forecast.prices),
        anchor_price=arrays.encode_float64(forecast.anchor_price),
        forecast_id=forecast.forecast_id,
        warnings=forecast.warnings,
    )
    if forecast.refusals:
        message.refusals.extend(errors.encode_each(forecast.refusals))
    if forecast.scores is not None:
        message.scores = arrays.encode_float64(forecast.scores)
        message.universe_hash = forecast.universe_hash
    if forecast.ranks is not None:
        message.ranks.extend(forecast.ranks.ravel().tolist())
    shared = _encode_shared(
        forecast.as_of_session,
        forecast.target_sessions,
        forecast.base_session,
        forecast.horizons,
        forecast.quantiles,
        forecast.target_kind,
        forecast.model,
        forecast.version,
        forecast.weights_hash,
        forecast.skill,
    )
    return shared + message.SerializeToString()


@lru_cache(maxsize=256)
def _encode_shared(
    as_of: date | None,
    target_sessions: tuple[date, ...],
    base_session: date | None,
    horizons: tuple[int, ...],
    quantiles: tuple[float, ...],
    target_kind: str,
    model: str,
    version: int,
    weights_hash: str,
    skill: Skill | None,
) -> bytes:
    return pb.Forecast(
        as_of_session=to_optional_date_number(as_of),
        target_sessions=[to_date_number(day) for day in target_sessions],
        base_session=to_optional_date_number(base_session),
        horizons=horizons,
        quantiles=quantiles,
        target_kind=target_kind,
        model=model,
        version=version,
        weights_hash=weights_hash,
        skill=encode_skill(skill),
    ).SerializeToString()


def decode(message: pb.Forecast) -> Forecast:
    """Decode a forecast; its arrays are read-only.

    Raises:
        MalformedRequestError: an array has another length than the symbols, horizons and quantiles say.
    """
    rows = len(message.symbols)
    shape = (rows, len(message.horizons), len(message.quantiles))
    return Forecast(
        symbols=tuple(message.symbols),
        as_of_session=arrays.decode_session(message.as_of_session, "forecast.as_of_session"),
        target_sessions=arrays.decode_sessions(message.target_sessions, shape[1], "forecast.target_sessions"),
        lag=message.lag,
        base_session=arrays.decode_session(message.base_session, "forecast.base_session"),
        horizons=tuple(message.horizons),
        quantiles=tuple(message.quantiles),
        target_kind=message.target_kind,
        values=arrays.decode_float64(message.values, shape, "forecast.values"),
        returns=arrays.decode_optional_float64(message.returns, shape, "forecast.returns"),
        prices=arrays.decode_optional_float64(message.prices, shape, "forecast.prices"),
        anchor_price=arrays.decode_optional_float64(message.anchor_price, (rows,), "forecast.anchor_price"),
        model=message.model,
        version=message.version,
        weights_hash=message.weights_hash,
        warnings=tuple(message.warnings),
        forecast_id=message.forecast_id,
        scores=arrays.decode_optional_float64(message.scores, shape[:2], "forecast.scores"),
        ranks=arrays.decode_optional_int32(message.ranks, shape[:2], "forecast.ranks"),
        universe_hash=message.universe_hash,
        refusals=errors.decode_each(message.refusals),
        skill=decode_skill(message.skill) if message.HasField("skill") else None,
    )
