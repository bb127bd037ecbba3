"""The calls of LifecycleService. They load torch only when they run, because a supervisor has none."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from predictor._pb import ledger_pb2 as pb
from predictor.errors import (
    LifecycleUnavailableError,
    MalformedRequestError,
    NoLedgerError,
    QuantraError,
    QueueFullError,
    UnavailableError,
    get_error_status,
    restore_error,
)
from predictor.ledger import Ledger
from predictor.memory import make_caller_error
from predictor.server.settings import ServerSettings
from predictor.wire import ledger as wire
from predictor.wire import lifecycle
from predictor.wire.limits import check_text
from predictor.wire.request_counts import parse

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from predictor.call_context import CallContext
    from predictor.lifecycle import Check, ModelLifecycle

LoadLifecycle = Callable[[Path], "ModelLifecycle"]
"""Creates the lifecycle of a folder of models; called on a thread when the first call needs it."""
_MAX_WAITING: Final = 16

_log = logging.getLogger(__name__)


@final
class LifecycleCalls:
    """Compares and promotes versions, one call after the other on a thread, which starts with the first call.

    Args:
        settings: Settings of the server, with the folder of models and the ledger.
        load: Creates the lifecycle; None if the server cannot compare versions.
        serve_champion: Serves the present champion of the named model; blocks, and raises QuantraError.
    """

    def __init__(
        self, settings: ServerSettings, load: LoadLifecycle | None, serve_champion: Callable[[str], None]
    ) -> None:
        self._settings, self._load, self._serve_champion = settings, load, serve_champion
        self._lifecycle: ModelLifecycle | None = None
        self._methods: dict[str, Callable[[bytes, Check], Message]] = {
            "CompareVersions": self._compare,
            "PromoteVersion": self._promote,
            "RollBackChampion": self._roll_back,
        }
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "lifecycle")
        self._waiting_count = 0
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a call waits or runs; a running one ends at its next step when the server stops."""
        return self._waiting_count > 0

    def handle(self, name: str, request: bytes, context: "CallContext") -> "Future[bytes]":
        """Answer one call; the future fails only with a QuantraError. A late comparison ends at its next step."""
        try:
            if self._load is None:
                raise LifecycleUnavailableError(
                    "this server cannot compare or promote versions; start it with `quantra serve --ledger LEDGER`"
                )
            if not self._settings.ledger:
                raise NoLedgerError("this server has no ledger to compare versions by; start it with --ledger LEDGER")
            with self._lock:
                self._check_open()
                if self._waiting_count >= _MAX_WAITING:
                    raise QueueFullError.of("comparisons and promotions wait", self._waiting_count, _MAX_WAITING)
                self._waiting_count += 1
                answer = self._thread.submit(self._run, name, request, context)
        except QuantraError as error:
            answer = Future[bytes]()
            answer.set_exception(error)
        else:
            answer.add_done_callback(lambda _: self._leave())
        return answer

    def drain(self) -> None:
        """Reject new and waiting calls, and end the thread after the step that runs."""
        with self._lock:
            self._is_closed = True
            self._thread.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._is_closed:
            raise UnavailableError("the server is stopping; retry in a moment, or on another server")

    def _leave(self) -> None:
        with self._lock:
            self._waiting_count -= 1

    def _run(self, name: str, request: bytes, context: "CallContext") -> bytes:
        def check() -> None:
            self._check_open()
            context.check()

        try:
            check()
            return self._methods[name](request, check).SerializeToString()
        except Exception as error:  # noqa: BLE001 - thread boundary: the caller gets the error
            raise make_caller_error(name, error, _log).without_frames() from None

    def _compare(self, body: bytes, check: "Check") -> pb.CompareVersionsResponse:
        request = parse(body, pb.CompareVersionsRequest)
        for field, reference in (("champion", request.champion), ("challenger", request.challenger)):
            _check_present(field, reference)
        start = wire.decode_session("first_session", request.first_session) or None
        with self._open_ledger() as ledger:
            return lifecycle.encode_comparison(
                self._loaded_lifecycle.compare(ledger, request.champion, request.challenger, check=check, start=start)
            )

    def _promote(self, body: bytes, check: "Check") -> pb.PromoteVersionResponse:
        request = parse(body, pb.PromoteVersionRequest)
        for field, text in (("version", request.version), ("reason", request.reason)):
            _check_present(field, text)
        name, version = wire.decode_reference(request.version)
        if not version:
            raise MalformedRequestError(
                f"version: {request.version!r} names no version; send NAME@VERSION, such as {name}@2",
                metadata={"field": "version"},
            )
        with self._open_ledger() as ledger:
            result = self._loaded_lifecycle.promote(
                ledger, request.version, reason=request.reason, check=check, overridden=request.override_gates
            )
        if result.promoted:
            self._serve(name, version)
        return lifecycle.encode_promotion(result)

    def _roll_back(self, body: bytes, _check: "Check") -> pb.RollBackChampionResponse:
        request = parse(body, pb.RollBackChampionRequest)
        for field, text in (("model", request.model), ("reason", request.reason)):
            _check_present(field, text)
        with self._open_ledger() as ledger:
            expected = request.champion or None
            move = self._loaded_lifecycle.roll_back(ledger, request.model, reason=request.reason, expected=expected)
        self._serve(request.model, move.version)
        return pb.RollBackChampionResponse(champion=move.version, previous=move.previous or 0)

    @property
    def _loaded_lifecycle(self) -> "ModelLifecycle":
        if self._lifecycle is None:
            from predictor.inference import use_threads  # imports torch

            assert self._load is not None  # noqa: S101 - it was checked before
            use_threads(self._settings.threads)  # as for forecasts; a supervisor has not set them
            self._lifecycle = self._load(self._settings.models)
        return self._lifecycle

    def _open_ledger(self) -> Ledger:
        return Ledger.open(self._settings.ledger)

    def _serve(self, name: str, version: int) -> None:
        """Serve a new champion; raises QuantraError if it stays the champion of the folder only."""
        try:
            self._serve_champion(name)
        except QuantraError as error:
            raise restore_error(
                get_error_status(error).reason,
                f"{name}@{version} is the champion now, but this server does not serve it: {error.message}",
                error.metadata,
            ) from error


def _check_present(field: str, text: str) -> None:
    check_text(field, text)
    if not text.strip():
        why = "say why, for the history" if field == "reason" else "name a model"
        raise MalformedRequestError(f"{field} is empty; {why}", metadata={"field": field})
