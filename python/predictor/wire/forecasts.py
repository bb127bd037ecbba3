"""Conversion of forecasts and of their model's skill."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.dates import as_number, optional_number
from predictor.forecast import Forecast
from predictor.skill import Skill, Verdict
from predictor.wire import arrays, errors

_VERDICTS: Final[Mapping[Verdict, pb.SkillVerdict]] = {
    Verdict.BETTER: pb.SKILL_VERDICT_BETTER,
    Verdict.UNDECIDED: pb.SKILL_VERDICT_UNDECIDED,
    Verdict.WORSE: pb.SKILL_VERDICT_WORSE,
}


def encode_skill(skill: Skill | None) -> pb.Skill | None:
    """Encode a skill; None leaves the field unset."""
    return None if skill is None else _skill_message(skill)


@lru_cache(maxsize=256)
def _skill_message(skill: Skill) -> pb.Skill:
    """Encode a skill. Cached: all forecasts of a model share one message, which must not be modified."""
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


def encode(forecast: Forecast) -> pb.Forecast:
    """Encode a forecast."""
    return pb.Forecast(
        symbols=forecast.symbols,
        as_of_session=optional_number(forecast.as_of_session),
        target_sessions=[as_number(day) for day in forecast.target_sessions],
        lag=forecast.lag,
        base_session=optional_number(forecast.base_session),
        horizons=forecast.horizons,
        quantiles=forecast.quantiles,
        target_kind=forecast.target_kind,
        values=arrays.encode_float64(forecast.values),
        returns=arrays.encode_float64(forecast.returns),
        prices=arrays.encode_float64(forecast.prices),
        anchor_price=arrays.encode_float64(forecast.anchor_price),
        model=forecast.model,
        version=forecast.version,
        weights_hash=forecast.weights_hash,
        warnings=forecast.warnings,
        forecast_id=forecast.forecast_id,
        scores=arrays.encode_float64(forecast.scores),
        ranks=() if forecast.ranks is None else forecast.ranks.ravel().tolist(),
        universe_hash=forecast.universe_hash,
        refusals=errors.encode_each(forecast.refusals),
        skill=encode_skill(forecast.skill),
    )


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
