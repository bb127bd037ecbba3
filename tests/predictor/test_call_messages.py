"""The responses of one call."""

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, cast

from predictor.server.loop_bridge import LoopBridge
from predictor.server.servicer import CallMessages

if TYPE_CHECKING:
    from predictor.server.transport import IncomingCall


async def emit_after_the_end(message: bytes) -> int:
    """The references that an ended call keeps to a response from a thread that has not noticed the end."""
    bridge = LoopBridge()
    messages = CallMessages(cast("IncomingCall", None), bridge, bytes, lambda _: None)
    messages.cancel()
    before = sys.getrefcount(message)
    messages.emit(message)
    handed_over = asyncio.get_running_loop().create_future()
    bridge.call(partial(handed_over.set_result, None))
    await handed_over
    return sys.getrefcount(message) - before


def test_an_ended_call_keeps_no_late_response() -> None:
    assert asyncio.run(emit_after_the_end(bytes(1000))) == 0
