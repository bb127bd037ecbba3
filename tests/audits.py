"""A made-up audit in which every number is different."""

from predictor.audit_record import (
    AuditRecord,
    AuditVerdict,
    CostCheck,
    FutureCheck,
    LagCheck,
    LagRow,
    PermutationCheck,
    TrialsCheck,
)

YARDSTICK = "a yardstick, calibrated"


def audit_record(*, digest: str = "ab" * 32, subject: str = "an artifact", note: str = "a note") -> AuditRecord:
    return AuditRecord(
        digest=digest,
        subject=subject,
        bars="cd" * 32,
        first_session=20110505,
        last_session=20130129,
        future=FutureCheck(
            verdict=AuditVerdict.PASS,
            sessions=(20110505, 20120101),
            stages=("observed", "forecast"),
            changed=(),
            first_changed=None,
            deletion_gap=1.25e-6,
        ),
        permutation=PermutationCheck(
            verdict=AuditVerdict.PASS,
            epochs=3,
            yardstick=YARDSTICK,
            skill=0.0217,
            permuted=(-0.0011, 0.0023),
            error=0.0034,
        ),
        lags=LagCheck(
            verdict=AuditVerdict.UNDECIDED,
            horizon=5,
            yardstick=YARDSTICK,
            rows=(
                LagRow(lag=0, skill=0.0219, skill_error=0.004, ic=0.031, ic_error=0.02, sharpe=0.71, sharpe_error=0.6),
                LagRow(lag=1, skill=0.0131, skill_error=0.005, ic=None, ic_error=None, sharpe=None, sharpe_error=None),
            ),
        ),
        costs=CostCheck(
            verdict=AuditVerdict.UNDECIDED,
            strategy="rank",
            charged_bps=10.0,
            break_even_bps=17.5,
            sharpe=0.41,
            sharpe_error=0.6,
        ),
        trials=TrialsCheck(
            verdict=AuditVerdict.FAIL,
            trials=40,
            counted_by="from the card",
            sessions=436,
            sharpe=0.41,
            expected_best=1.62,
            probabilistic=0.74,
            deflated=0.04,
        ),
        notes=(note,),
    )
