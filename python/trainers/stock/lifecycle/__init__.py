"""Retrain, compare, promote and roll back the versions of a model."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from predictor.errors import ConfigurationError, format_names
from predictor.ledger import Ledger
from predictor.lifecycle import Check, ComparisonResult, PromotionResult
from predictor.registry import AliasMove, find_model_folder
from trainers.stock.lifecycle.promotion import (
    check_gates,
    promote,
    promote_if_passed,
    roll_back_champion,
)
from trainers.stock.lifecycle.retraining_plan import RetrainingPlan, plan_retraining, retrain
from trainers.stock.lifecycle.version_comparison import (
    ComparedVersion,
    VersionComparison,
    compare_recipes,
    compare_versions,
    load_champion,
    load_version,
)

__all__ = [
    "RetrainingPlan",
    "StockLifecycle",
    "VersionComparison",
    "check_gates",
    "compare_recipes",
    "compare_versions",
    "load_version",
    "plan_retraining",
    "promote",
    "retrain",
]


@dataclass(frozen=True, slots=True)
class StockLifecycle:
    """Compares and promotes the versions of stock models; a `predictor.lifecycle.ModelLifecycle`."""

    models: Path
    """Folder of NAME/VERSION artifacts."""

    def compare(
        self, ledger: Ledger, champion: str, challenger: str, *, check: Check, start: int | None = None
    ) -> ComparisonResult:
        """See `ModelLifecycle`. Models with covariates are refused, because a ledger has none."""
        old, new = (load_version(self.models, reference) for reference in (champion, challenger))
        comparison = _compare(old, new, ledger, check, start)
        return ComparisonResult(
            champion=comparison.champion,
            challenger=comparison.challenger,
            decision=comparison.decision,
            need=comparison.need,
            sentence=comparison.sentence,
            first_session=comparison.first_day,
            last_session=comparison.last_day,
            days=comparison.days,
            symbols=comparison.symbols,
            improvement=comparison.losses.improvement.value,
            lower=comparison.bounds.lower,
            upper=comparison.bounds.upper,
            whole=comparison.to_json(),
        )

    def promote(
        self, ledger: Ledger, version: str, *, reason: str, check: Check, overridden: Collection[str] = ()
    ) -> PromotionResult:
        """See `ModelLifecycle`."""
        challenger = load_version(self.models, version)
        champion = load_champion(challenger.model_folder)
        return promote_if_passed(
            challenger,
            champion,
            compare=partial(_compare, champion, challenger, ledger, check)
            if champion and ledger.last_session
            else None,
            reason=reason,
            ledger=ledger,
            overridden=overridden,
            uncompared="none; the ledger has no bars",
        )

    def roll_back(self, ledger: Ledger, name: str, *, reason: str, expected: int | None = None) -> AliasMove:
        """See `ModelLifecycle`."""
        return roll_back_champion(find_model_folder(self.models, name), reason=reason, ledger=ledger, expected=expected)


def _compare(
    champion: ComparedVersion, challenger: ComparedVersion, ledger: Ledger, check: Check, start: int | None = None
) -> VersionComparison:
    for version in (champion, challenger):
        needs = [need.name for need in version.trained_model.model.info((), is_default=False).covariates]
        if needs:
            raise ConfigurationError(
                f"{version.reference} reads the covariates {format_names(needs)}, which a ledger does not have; use "
                "`quantra compare` or `quantra promote` with --bars, and --covariates or --static"
            )
    if not ledger.last_session:
        raise ConfigurationError("the ledger has no bars to compare the versions on; record some with `quantra daily`")
    return compare_versions(champion, challenger, ledger.panel(), start=start, check=check)
