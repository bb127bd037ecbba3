"""Features with their fitted numbers: what an artifact carries as features.json."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.bars import AdjustedBars
from predictor.canonical import Record, to_bytes
from predictor.errors import ArtifactError, ConfigurationError, ExpressionError
from predictor.features.feature_set import FeatureDefinition, FeatureSet, read_features
from predictor.features.fields import FORMULAS
from predictor.features.scaling import DEFAULT_CLIP, Scaling

FloatArray = NDArray[np.float64]

SOURCE = "features.json"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedFeatures:
    """A feature set and the scaling that was fitted for it.

    Attributes:
        features: F observed and K known features.
        scaling: The fitted numbers of the observed ones; known features come at their right size.
    """

    features: FeatureSet
    scaling: Scaling

    def __post_init__(self) -> None:
        """Check that the two belong together."""
        have, want = self.scaling.center.size, len(self.features.observed)
        if have != want:
            raise ConfigurationError(f"the scaling was fitted for {have} features, but the set has {want}")

    @classmethod
    def fit(
        cls,
        features: FeatureSet,
        values: FloatArray,
        *,
        present: NDArray[np.bool_] | None = None,
        clip: float = DEFAULT_CLIP,
    ) -> Self:
        """Fit the scaling on `features.evaluate(...)`, cut to the training rows [S, T, F]; see `Scaling.fit`."""
        return cls(features=features, scaling=Scaling.fit(values, names=features.names, present=present, clip=clip))

    def observed(self, bars: AdjustedBars) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The scaled observed features and their mask (True = known), both [S, T, F]; masked values are 0."""
        shape = (*bars.close.shape, len(self.features.observed))
        scaled, mask = np.empty(shape, np.float32), np.empty(shape, np.bool_)
        for rows, values in self.features.blocks(bars):
            scaled[rows], mask[rows] = self.scaling.apply(values)
        return scaled, mask

    def known(self, columns: Mapping[str, FloatArray]) -> NDArray[np.float32]:
        """The known features [T, K] of sessions whose calendar fields are given, each float64 [T].

        Raises:
            ConfigurationError: Naming a feature that is not finite.
        """
        values = self.features.evaluate_known(columns)
        finite = np.isfinite(values)
        if not finite.all():
            row, feature = (int(place[0]) for place in np.nonzero(~finite))
            name = self.features.known_names[feature]
            raise ConfigurationError(f"known feature {name} is {values[row, feature]} in row {row}; it must be finite")
        return values.astype(np.float32)

    def to_json(self) -> bytes:
        """The bytes of features.json: the same for the same features and numbers."""
        return to_bytes(
            {
                "operator_set": self.features.operator_set,
                "fields": {group: dict(formulas) for group, formulas in FORMULAS.items()},
                "observed": [_entry(definition) for definition in self.features.observed],
                "known": [_entry(definition) for definition in self.features.known],
                "lookback": self.features.lookback,
                "scaling": {
                    "center": self.scaling.center.tolist(),
                    "scale": self.scaling.scale.tolist(),
                    "clip": float(self.scaling.clip),
                },
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read features.json back.

        Raises:
            ArtifactError: Naming the key that is unknown, missing, repeated or wrong.
        """
        root = Record.from_bytes(data, SOURCE)
        operator_set, observed, known = read_features(root)
        scaling = root.record("scaling")
        center, scale, clip = scaling.numbers("center"), scaling.numbers("scale"), scaling.number("clip")
        fields, lookback = root.json("fields"), root.integer("lookback")
        scaling.end()
        root.end()
        try:
            fitted = cls(
                features=FeatureSet(observed=observed, known=known, operator_set=operator_set),
                scaling=Scaling(center=np.array(center), scale=np.array(scale), clip=clip),
            )
        except (ConfigurationError, ExpressionError) as error:
            raise ArtifactError(f"{SOURCE}: {error.message}", metadata=error.metadata) from error
        if fields != FORMULAS:
            raise root.refusal("fields", "mean something else than in this version")
        if lookback != fitted.features.lookback:
            raise root.refusal("lookback", f"is {lookback}, but these expressions look back {fitted.features.lookback}")
        _check_canonical(observed, fitted.features.observed)
        _check_canonical(known, fitted.features.known)
        return fitted

    @property
    def schema_hash(self) -> str:
        """SHA-256 of the bytes of features.json, in hex: windows made with another hash are another model's."""
        return hashlib.sha256(self.to_json()).hexdigest()


def _entry(definition: FeatureDefinition) -> dict[str, str]:
    return {
        "name": definition.name,
        "expression": definition.expression,
        "meaning": definition.meaning,
        "unit": definition.unit,
    }


def _check_canonical(given: tuple[FeatureDefinition, ...], definitions: tuple[FeatureDefinition, ...]) -> None:
    """An artifact's expression is its canonical text, so that every reader sees the same one."""
    for written, definition in zip(given, definitions, strict=True):
        if written != definition:
            raise ArtifactError(
                f"{SOURCE}: the expression of {definition.name} must be written as {definition.expression}"
            )
