"""The committed fixtures of the C# package equal those that this version writes."""

import numpy as np
import pytest
from managed_fixtures import FOLDER, NETWORKS, write_network

from predictor.artifact.artifact import read_arrays


@pytest.mark.parametrize("name", NETWORKS)
def test_the_committed_network_is_that_of_this_version(name: str) -> None:
    for path, data in write_network(name, NETWORKS[name]).items():
        committed = (FOLDER / path).read_bytes()
        if path.endswith(".json"):
            assert committed == data
            continue
        expected, actual = read_arrays(data, path), read_arrays(committed, path)
        assert actual.keys() == expected.keys()
        for key, values in expected.items():
            if key.startswith("units"):  # last bits depend on the processor
                np.testing.assert_allclose(actual[key].astype(np.float64), values.astype(np.float64), rtol=0, atol=1e-6)
            else:
                np.testing.assert_array_equal(actual[key], values)
