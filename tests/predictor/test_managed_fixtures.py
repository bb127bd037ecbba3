"""The committed fixtures of the C# package equal those that this version writes."""

import gzip
import json

import numpy as np
import pytest
from managed_fixtures import (
    FOLDER,
    NETWORKS,
    feature_sets,
    write_expressions,
    write_features,
    write_network,
    write_normalisers,
)

from predictor.artifact.artifact import read_arrays


@pytest.mark.parametrize("name", NETWORKS)
def test_the_committed_network_is_that_of_this_version(name: str) -> None:
    for path, data in write_network(name, NETWORKS[name]).items():
        check(path, data, absolute=1e-5)


@pytest.mark.parametrize("name", feature_sets())
def test_the_committed_features_are_those_of_this_version(name: str) -> None:
    for path, data in write_features(name, feature_sets()[name]).items():
        check(path, data)


def test_the_committed_levels_are_those_of_this_version() -> None:
    for path, data in write_normalisers().items():
        check(path, data)


def test_the_committed_expressions_and_their_values_are_those_of_this_version() -> None:
    for path, data in write_expressions().items():
        check(path, data)


def rounded(text: bytes) -> object:
    """Parse JSON without the last digits of numbers: those of exponentials depend on the processor."""
    return json.loads(text, parse_float=lambda number: f"{float(number):.12g}")


def check(path: str, expected: bytes, *, absolute: float = 1e-9) -> None:
    """Compare text exactly and arrays up to the last bits of sums and logarithms, which depend on the processor."""
    actual = (FOLDER / path).read_bytes()
    if path.endswith(".gz"):
        path, expected, actual = path.removesuffix(".gz"), gzip.decompress(expected), gzip.decompress(actual)
    if path.endswith(".json"):
        assert rounded(actual) == rounded(expected)
        return
    if not path.endswith(".safetensors"):
        assert actual == expected
        return
    recorded, computed = read_arrays(actual, path), read_arrays(expected, path)
    assert recorded.keys() == computed.keys()
    for name, values in computed.items():
        wide = values.astype(np.float64)
        np.testing.assert_allclose(recorded[name].astype(np.float64), wide, rtol=1e-9, atol=absolute, err_msg=name)
