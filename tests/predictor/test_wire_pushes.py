"""Bar pushes on the wire: exact round trips and refused messages."""

import numpy as np
import pytest
from artifacts import recent_bars
from pushing import day_of

from predictor._pb import prediction_pb2 as pb
from predictor.covariates import Covariates
from predictor.errors import BarsError, MalformedRequestError
from predictor.instance import GapPolicy
from predictor.subscription import Push
from predictor.wire import instances

PANEL = recent_bars("AAPL", "IBM")
DAY = day_of(PANEL, int(PANEL.sessions[-1]))
BESIDE = Covariates(
    observed={"a": np.array([[0.1], [np.nan]])},
    known={"b": np.array([[1.0, 2.0], [3.0, 4.0]])},
    future_sessions=np.array([20130304], np.int32),
)


def sent(push: Push) -> pb.PushBars:
    return pb.PushBars.FromString(instances.encode_push("s", push).SerializeToString())


def test_a_push_comes_back_bit_for_bit() -> None:
    message = sent(Push(bars=DAY, covariates=BESIDE, flush=True))
    back = instances.decode_push(message)
    assert (message.session_id, back.flush, back.gap_policy) == ("s", True, None)
    assert back.bars is not None
    assert back.bars.symbols == DAY.symbols
    assert all(getattr(back.bars, name).tobytes() == getattr(DAY, name).tobytes() for name in DAY.columns)
    assert back.covariates.observed["a"].tobytes() == BESIDE.observed["a"].tobytes()
    assert np.array_equal(back.covariates.known["b"], BESIDE.known["b"])
    assert np.array_equal(back.covariates.future_sessions, BESIDE.future_sessions)


def test_a_flush_alone_has_no_bars() -> None:
    back = instances.decode_push(sent(Push(flush=True)))
    assert (back.bars, back.flush, back.covariates.is_empty) == (None, True, True)


def test_how_bars_are_to_be_read_is_told_where_it_was_said() -> None:
    message = sent(Push(bars=DAY))
    message.bars.gap_policy = pb.GAP_POLICY_MASK
    message.bars.allow_incomplete_last_bar = True
    back = instances.decode_push(message)
    assert (back.gap_policy, back.allow_incomplete_last_bar) == (GapPolicy.MASK, True)


def test_covariates_without_bars_are_refused() -> None:
    message = sent(Push(bars=DAY, covariates=BESIDE))
    message.ClearField("bars")
    with pytest.raises(MalformedRequestError, match="covariates need bars"):
        instances.decode_push(message)


def test_a_duplicate_symbol_is_refused() -> None:
    message = sent(Push(bars=DAY))
    message.bars.symbols[:] = ["AAPL", "AAPL"]
    with pytest.raises(BarsError, match="appears twice"):
        instances.decode_push(message)


def test_a_column_of_another_length_is_refused() -> None:
    message = sent(Push(bars=DAY))
    message.bars.close = message.bars.close[:-8]
    with pytest.raises(MalformedRequestError, match=r"bars\.close: have 8 bytes, need 16"):
        instances.decode_push(message)
