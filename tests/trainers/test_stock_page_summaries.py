"""Summary sentences of evaluation and audit pages match their results."""

from dataclasses import replace

import numpy as np
import pytest
from audits import audit_record
from evaluations import evaluation

from predictor.audit_record import AuditVerdict
from trainers.stock.audit.page import describe_findings as audit_findings
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.report import describe_findings


def with_band(found: ModelEvaluation, *bands: Interval) -> ModelEvaluation:
    """The evaluation with other band coverages, one per horizon."""
    ours, *others = found.rows
    horizons = tuple(replace(h, band=band) for h, band in zip(ours.horizons, bands, strict=True))
    return replace(found, rows=(replace(ours, horizons=horizons), *others))


RIVAL = "GARCH(1,1)-t, calibrated"


@pytest.mark.parametrize(
    ("skill", "verdict", "figures"),
    [
        (
            (0.021, 0.011, 0.032),
            "forecast better than the best of 2",
            ("2.1 % smaller", "1.1 % smaller", "3.2 % smaller"),
        ),
        ((0.0, -0.02, 0.02), "is not distinguishable from the", ("0.0 % smaller", "2.0 % larger", "2.0 % smaller")),
        ((-0.004, -0.02, 0.02), "is not distinguishable from the", ("0.4 % larger", "2.0 % larger", "2.0 % smaller")),
        ((-0.03, -0.05, -0.01), "forecast worse than the best of 2", ("3.0 % larger", "5.0 % larger", "1.0 % larger")),
    ],
)
def test_an_evaluation_says_first_whether_the_model_was_better(
    skill: tuple[float, float, float], verdict: str, figures: tuple[str, str, str]
) -> None:
    value, lower, upper = skill
    said = describe_findings(evaluation(skill=Interval(value=value, lower=lower, upper=upper)))[0]
    assert said.startswith(f"The model {verdict}")
    error, low, high = figures
    assert f"its error was {error} than that of {RIVAL}, by a 90 % interval between {low} and {high}," in said


def test_an_improvement_without_an_interval_has_none_in_words() -> None:
    said = describe_findings(evaluation(skill=Interval(value=-0.00001, lower=np.nan, upper=np.nan)))[0]
    assert said.endswith(f"its error was 0.0 % smaller than that of {RIVAL}, so the difference may be luck.")


def test_an_evaluation_says_that_the_network_kept_its_start() -> None:
    kept = replace(evaluation(), start_note="the network added nothing to HAR on these data")
    assert describe_findings(kept)[-1] == "The network added nothing to HAR on these data."
    assert len(describe_findings(evaluation())) == 3


def test_an_evaluation_of_too_few_days_says_how_many_are_missing() -> None:
    found = evaluation()
    short = replace(found, skill=replace(found.skill, days_short=7))
    assert describe_findings(short)[0].startswith(
        "7 more days are needed to tell skill from luck; so far its error was"
    )


@pytest.mark.parametrize(
    ("bands", "held", "said"),
    [
        (((0.79, 0.7, 0.85), (0.8, 0.7, 0.85)), "79.5 %", "luck explains the difference at every horizon"),
        (((0.7, 0.65, 0.75), (0.8, 0.7, 0.85)), "75.0 %", "more than luck explains: too few at 1 of 2 horizons"),
        (((0.7, 0.65, 0.75), (0.9, 0.85, 0.95)), "80.0 %", "too few at 1 and too many at 1 of 2 horizons"),
        (((0.7, np.nan, np.nan), (0.9, np.nan, np.nan)), "80.0 %", "it is unknown how much of the difference is luck"),
    ],
)
def test_an_evaluation_says_second_whether_its_bands_hold_what_they_should(
    bands: tuple[tuple[float, float, float], ...], held: str, said: str
) -> None:
    intervals = (Interval(value=value, lower=lower, upper=upper) for value, lower, upper in bands)
    sentence = describe_findings(with_band(evaluation(), *intervals))[1]
    between = "of the outcomes fell between the quantiles 10 % and 90 %, where 80 % should;"
    assert sentence.startswith(f"{held} {between}")
    assert sentence.endswith(f"{said}.")


def test_a_model_of_one_quantile_has_no_band_but_a_share_below() -> None:
    found = evaluation()
    ours, *others = found.rows
    below = Interval(value=0.47, lower=0.44, upper=0.52)
    horizons = tuple(replace(h, below=(below,)) for h in ours.horizons)
    single = replace(found, levels=(0.5,), rows=(replace(ours, horizons=horizons), *others))
    assert describe_findings(single)[1].startswith(
        "47.0 % of the outcomes fell below the median, where 50 % should; luck explains"
    )


def test_an_evaluation_of_one_training_counts_the_symbols_and_says_that_luck_is_unknown() -> None:
    found = evaluation(seeds=False)
    said = describe_findings(found)[2]
    assert said.startswith("The error was smaller than that of GARCH(1,1)-t, calibrated for 0 of 1 symbol;")
    assert "the effect of its seed is unknown" in said


# --- audits


def test_an_audit_reports_a_leak_first() -> None:
    record = audit_record()
    future = replace(record, future=replace(record.future, verdict=AuditVerdict.FAIL, changed=("forecast",)))
    shuffled = replace(record, permutation=replace(record.permutation, verdict=AuditVerdict.FAIL))
    assert "the model sees the future" in audit_findings(future)[0]
    assert "there is a leak" in audit_findings(shuffled)[0]


def test_an_audit_that_cannot_exclude_a_leak_reports_it() -> None:
    record = audit_record()
    unsure = replace(record, permutation=replace(record.permutation, verdict=AuditVerdict.UNDECIDED))
    assert "too uncertain to exclude a leak" in audit_findings(unsure)[0]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (AuditVerdict.PASS, "so one can act on it"),
        (AuditVerdict.FAIL, "so it is gone before one can act"),
        (AuditVerdict.UNDECIDED, "which does not show that any is left to act on"),
    ],
)
def test_an_audit_says_second_what_is_left_a_close_later(verdict: AuditVerdict, said: str) -> None:
    record = audit_record()
    sentence = audit_findings(replace(record, lags=replace(record.lags, verdict=verdict)))[1]
    assert "the skill is +2.19 % ± 0.40 %, and +1.31 % ± 0.50 % when one acts 1 close later" in sentence
    assert sentence.endswith(f"{said}.")


def test_an_audit_of_a_model_without_skill_says_zero() -> None:
    record = audit_record()
    none = tuple(replace(row, skill=-0.000001) for row in record.lags.rows)
    assert "the skill is +0.00 % ± 0.40 %" in audit_findings(replace(record, lags=replace(record.lags, rows=none)))[1]


def test_a_strategy_that_never_trades_or_never_moves_has_no_ratio() -> None:
    record = audit_record()
    still = replace(record, costs=replace(record.costs, break_even_bps=None))
    flat = replace(record, trials=replace(record.trials, sharpe=None))
    assert "never trades" in audit_findings(still)[2]
    assert "which left no Sharpe ratio a year" in audit_findings(flat)[2]
