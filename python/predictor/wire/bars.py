"""Panels of bars on the wire."""

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.errors import MalformedRequestError
from predictor.wire import arrays, symbols
from predictor.wire.limits import MAX_CELLS, MAX_SESSIONS, check_count, check_text

_DAILY = frozenset({pb.BAR_INTERVAL_UNSPECIFIED, pb.BAR_INTERVAL_DAY})


def encode(panel: BarPanel) -> pb.BarPanel:
    """The message of a panel; how gaps are read stands in the Instance."""
    return pb.BarPanel(
        symbols=panel.symbols,
        session_yyyymmdd=panel.sessions.tolist(),
        open=arrays.encode_float64(panel.open),
        high=arrays.encode_float64(panel.high),
        low=arrays.encode_float64(panel.low),
        close=arrays.encode_float64(panel.close),
        volume=arrays.encode_float64(panel.volume),
        adj_close=arrays.encode_float64(panel.adj_close),
        split_ratio=arrays.encode_float64(panel.split_ratio),
        cash_dividend=arrays.encode_float64(panel.cash_dividend),
        calendar=panel.calendar,
        currency=panel.currency,
        interval=pb.BAR_INTERVAL_DAY,
    )


def decode(message: pb.BarPanel) -> BarPanel:
    """The panel of a message.

    Raises:
        MalformedRequestError: a field has another length than the symbols and sessions say, or bars are not daily.
        RequestTooLargeError: more symbols or sessions than one request may have.
        BarsError: the panel itself refuses its bars.
    """
    names = symbols.decode(message.symbols)
    shape = (len(names), len(message.session_yyyymmdd))
    _check(message, shape)
    return BarPanel(
        symbols=names,
        sessions=arrays.decode_int32(message.session_yyyymmdd, shape[1:], "bars.session_yyyymmdd"),
        open=arrays.decode_float64(message.open, shape, "bars.open"),
        high=arrays.decode_float64(message.high, shape, "bars.high"),
        low=arrays.decode_float64(message.low, shape, "bars.low"),
        close=arrays.decode_float64(message.close, shape, "bars.close"),
        volume=arrays.decode_float64(message.volume, shape, "bars.volume"),
        adj_close=arrays.decode_optional_float64(message.adj_close, shape, "bars.adj_close"),
        split_ratio=arrays.decode_optional_float64(message.split_ratio, shape, "bars.split_ratio"),
        cash_dividend=arrays.decode_optional_float64(message.cash_dividend, shape, "bars.cash_dividend"),
        calendar=message.calendar,
        currency=message.currency,
    )


def _check(message: pb.BarPanel, shape: tuple[int, int]) -> None:
    check_count("bars.session_yyyymmdd", shape[1], MAX_SESSIONS)
    check_count("bars: symbols x sessions", shape[0] * shape[1], MAX_CELLS)
    check_text("bars.calendar", message.calendar)
    check_text("bars.currency", message.currency)
    if message.interval not in _DAILY:
        raise MalformedRequestError(
            f"bars.interval: {message.interval} is not supported; send daily bars (1)",
            metadata={"field": "bars.interval", "value": str(message.interval)},
        )
