"""Evaluation tables fit a terminal of 80 columns without truncation."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from evaluations import estimate, evaluation, model_scores
from rich.console import Console, RenderableType

from predictor.networks import Target
from trainers.stock.evaluation.command import render_summary, render_tables
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import Correlation, HorizonScores, ScoreRole

LONGEST = (
    "GARCH(1,1)-t, calibrated",
    "volatility-scaled quantiles, calibrated",
    "unconditional quantiles, refitted",
    "60-day empirical quantiles, calibrated",
)


def large(one: HorizonScores) -> HorizonScores:
    """Volatility scores with every number at its widest."""
    wide = Interval(value=0.0612, lower=0.0551, upper=0.0683)
    correlation = Correlation(ic=one.correlation.ic, rank_ic=one.correlation.ic, icir=-0.123, rank_icir=-0.1)
    return replace(one, crps=wide, winkler=wide, mae=wide, qlike=estimate(0.612), correlation=correlation)


def long_names() -> ModelEvaluation:
    """An evaluation of four horizons with the longest baseline names."""
    found = evaluation(adaptive=True)
    baselines = tuple(model_scores(name, ScoreRole.BASELINE, 4) for name in LONGEST)
    rows = tuple(replace(row, horizons=2 * tuple(map(large, row.horizons))) for row in (*found.rows, *baselines))
    one = found.comparison
    compared = replace(one, baseline=LONGEST[1], by_horizon=(*one.by_horizon, *one.by_horizon))
    return replace(found, rows=rows, comparison=compared, target=Target(horizons=(1, 5, 10, 20)), seeds=None)


def printed(parts: Iterable[RenderableType], capsys: pytest.CaptureFixture[str]) -> str:
    console = Console(width=80, highlight=False)
    for part in parts:
        console.print(part)
    return capsys.readouterr().out


def printed_tables(found: ModelEvaluation, capsys: pytest.CaptureFixture[str]) -> str:
    return printed(render_tables(found), capsys)


def test_the_summary_says_which_models_equal_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluation()
    assert found.confidence_set is not None
    lines = printed(render_summary(found), capsys).splitlines()
    assert "2 of 3 models are not distinguishable from the best at 10 %." in lines
    for row in found.rows:
        (line,) = (line for line in lines if line.startswith(row.name))
        assert line.split()[-1] == ("yes" if row.name in found.confidence_set.members else "no")


def test_a_summary_without_a_confidence_set_has_no_column_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(render_summary(replace(evaluation(), confidence_set=None)), capsys)
    assert "equal to the best" not in text
    assert "distinguishable from the best at" not in text


def test_no_word_of_a_name_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed_tables(long_names(), capsys)
    assert "…" not in text
    for word in " ".join(LONGEST).split():
        assert text.count(word) >= 2


def test_the_interval_of_a_correlation_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluation()
    first = found.rows[0].horizons[0].correlation.ic
    assert first is not None
    lines = printed_tables(found, capsys).splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("IC "))
    assert f"{first.value:.3f}" in lines[place]
    assert f"{first.lower:.3f} to {first.upper:.3f}" in lines[place + 1]
    assert "" not in [line.strip() for line in lines[place - 4 : place + 2]]
