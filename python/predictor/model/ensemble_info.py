"""What an ensemble is, for people and programs."""

import hashlib
from collections.abc import Sequence

from predictor import canonical
from predictor.artifact import COMBINATION, EnsembleManifest
from predictor.canonical import Json
from predictor.catalog import ModelInfo
from predictor.instance import INTEGRATED_GRADIENTS
from predictor.model.answers import Identity
from predictor.model.joint_reading import JointReading, named_once

KIND = "ensemble"
"""What stands in place of a network's kind."""


def ensemble_info(
    identity: Identity,
    manifest: EnsembleManifest,
    reading: JointReading,
    members: Sequence[ModelInfo],
    aliases: tuple[str, ...],
    *,
    is_default: bool,
) -> ModelInfo:
    """Everything about it; the card lists the members, which come in the manifest's order."""
    longest = max(info.encoder_length for info in members)
    return ModelInfo(
        name=identity.name,
        version=identity.version,
        aliases=aliases,
        is_default=is_default,
        kind=KIND,
        observed_features=named_once(info.observed_features for info in members),
        known_features=named_once(info.known_features for info in members),
        static_features=named_once(info.static_features for info in members),
        covariates=reading.covariates,
        schema_hash=_schema_hash([info.schema_hash for info in members]),
        encoder_length=longest,
        lookback=reading.bars_needed - longest + 1,
        bars_needed=reading.bars_needed,
        future_length=manifest.target.reach,
        horizons=manifest.target.horizons,
        quantiles=manifest.quantiles,
        lag=manifest.target.lag,
        target_kind=manifest.target.kind.value,
        calendar=manifest.calendar,
        calendar_ends=min(info.calendar_ends for info in members),
        is_panel_model=any(info.is_panel_model for info in members),
        explain_methods=(INTEGRATED_GRADIENTS,),
        weights_hash=identity.weights_hash,
        card_json=canonical.to_bytes({**manifest.card, **_facts(manifest, members)}).decode(),
    )


def _schema_hash(hashes: Sequence[str]) -> str:
    """The members' own if they share one; else a name for all of theirs."""
    return hashes[0] if len(set(hashes)) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _facts(manifest: EnsembleManifest, infos: Sequence[ModelInfo]) -> dict[str, Json]:
    """What the card says of the members, computed from them."""
    members: list[Json] = [
        {
            "name": name,
            "kind": info.kind,
            "encoder_length": info.encoder_length,
            "bars_needed": info.bars_needed,
            "features": len(info.observed_features) + len(info.known_features) + len(info.static_features),
            "weights_hash": info.weights_hash,
            "manifest_hash": digest,
        }
        for (name, digest), info in zip(manifest.members.items(), infos, strict=True)
    ]
    return {"combination": COMBINATION, "members": members}
