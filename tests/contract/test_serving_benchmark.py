"""Statistics of `benchmarks.serving` against values computed by hand."""

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.calling.load import Calls, together
from benchmarks.calling.processes import CpuUsage, cpu_s_of
from benchmarks.calling.rates import BARS, WINDOWS, ratio
from benchmarks.calling.stages import batches_of
from predictor.service.workers import StageTimes


def calls(*took_ms: float, seconds: float = 1.0) -> Calls:
    return Calls(np.array(took_ms) / 1e3, seconds)


def test_the_servers_own_line_about_a_batch_is_read() -> None:
    times = StageTimes(0.0, 0.001, 0.003, 0.006, 0.010, 0.015)
    line = f"DEBUG predictor.service.workers: stock: 3 calls, 3 instances, {times}\n"
    assert batches_of("DEBUG other: Predict: 1.0 ms\n" + line) == [(3.0, 1.0, 2.0, 3.0, 4.0, 5.0)]


def test_calls_of_several_turns_count_together() -> None:
    both = together([calls(1.0, 2.0), calls(3.0, seconds=2.0)])
    assert both.per_second == pytest.approx(1.0)
    assert both.percentile_ms(50) == pytest.approx(2.0)


def test_a_ratio_is_taken_within_each_round() -> None:
    rounds = [{(BARS, 1): calls(2.0 * slow), (WINDOWS, 1): calls(1.0 * slow)} for slow in (1.0, 10.0, 3.0)]
    assert ratio(rounds, (BARS, 1), (WINDOWS, 1), lambda one: one.percentile_ms(50)) == pytest.approx(2.0)


def test_the_cpu_time_of_a_request_is_that_of_all_processes_together() -> None:
    work = CpuUsage.of({1: 2.0, 7: 0.5, 8: 0.0}, {1: 2.0, 7: 0.8, 8: 0.1}, requests=200.0)
    assert work.request_ms == pytest.approx(2.0)
    assert work.most == pytest.approx(0.75)


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_cpu_time_of_a_server_is_also_that_of_what_it_has_started() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= cpu_s_of(os.getpid()).keys()
        child.communicate(b"\n")
