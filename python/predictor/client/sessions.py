"""Sessions: a panel's history is sent once, then the bars of one day after the other, each answered with a forecast."""

from dataclasses import dataclass
from itertools import count
from typing import Final, Self, final

from predictor._pb import prediction_pb2 as pb
from predictor.bars import BarPanel
from predictor.client.session_streams import AsyncSessionStream, SessionStream
from predictor.covariates import NO_COVARIATES, Covariates
from predictor.errors import InternalError, MalformedRequestError
from predictor.forecast import Forecast
from predictor.instance import Instance
from predictor.subscription import Push
from predictor.wire import errors, forecasts, instances, pushes

_COUNT: Final = count(1)
"""Names the sessions that their caller did not."""


@final
@dataclass(frozen=True, slots=True)
class PushAccepted:
    """A push was taken, and there is no forecast of its day yet; none of these: nothing traded that day."""

    waits_for: tuple[str, ...]
    """Symbols whose bars of the day have not come."""


Pushed = Forecast | PushAccepted
"""What a push is answered with, unless it is refused."""


@final
class SessionRequests:
    """What one session sends, and what the answers mean.

    Args:
        session_id: names the session on its stream; empty = any name.
        timeout_s: of each request.
    """

    def __init__(self, session_id: str, timeout_s: float) -> None:
        self.session_id = session_id or f"session-{next(_COUNT)}"
        self.timeout_s = timeout_s

    def open(self, model: str, instance: Instance) -> pb.PredictStreamRequest:
        """Subscribe to a model with this history."""
        opened = pb.OpenSession(session_id=self.session_id, model=model, instance=instances.encode(instance))
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, open=opened)

    def push(self, push: Push) -> pb.PredictStreamRequest:
        """Send bars."""
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, push=pushes.encode(self.session_id, push))

    def close(self) -> pb.PredictStreamRequest:
        """End the session."""
        return pb.PredictStreamRequest(timeout_s=self.timeout_s, close=pb.CloseSession(session_id=self.session_id))


def answer_of(response: pb.PredictStreamResponse) -> Pushed:
    """The forecast, or what it waits for.

    Raises:
        QuantraError: what the server refused, or an answer that cannot be read.
    """
    kind = response.WhichOneof("outcome")
    if kind == "error":
        raise errors.decode(response.error)
    if kind == "ack":
        return PushAccepted(tuple(response.ack.waiting_for))
    try:
        return forecasts.decode(response.forecast)
    except MalformedRequestError as error:
        raise InternalError(
            f"the server's answer cannot be read: {error.message}; use the same version of client and server"
        ) from error


def forecast_of(response: pb.PredictStreamResponse) -> Forecast:
    """The forecast that a session begins with; raises as `answer_of`."""
    answer = answer_of(response)
    if isinstance(answer, Forecast):
        return answer
    raise InternalError("the server opened the session without a forecast; use the same version of client and server")


@final
class BarSession:
    """A session that is open, made by `QuantraClient.open_session`. Safe to use from many threads.

    It lives on a stream of its client: it ends when it or the client is closed, or the connection is lost.
    """

    def __init__(self, stream: SessionStream, requests: SessionRequests, forecast: Forecast) -> None:
        self._stream, self._requests = stream, requests
        self.forecast = forecast
        """The forecast of the history that the session began with."""

    @property
    def session_id(self) -> str:
        """Its name."""
        return self._requests.session_id

    def push(self, bars: BarPanel, covariates: Covariates | None = None, *, flush: bool = False) -> Pushed:
        """Send the bars of one day, of some of the symbols: of the day after the last one, or of the last one again.

        Args:
            bars: one session, with the columns that the history has.
            covariates: beside them, as the history had them: observed, and known of this day and the days ahead.
            flush: do not wait for the day's other symbols.

        Returns:
            The forecast of all bars sent so far; or whom it waits for, while bars of the day are missing.

        Raises:
            QuantraError: the bars were refused, and the session is as it was before; ResubscribeError: it cannot go on,
                open another one; UnavailableError or DeadlineExceededError: nobody answered. To push the same bars
                again does no harm.
        """
        return self._push(Push(bars=bars, covariates=covariates or NO_COVARIATES, flush=flush))

    def flush(self) -> Pushed:
        """The forecast of a day that waits for bars, without them; raises as `push`."""
        return self._push(Push(flush=True))

    def close(self) -> None:
        """End the session; does nothing if it has ended."""
        self._stream.leave(self._requests.close())

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def _push(self, push: Push) -> Pushed:
        return answer_of(self._stream.ask(self._requests.push(push)))


@final
class AsyncBarSession:
    """The same for asyncio: await each method; the arguments are BarSession's."""

    def __init__(self, stream: AsyncSessionStream, requests: SessionRequests, forecast: Forecast) -> None:
        self._stream, self._requests = stream, requests
        self.forecast = forecast
        """The forecast of the history that the session began with."""

    @property
    def session_id(self) -> str:
        """Its name."""
        return self._requests.session_id

    async def push(self, bars: BarPanel, covariates: Covariates | None = None, *, flush: bool = False) -> Pushed:
        """As `BarSession.push`."""
        return await self._push(Push(bars=bars, covariates=covariates or NO_COVARIATES, flush=flush))

    async def flush(self) -> Pushed:
        """As `BarSession.flush`."""
        return await self._push(Push(flush=True))

    async def close(self) -> None:
        """As `BarSession.close`."""
        await self._stream.leave(self._requests.close())

    async def __aenter__(self) -> Self:
        """The session itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        await self.close()

    async def _push(self, push: Push) -> Pushed:
        return answer_of(await self._stream.ask(self._requests.push(push)))
