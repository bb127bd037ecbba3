"""Hostile frames against a running server: the attacker is cut off, and others are answered."""

import time

import pytest
from canned_service import CannedService, forecast_of
from serving import serving

from benchmarks.faults.attacks import ATTACKS, attack
from predictor.client import QuantraClient

AT_MOST_S = 60.0


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attacker_is_cut_off_and_others_are_answered(name: str) -> None:
    with serving(CannedService(forecast_of)) as running, QuantraClient(running.target) as other:
        port = int(running.target.rpartition(":")[2])
        with pytest.raises(ConnectionError):
            attack(name, port, time.monotonic() + AT_MOST_S)
        assert other.models()
