"""Conversion of comparisons and promotions of versions."""

import json
from collections.abc import Mapping
from typing import Final

from predictor._pb import ledger_pb2 as pb
from predictor.lifecycle import ComparisonResult, PromotionResult

_DECISIONS: Final[Mapping[bool | None, pb.ComparisonDecision]] = {
    True: pb.COMPARISON_DECISION_FOR,
    False: pb.COMPARISON_DECISION_AGAINST,
    None: pb.COMPARISON_DECISION_UNDECIDED,
}


def encode_comparison(result: ComparisonResult) -> pb.CompareVersionsResponse:
    """Encode a comparison of two versions."""
    has_bounds = result.lower is not None
    return pb.CompareVersionsResponse(
        champion=result.champion,
        challenger=result.challenger,
        decision=_DECISIONS[result.decision],
        need=result.need,
        sentence=result.sentence,
        first_session=result.first_session,
        last_session=result.last_session,
        days=result.days,
        symbols=result.symbols,
        improvement=result.improvement if has_bounds else None,
        lower=result.lower,
        upper=result.upper,
        result_json=json.dumps(result.whole, allow_nan=False),
    )


def encode_promotion(result: PromotionResult) -> pb.PromoteVersionResponse:
    """Encode the result of a promotion."""
    return pb.PromoteVersionResponse(
        promoted=result.promoted,
        gates=[
            pb.GateResult(
                name=gate.name, passed=gate.passed, overridden=gate.overridden, need=gate.need, have=gate.have
            )
            for gate in result.gates
        ],
        champion=result.champion,
    )
