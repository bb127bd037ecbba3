"""`python -m predictor.server.check ADDRESS`: whether a server is well, for whoever starts containers.

The exit status is 0 while it answers calls, else 1, with one line that says why.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_PATIENCE_S: Final = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask once; the exit status is 0, 1 (not well) or 2 (bad usage)."""
    parser = argparse.ArgumentParser(
        prog="python -m predictor.server.check", description="Ask a server for its health."
    )
    parser.add_argument("address", help="HOST:PORT or unix:PATH")
    parser.add_argument("--tls-ca", type=Path, help="PEM file: who must have signed the server's certificate")
    parser.add_argument("--model", default="", help="one model alone")
    options = parser.parse_args(arguments)
    credentials = None if options.tls_ca is None else grpc.ssl_channel_credentials(options.tls_ca.read_bytes())
    told = health_of(options.address, options.model, credentials)
    if told != "SERVING":
        sys.stderr.write(f"{options.address}: {told}\n")
        return 1
    return 0


def health_of(address: str, model: str = "", credentials: grpc.ChannelCredentials | None = None) -> str:
    """What the server says of itself, or of one model; where it says nothing, the status of the call."""
    open_channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    with open_channel as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # the stubs lack its methods
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=model), timeout=_PATIENCE_S)
        except grpc.RpcError as error:
            failure: Any = error
            return str(failure.code().name)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


if __name__ == "__main__":
    sys.exit(main())
