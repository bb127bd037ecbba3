"""Addresses of Ray clusters that are not there."""

from collections.abc import Callable

import pytest
from free_ports import free_port

from predictor.cluster import RayRunner
from predictor.errors import ConfigurationError, UnavailableError


def never() -> Callable[[int], int]:
    raise AssertionError("prepared without a cluster")


def test_an_address_where_nothing_listens_is_an_error() -> None:
    address = f"ray://127.0.0.1:{free_port()}"
    with pytest.raises(UnavailableError, match=f"there is no Ray cluster at {address}: .* `ray start`"):
        list(RayRunner(address).run(never, [1]))


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:6379", "ray://host", "ray://host:port", ""])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(
        ConfigurationError, match="is not the address of a Ray cluster; use local, auto or ray://HOST:PORT"
    ):
        RayRunner(address)
