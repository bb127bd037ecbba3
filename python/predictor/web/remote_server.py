"""Calls and models of another server, over gRPC, for `quantra ui --server`."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, final

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest

from predictor.call_context import CallContext
from predictor.catalog import ModelInfo
from predictor.client import ClientCredentials, QuantraClient
from predictor.client.calls import make_call_error, make_cancelled_error
from predictor.client.connection import ChannelOptions, open_channel, target_of
from predictor.errors import QuantraError
from predictor.forecast import Explanation, Forecast
from predictor.instance import ExplanationQuery, Instance
from predictor.web.api import MAX_TIMEOUT_S, join_paths
from predictor.web.openapi import PATHS
from predictor.web.page_access import MAX_WAIT_S

_SERVICE: Final = "/quantra.v1.PredictionService/"
_HEALTH: Final = "/grpc.health.v1.Health/Check"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """The address of a server, and what it is shown."""

    address: str
    credentials: ClientCredentials


@final
class ForwardedCalls:
    """Forwards the bytes of calls to a server. Thread-safe.

    Raises:
        ConfigurationError: The address or the credentials are invalid.
    """

    def __init__(self, server: RemoteServer) -> None:
        self._target = target_of(server.address, server.credentials)
        options = ChannelOptions.to(self._target, server.credentials)
        self._headers, self._channel = options.headers, open_channel(self._target, options)

    def call(self, name: str, body: bytes, context: CallContext) -> Future[bytes]:
        """See `ByteCalls`."""
        return self._simulate(body, context) if name == PATHS else self._forward(_SERVICE + name, body, context)

    def check_health(self, context: CallContext) -> Future[bytes]:
        """Answer whether the server serves."""
        return self._forward(_HEALTH, HealthCheckRequest().SerializeToString(), context)

    def _simulate(self, body: bytes, context: CallContext) -> Future[bytes]:
        timeout_s, answer = min(context.left_s, MAX_TIMEOUT_S), Future[bytes]()
        parts = self._channel.unary_stream(_SERVICE + PATHS)(body, timeout_s, metadata=self._headers)
        answer.add_done_callback(lambda _: parts.cancel())  # does nothing if it has ended
        threading.Thread(target=self._collect, args=(parts, answer, timeout_s), name="paths", daemon=True).start()
        return answer

    def close(self) -> None:
        """Close the connection; calls in progress are cancelled."""
        self._channel.close()

    def _forward(self, method: str, body: bytes, context: CallContext) -> Future[bytes]:
        timeout_s, answer = min(context.left_s, MAX_TIMEOUT_S), Future[bytes]()
        call: Any = self._channel.unary_unary(method).future(body, timeout_s, metadata=self._headers)
        answer.add_done_callback(lambda _: call.cancel())  # as above

        def finish(_: Any) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(call.result())
            except (grpc.RpcError, grpc.FutureCancelledError) as failure:
                answer.set_exception(self._make_remote_error(failure, timeout_s))

        call.add_done_callback(finish)
        return answer

    def _collect(self, parts: Any, answer: Future[bytes], timeout_s: float) -> None:
        try:
            result: bytes | Exception = join_paths(list(parts))
        except grpc.RpcError as failure:
            result = self._make_remote_error(failure, timeout_s)
        except Exception as error:  # noqa: BLE001 - thread's boundary: the caller gets the error
            result = error
        if answer.set_running_or_notify_cancel():
            answer.set_result(result) if isinstance(result, bytes) else answer.set_exception(result)

    def _make_remote_error(self, failure: Exception, timeout_s: float) -> QuantraError:
        if isinstance(failure, grpc.RpcError):
            return make_call_error(failure, self._target, timeout_s)
        return make_cancelled_error(self._target)


@final
class RemoteModels:
    """The models of a server, for the page. Thread-safe."""

    def __init__(self, server: RemoteServer) -> None:
        self._server = server
        self._clients: dict[str, QuantraClient] = {}
        self._lock = threading.Lock()

    def models(self) -> Sequence[ModelInfo]:
        """List every version of every model."""
        return self._find_client("").models()

    def model(self, reference: str) -> ModelInfo:
        """Describe one version."""
        return self._find_client("").model(reference)

    def predict(self, reference: str, instance: Instance) -> Forecast:
        """Forecast one instance; raises as `QuantraClient.predict`."""
        return self._find_client(reference).predict(instance)

    def explain(self, reference: str, query: ExplanationQuery) -> Explanation:
        """Explain one forecast; raises as `QuantraClient.explain`."""
        return self._find_client(reference).explain(query)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()

    def _find_client(self, reference: str) -> QuantraClient:
        """The client of a model, whose facts it remembers to split large panels."""
        with self._lock:
            if reference not in self._clients:
                self._clients[reference] = QuantraClient(
                    self._server.address, reference, MAX_WAIT_S, credentials=self._server.credentials
                )
            return self._clients[reference]
