"""`python -m predictor.server.check ADDRESS`: a health check for containers.

The exit status is 0 if the server is serving, else 1, with the reason on stderr.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_TIMEOUT_S: Final = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Check once; the exit status is 0, 1 (not serving) or 2 (bad usage)."""
    parser = argparse.ArgumentParser(
        prog="python -m predictor.server.check", description="Check the health of a server."
    )
    parser.add_argument("address", help="HOST:PORT or unix:PATH")
    parser.add_argument("--tls-ca", type=Path, help="PEM file of the authority that signed the server's certificate")
    parser.add_argument("--model", default="", help="check only this model")
    options = parser.parse_args(arguments)
    credentials = None if options.tls_ca is None else grpc.ssl_channel_credentials(options.tls_ca.read_bytes())
    status = read_health(options.address, options.model, credentials)
    if status != "SERVING":
        sys.stderr.write(f"{options.address}: {status}\n")
        return 1
    return 0


def read_health(address: str, model: str = "", credentials: grpc.ChannelCredentials | None = None) -> str:
    """Return the health status of the server or of one model; the gRPC status code if the call fails."""
    open_channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    with open_channel as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # the stubs lack its methods
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=model), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            failure: Any = error
            return str(failure.code().name)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


if __name__ == "__main__":
    sys.exit(main())
