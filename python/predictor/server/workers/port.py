"""A port that several processes of one user listen on, kept for them and from others."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from predictor.errors import ConfigurationError
from predictor.server.address import Address
from predictor.server.binding import why_not


@contextmanager
def reserved(address: Address) -> Generator[Address]:
    """Keep an address for workers while the block runs: the same, with the port that was chosen where it was 0.

    The socket never listens, so no connection comes to it.

    Raises:
        ConfigurationError: the address is in use, not allowed, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a server before may still be ending
        try:
            kept.bind((address.host, address.port))
        except OSError as error:
            raise ConfigurationError(why_not(address, error)) from None
        # Claimed alone; only now may others join, of the same user. Asked for before, it would join another server.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port: int = kept.getsockname()[1]
        yield replace(address, port=port)
