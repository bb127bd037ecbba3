"""Retrain a model when an alarm is red or its calendar ends, and promote a version that passes its gates."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from predictor.artifact import find_next_version
from predictor.errors import QuantraError, format_date
from predictor.evidence import Lamp
from predictor.ledger import EvidenceRecord, ForecastRole, Ledger, LedgerEvent
from predictor.model_health import SKILL, ModelVersion
from predictor.registry import CHAMPION, claim_champion, read_aliases
from predictor.registry.layout import list_versions
from trainers.loop import LoopError
from trainers.stock.daily.evenings import (
    RETRAINING,
    DailySettings,
    describe_alarm,
)
from trainers.stock.daily.recorded_models import RecordedModel, load_recorded
from trainers.stock.daily.replay import record_replays, replay_forecasts, sample_forecasts
from trainers.stock.feature_cache import FeatureCache, map_bars
from trainers.stock.lifecycle.promotion import (
    SHADOW_SESSIONS,
    check_gates,
    list_champions,
    list_failed,
    list_shadow_sessions,
    promote,
    record_moves,
)
from trainers.stock.lifecycle.retraining_plan import RetrainingPlan, plan_retraining, retrain
from trainers.stock.lifecycle.version_comparison import compare_versions, load_version
from trainers.stock.training_jobs import TrainingRunner

COOL_DOWN_SESSIONS: Final = 60
"""Sessions between two trainings."""

RETRY_SESSIONS: Final = 252
"""Sessions after which a version that was not promoted is trained again."""

RENEW_BEFORE_SESSIONS: Final = 300
"""A new version is due this many sessions before the calendar ends, so that it can be compared in time."""

_REPLAY_SAMPLE: Final = 50
"""Forecasts of a challenger that are replayed before its promotion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticRenewal:
    """Retrains and promotes a model after an evening, without a person; an `EveningAction`."""

    can_promote: bool = False
    """Whether to promote versions that pass their gates; otherwise a person does."""
    cache: FeatureCache | None = None
    """Has the features of trainings on disk; None computes them in memory."""

    def __call__(
        self, settings: DailySettings, champion: RecordedModel, session: int, evidence: Sequence[EvidenceRecord]
    ) -> int:
        """Promote the newest version and retrain, each if it is due; returns the number of rows written."""
        newest, rows = max(list_versions(settings.model_folder)), 0
        if self.can_promote:  # an evening that was killed may have left the event of its promotion out
            rows = record_moves(settings.model_folder, settings.ledger)
        if self.can_promote and newest != champion.version.number:
            rows += _promote_if_better(settings, champion, newest, session)
            if read_aliases(settings.model_folder).get(CHAMPION) == newest:  # the evidence is that of the old champion
                return rows
        wait = COOL_DOWN_SESSIONS if newest == champion.version.number else RETRY_SESSIONS
        reason = find_retraining_reason(champion, session, evidence)
        if reason and count_sessions_since_training(settings.ledger, settings.model_folder.name, session) >= wait:
            # Without an alias, the new version would replace it at once.
            claim_champion(settings.model_folder, champion.version.number)
            rows += _retrain(settings, session, reason, self.cache)
        return rows


def _retrain(settings: DailySettings, session: int, reason: str, cache: FeatureCache | None) -> int:
    name, detail = settings.model_folder.name, reason
    try:
        bars = map_bars(settings.ledger.panel(last=session), cache)
        plan = plan_retraining(settings.model_folder.parent, name, bars, settings.covariates, cache)
        number = max(list_versions(settings.model_folder))
        if not _is_result(plan, number):
            number = int(find_next_version(settings.model_folder).name)
            retrain(plan, settings.model_folder / str(number), TrainingRunner(jobs=settings.runner))
    except (QuantraError, LoopError) as error:
        number = 0
        detail = f"{reason}, but the training failed: {error}"
    key = f"{RETRAINING} {name} {session}"
    event = LedgerEvent(kind=RETRAINING, model=name, version=number, session=session, reason=detail, key=key)
    return settings.ledger.append([event])


def _is_result(plan: RetrainingPlan, number: int) -> bool:
    """Whether a version is the result of this plan, from an evening that was killed before it recorded the training."""
    try:
        card = load_version(plan.model_folder.parent, f"{plan.model_folder.name}@{number}").source.card
    except QuantraError:
        return False
    return card.get("retraining") == plan.card()["retraining"]


def find_retraining_reason(champion: RecordedModel, session: int, evidence: Sequence[EvidenceRecord]) -> str:
    """The first reason to retrain now; empty without one."""
    skill_monitors = f"{SKILL} {champion.version.model}@"
    for record in evidence:
        if record.lamp is Lamp.RED and not record.monitor.startswith(skill_monitors):
            return describe_alarm(record)
    if champion.count_sessions_left(session) <= RENEW_BEFORE_SESSIONS:
        return f"the calendar of {champion.reference} ends"
    return ""


def count_sessions_since_training(ledger: Ledger, name: str, session: int) -> int:
    """Evenings since the last training; RETRY_SESSIONS without one."""
    rows = ledger.query("select max(session) as last from event where kind = ? and model = ?", (RETRAINING, name))
    if rows[0]["last"] is None:
        return RETRY_SESSIONS
    query = "select count(distinct as_of) as days from forecast where model = ? and as_of > ? and as_of <= ?"
    return int(ledger.query(query, (name, rows[0]["last"], session))[0]["days"])


def _promote_if_better(settings: DailySettings, champion: RecordedModel, newest: int, session: int) -> int:
    """Promote the newest version if it passes all gates; they are checked every SHADOW_SESSIONS of its forecasts.

    A champion whose calendar has ended is replaced without the gate `losses`, because it can no longer forecast. A
    version that was the champion before is left to the person who replaced it.
    """
    ledger, models = settings.ledger, settings.model_folder.parent
    version = ModelVersion(settings.model_folder.name, newest)
    if version.number in list_champions(settings.model_folder):
        return 0
    try:
        challenger = load_recorded(settings.model_folder / str(newest), version, ForecastRole.CHALLENGER)
    except QuantraError:  # a finding of the evening says why
        return 0
    shadow = len(list_shadow_sessions(ledger, version, challenger.model.identity.weights_hash))
    if not shadow or shadow % SHADOW_SESSIONS:
        return 0
    old, new = (load_version(models, compared.reference, settings.covariates) for compared in (champion, challenger))
    replays = replay_forecasts(ledger, models, sample_forecasts(ledger, _REPLAY_SAMPLE, version), settings.covariates)
    recorded = record_replays(ledger, replays, session)
    comparison = None
    with suppress(QuantraError):  # such as too few days that both can forecast and have not seen
        shared = ledger.panel(last=min(session, champion.last_session))
        comparison = compare_versions(old, new, shared)
    overridden = () if champion.can_forecast(session) else ("losses",)
    gates = check_gates(old, new, comparison=comparison, ledger=ledger, overridden=overridden)
    if list_failed(gates):
        return recorded
    promote(new, old, gates, reason=f"it passed its gates on {format_date(session)}")
    return recorded + record_moves(settings.model_folder, ledger)
