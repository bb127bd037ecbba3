"""Reading of request bodies within limits of size, time and number."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, final

from starlette.requests import ClientDisconnect, Request

from predictor.errors import CallCancelledError, DeadlineExceededError, QuantraError, RequestTooLargeError
from predictor.server import ServerLimits
from predictor.server.admission import CallSlots

SMALL: Final = 64 * 1024
"""Bytes of a body that needs no slot."""


ResultT = TypeVar("ResultT")


class UnreadBodyError(Exception):
    """The body was not read to its end, for this error."""

    def __init__(self, error: QuantraError) -> None:
        super().__init__(error.message)
        self.error = error


@final
class BodyReader:
    """Reads and parses bodies of at most `most_bytes`, on one event loop.

    Bodies larger than SMALL share a few slots until they are parsed, and one of them is parsed at a time.
    """

    def __init__(self, limits: ServerLimits, most_bytes: int) -> None:
        self._most_bytes, self._request_s = most_bytes, limits.request_s
        self._slots, self._parsing = CallSlots(limits.arriving), asyncio.Semaphore(1)

    async def read(self, request: Request, parse: Callable[[bytes], ResultT]) -> ResultT:
        """Read the body of a request and return `parse(body)`, which runs on another thread if the body is large.

        Raises:
            UnreadBodyError: It is too large or too slow, or the caller has left.
            QuantraError: As `parse`.
        """
        announced = request.headers.get("content-length", "")[:_DIGITS]
        if announced.isdecimal() and int(announced) > self._most_bytes:
            raise UnreadBodyError(self._too_large(announced))
        has_slot = False
        parts, size = list[bytes](), 0
        try:
            async with asyncio.timeout(self._request_s):
                async for part in request.stream():
                    size += len(part)
                    if size > self._most_bytes:
                        raise UnreadBodyError(self._too_large(f"more than {self._most_bytes}"))
                    if size > SMALL and not has_slot:
                        await self._slots.take()
                        has_slot = True
                    parts.append(part)
            if not has_slot:
                return parse(b"".join(parts))
            async with self._parsing:
                return await asyncio.to_thread(lambda: parse(b"".join(parts)))
        except TimeoutError:
            raise UnreadBodyError(
                DeadlineExceededError(
                    f"the request was incomplete after {self._request_s:g} seconds; send a smaller request, or faster"
                )
            ) from None
        except ClientDisconnect:
            raise UnreadBodyError(CallCancelledError("the caller disconnected")) from None
        finally:
            if has_slot:
                self._slots.give()

    def _too_large(self, have: str) -> RequestTooLargeError:
        return RequestTooLargeError(
            f"the request has {have} bytes, at most {self._most_bytes}; send several requests",
            metadata={"have": have, "most": str(self._most_bytes)},
        )


_DIGITS: Final = 19
