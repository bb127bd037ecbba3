"""Free ports for servers that need a fixed port."""

import random
import socket
from itertools import islice
from typing import Final

CANDIDATES: Final = range(20_000, 32_000)
"""Below the ephemeral ports, which other tests use at the same time."""


def free_ports(count: int) -> list[int]:
    """`count` different unused ports."""
    shuffled = random.SystemRandom().sample(CANDIDATES, len(CANDIDATES))
    return list(islice(filter(_is_free, shuffled), count))


def free_port() -> int:
    """One unused port."""
    (port,) = free_ports(1)
    return port


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
