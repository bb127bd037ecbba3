"""Conversion of requests for price paths, and of their responses."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.dates import to_optional_date_number
from predictor.errors import MalformedRequestError
from predictor.forecast import Forecast
from predictor.instance import PathQuery
from predictor.price_paths import Estimate, PathQuestions, PricePaths
from predictor.wire import arrays, errors, instances
from predictor.wire.limits import MAX_PRICES, MAX_SYMBOLS, check_count, check_text

_PART: Final = 1 << 16
"""Approximate bytes of paths in one message. While a caller does not read, one message of its call waits in the server,
and 1 MiB of such messages stops all calls of a connection."""


def encode_query(query: PathQuery, model: str, *, include_paths: bool) -> pb.SimulatePathsRequest:
    """Encode a query to `model`."""
    questions = query.questions
    return pb.SimulatePathsRequest(
        model=model,
        instance=instances.encode(query.instance),
        paths=query.paths,
        seed=query.seed,
        day=questions.day,
        level=questions.level,
        holdings=[pb.Holding(symbol=symbol, value=value) for symbol, value in questions.holdings.items()],
        prices=[pb.PriceLevel(symbol=symbol, price=price) for symbol, price in questions.prices],
        include_paths=include_paths,
    )


def decode_query(message: pb.SimulatePathsRequest) -> PathQuery:
    """Decode a query.

    Raises:
        MalformedRequestError: a symbol is held twice, or the instance cannot be decoded.
        RequestTooLargeError: there are too many holdings, prices or bars.
    """
    check_count("holdings", len(message.holdings), MAX_SYMBOLS)
    check_count("prices", len(message.prices), MAX_PRICES)
    holdings = _decode_pairs("holdings", [(holding.symbol, holding.value) for holding in message.holdings])
    if len(dict(holdings)) != len(holdings):
        raise MalformedRequestError(
            "holdings: a symbol is held twice; send one value for each", metadata={"field": "holdings"}
        )
    query, defaults = PathQuery(instance=instances.decode(message.instance)), PathQuestions()
    return replace(
        query,
        paths=message.paths or query.paths,
        seed=message.seed,
        questions=PathQuestions(
            day=message.day,
            level=message.level or defaults.level,
            holdings=dict(holdings),
            prices=tuple(_decode_pairs("prices", [(level.symbol, level.price) for level in message.prices])),
        ),
    )


def _decode_pairs(field: str, pairs: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
    for symbol, _ in pairs:
        check_text(f"{field}.symbol", symbol)
    return pairs


def encode_answers(forecast: Forecast, paths: PricePaths, questions: PathQuestions) -> pb.SimulatePathsResponse:
    """Answer the questions, and encode everything but the paths; raises as `PricePaths.answer`."""
    answers = paths.answer(questions)
    return pb.SimulatePathsResponse(
        symbols=paths.symbols,
        as_of_session=to_optional_date_number(paths.as_of_session),
        anchor_price=arrays.encode_float64(paths.anchor_price),
        days=paths.days,
        paths=len(paths.returns),
        past_days=paths.past_days,
        forecast_id=paths.forecast_id,
        model=paths.model,
        version=paths.version,
        warnings=forecast.warnings,
        refusals=errors.encode_each(paths.refusals),
        day=answers.day,
        value_at_risk=_encode_estimate(answers.value_at_risk),
        expected_shortfall=_encode_estimate(answers.expected_shortfall),
        drawdown=_encode_estimate(answers.drawdown),
        prices=[
            pb.PriceProbability(
                symbol=level.symbol,
                price=level.price,
                above=_encode_estimate(level.above),
                touched=_encode_estimate(level.touched),
            )
            for level in answers.prices
        ],
    )


def encode_parts(paths: PricePaths) -> Iterator[pb.SimulatePathsResponse]:
    """Encode the paths in messages of about 64 KiB."""
    count = max(1, _PART // (8 * prod(paths.returns.shape[1:])))
    for first in range(0, len(paths.returns), count):
        part = arrays.encode_float64(paths.returns[first : first + count])
        yield pb.SimulatePathsResponse(first_path=first, returns=part)


def _encode_estimate(estimate: Estimate | None) -> pb.Estimate | None:
    return None if estimate is None else pb.Estimate(value=estimate.value, lower=estimate.lower, upper=estimate.upper)
