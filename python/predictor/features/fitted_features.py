"""Features with their fitted scaling, stored in an artifact as features.json."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import FloatArray
from predictor.bars import AdjustedBars
from predictor.canonical import Json, Record, to_bytes
from predictor.errors import ArtifactError, ConfigurationError, ExpressionError
from predictor.features.expression import NO_COLUMNS, Columns, CovariateFields
from predictor.features.feature_set import FeatureDefinition, FeatureSet, read_features
from predictor.features.statics import DEFAULT_CLIP, StaticFeatures

NORMAL_QUARTILE_RANGE: Final = 1.3489795003921634
"""Interquartile range of the standard normal distribution; makes the scale of normal data its standard deviation."""

MIN_ROWS: Final = 20

SOURCE = "features.json"
_MAX_LISTED: Final = 5


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """Fitted scaling of F features: (x - center) / scale, clipped to [-clip, clip].

    Attributes:
        center: float64 [F], finite.
        scale: float64 [F], finite and positive.
        clip: Largest absolute scaled value; positive.
    """

    center: FloatArray
    scale: FloatArray
    clip: float = DEFAULT_CLIP

    def __post_init__(self) -> None:
        for name in ("center", "scale"):
            values = np.array(getattr(self, name), dtype=np.float64)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.center.ndim != 1 or self.center.shape != self.scale.shape:
            shapes = f"{list(self.center.shape)} and {list(self.scale.shape)}"
            raise ConfigurationError(f"center and scale must both have shape [F], but have {shapes}")
        if not np.isfinite(self.center).all():
            raise ConfigurationError(f"every center must be finite, but they are {self.center.tolist()}")
        if not (np.isfinite(self.scale) & (self.scale > 0)).all():
            raise ConfigurationError(f"every scale must be finite and positive, but they are {self.scale.tolist()}")
        if not 0 < self.clip < np.inf:
            raise ConfigurationError(f"clip must be finite and positive, but is {self.clip}")

    @classmethod
    def fit(
        cls,
        columns: Iterable[FloatArray],
        *,
        names: Sequence[str],
        present: NDArray[np.bool_] | None = None,
        clip: float = DEFAULT_CLIP,
        sparse: Collection[str] = (),
    ) -> Self:
        """Fit the median as center and the interquartile range as scale, which are robust to crashes and data errors.

        Quartiles are interpolated linearly between the two nearest values.

        Args:
            columns: For each feature, float64 [S, T] of only the training rows; non-finite values are ignored. May be
                a generator, so that not all features of a long history are in memory at once.
            names: F feature names, for messages.
            present: Bars to use, [S, T]; None = all.
            clip: Largest absolute scaled value.
            sparse: Names of features that may be constant most of the time, such as an indicator of rare days. If
                their quartiles are equal, their scale is the standard deviation.

        Raises:
            ConfigurationError: A feature has fewer than 20 finite values, or equal quartiles, or if it is sparse,
                equal values.
        """
        fitted = [
            _fit_one(name, column if present is None else column[present], sparse=name in sparse)
            for name, column in zip(names, columns, strict=True)
        ]
        numbers = np.array(fitted).reshape(-1, 2)
        return cls(center=numbers[:, 0], scale=numbers[:, 1], clip=clip)

    def apply(self, values: FloatArray) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Scale values in float64, then round to float32; non-finite values become 0 and are masked.

        Args:
            values: float64 [..., F].

        Returns:
            The scaled values as float32 and the mask, True where the value is known; both in the shape of `values`.
        """
        mask = np.isfinite(values)
        with np.errstate(all="ignore"):
            scaled = values - self.center
            scaled /= self.scale
            np.maximum(scaled, -self.clip, out=scaled)
            np.minimum(scaled, self.clip, out=scaled)
        np.copyto(scaled, 0.0, where=~mask)
        return scaled.astype(np.float32), mask


def _fit_one(name: str, column: FloatArray, *, sparse: bool) -> tuple[float, float]:
    finite = column[np.isfinite(column)]
    if finite.size < MIN_ROWS:
        raise ConfigurationError(
            f"feature {name} is known on {finite.size} bars of the training split, but needs {MIN_ROWS}; add "
            f"{MIN_ROWS - finite.size} bars to that split, or leave the feature out (--features FILE; if volumes "
            "are unknown, --features prices)"
        )
    low, middle, high = np.quantile(finite, (0.25, 0.5, 0.75))
    scale = float(high - low) / NORMAL_QUARTILE_RANGE
    if scale == 0 and sparse:
        scale = float(np.std(finite))
    if not 0 < scale < np.inf:
        raise ConfigurationError(
            f"feature {name} hardly varies in the training rows: its quartiles are {low:g} and {high:g}; leave it out "
            "of the features (--features FILE; if volumes are 0, --features prices)"
        )
    return float(middle), scale


NO_SCALING: Final = Scaling(center=np.zeros(0), scale=np.ones(0))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedFeatures:
    """A feature set with its fitted scaling.

    Known features of the calendar are not scaled and never unknown. A known feature of a covariate is scaled, and is 0
    where it is unknown; an additional column is 1 where it is known. These additional columns come last.

    Attributes:
        features: F observed and K known features.
        scaling: Scaling of the observed features.
        known_scaling: Scaling of the known features that read a covariate, in their order.
        statics: The static variables.
        schema_hash: SHA-256 of features.json, in hex; feature windows with another hash do not fit the model.
    """

    features: FeatureSet
    scaling: Scaling
    known_scaling: Scaling = NO_SCALING
    statics: StaticFeatures = field(default_factory=StaticFeatures)
    schema_hash: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        have, want = self.scaling.center.size, len(self.features.observed)
        if have != want:
            raise ConfigurationError(f"the scaling was fitted for {have} features, but the set has {want}")
        have, want = self.known_scaling.center.size, sum(self.features.of_covariates)
        if have != want:
            raise ConfigurationError(f"the known scaling was fitted for {have} features, but {want} read a covariate")
        _check_once((*self.features.names, *self.known_columns, *self.statics.names), "features and static covariates")
        series = self.features.covariates
        _check_once((*series.observed, *series.known, *self.statics.names), "covariates")
        object.__setattr__(self, "schema_hash", hashlib.sha256(self.to_json()).hexdigest())

    @classmethod
    def fit(
        cls,
        features: FeatureSet,
        columns: Iterable[FloatArray],
        *,
        known: FloatArray | None = None,
        statics: StaticFeatures | None = None,
        present: NDArray[np.bool_] | None = None,
        clip: float = DEFAULT_CLIP,
    ) -> Self:
        """Fit the scaling on training rows; see `Scaling.fit`.

        Args:
            features: The feature set.
            columns: Values [S, T] of each observed feature in the training rows, for example `features.columns(...)`.
            known: Result of `features.evaluate_known` for the same rows, [S or 1, T, K]; required if known features
                read a covariate.
            statics: Static variables, fitted on the training symbols.
            present: Bars to use, [S, T]; None = all.
            clip: Largest absolute scaled value.
        """
        scaling = Scaling.fit(columns, names=features.names, present=present, clip=clip, sparse=features.sparse)
        return cls.with_scaling(features, scaling, known=known, statics=statics)

    @classmethod
    def with_scaling(
        cls,
        features: FeatureSet,
        scaling: Scaling,
        *,
        known: FloatArray | None = None,
        statics: StaticFeatures | None = None,
    ) -> Self:
        """Fit the scaling of known features [S or 1, T, K] only; see `fit`."""
        return cls(
            features=features,
            scaling=scaling,
            known_scaling=NO_SCALING if known is None else _fit_known_scaling(features, known),
            statics=statics or StaticFeatures(),
        )

    def observed(
        self, bars: AdjustedBars, covariates: Columns = NO_COLUMNS, *, last: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Compute the scaled observed features and their mask (True = known), both [S, T, F]; masked values are 0.

        T is the last `last` sessions, or all sessions of the bars if it is None.
        """
        symbols, sessions = bars.close.shape
        shape = (symbols, last or sessions, len(self.features.observed))
        scaled, mask = np.empty(shape, np.float32), np.empty(shape, np.bool_)
        for rows, values in self.features.blocks(bars, covariates, last=last):
            scaled[rows], mask[rows] = self.scaling.apply(values)
        return scaled, mask

    @property
    def known_columns(self) -> tuple[str, ...]:
        """Names of the K' known columns: the known features, then the indicators of known values."""
        pairs = zip(self.features.known_names, self.features.of_covariates, strict=True)
        return (*self.features.known_names, *(f"{name}_is_known" for name, of_covariate in pairs if of_covariate))

    def known(self, columns: Columns, covariates: Columns = NO_COLUMNS) -> NDArray[np.float32]:
        """Compute the columns of known features for T sessions.

        Args:
            columns: The calendar's fields, each float64 [T].
            covariates: Known covariates by name, float64 [S, T], or [1, T] if equal for all symbols.

        Returns:
            float32 [S, T, K'], in the order of `known_columns`; S is 1 if nothing differs between symbols.

        Raises:
            ConfigurationError: A feature of the calendar is not finite.
        """
        values = self.features.evaluate_known(columns, covariates)
        is_covariate = np.array(self.features.of_covariates, np.bool_)
        finite = np.isfinite(values) | is_covariate
        if not finite.all():
            _, row, feature = (int(index[0]) for index in np.nonzero(~finite))
            name, value = self.features.known_names[feature], values[0, row, feature]
            raise ConfigurationError(f"known feature {name} is {value} in row {row}; it must be finite")
        plain = values.astype(np.float32)
        plain[..., is_covariate], mask = self.known_scaling.apply(values[..., is_covariate])
        return np.concatenate([plain, mask.astype(np.float32)], axis=-1)

    @property
    def known_groups(self) -> tuple[int, ...]:
        """Index of the known feature that each of the K' columns belongs to."""
        second = (k for k, of_covariate in enumerate(self.features.of_covariates) if of_covariate)
        return (*range(len(self.features.known)), *second)

    @property
    def static_groups(self) -> tuple[int, ...]:
        """Index of the static variable that each of the C columns belongs to."""
        return tuple(k for k, width in enumerate(self.statics.widths) for _ in range(width))

    def to_json(self) -> bytes:
        """Encode as features.json; equal features and numbers give equal bytes."""
        return to_bytes(
            {
                "operator_set": self.features.operator_set,
                "fields": {group: dict[str, Json](texts) for group, texts in self.features.formulas.items()},
                "observed": list(map(asdict, self.features.observed)),
                "known": list(map(asdict, self.features.known)),
                "covariates": {
                    "observed": list(self.features.covariates.observed),
                    "known": list(self.features.covariates.known),
                },
                "lookback": self.features.lookback,
                "scaling": _encode_scaling(self.scaling),
                "known_scaling": _encode_scaling(self.known_scaling),
                "static": self.statics.to_json(),
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Decode features.json.

        Raises:
            ArtifactError: A key is unknown, missing, repeated or invalid; the message names it.
        """
        root = Record.from_bytes(data, SOURCE)
        operator_set, observed, known = read_features(root)
        series, static = root.record("covariates"), root.record("static")
        scaling, known_scaling = root.record("scaling"), root.record("known_scaling")
        covariates = CovariateFields(observed=series.texts("observed"), known=series.texts("known"))
        series.end()
        fields, lookback = root.json("fields"), root.integer("lookback")
        root.end()
        try:
            fitted = cls(
                features=FeatureSet(observed=observed, known=known, covariates=covariates, operator_set=operator_set),
                scaling=_read_scaling(scaling),
                known_scaling=_read_scaling(known_scaling),
                statics=StaticFeatures.from_json(static),
            )
        except (ConfigurationError, ExpressionError) as error:
            raise ArtifactError(f"{SOURCE}: {error.message}", metadata=error.metadata) from error
        if fields != fitted.features.formulas:
            raise root.make_error("fields", "differ from those of this version")
        if lookback != fitted.features.lookback:
            raise root.make_error(
                "lookback", f"is {lookback}, but these expressions look back {fitted.features.lookback}"
            )
        _check_canonical(observed, fitted.features.observed)
        _check_canonical(known, fitted.features.known)
        return fitted


def _check_once(names: tuple[str, ...], kind: str) -> None:
    """Raise ConfigurationError if a name is repeated."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigurationError(f"names of {kind} appear twice: {', '.join(twice[:_MAX_LISTED])}")


def _fit_known_scaling(features: FeatureSet, known: FloatArray) -> Scaling:
    """Fit the scaling of the known features that read a covariate."""
    is_covariate = np.array(features.of_covariates, np.bool_)
    names = [name for name, of_covariate in zip(features.known_names, is_covariate, strict=True) if of_covariate]
    return Scaling.fit(np.moveaxis(known[..., is_covariate], -1, 0), names=names, sparse=names)


def _encode_scaling(scaling: Scaling) -> dict[str, Json]:
    return {"center": scaling.center.tolist(), "scale": scaling.scale.tolist(), "clip": float(scaling.clip)}


def _read_scaling(record: Record) -> Scaling:
    center, scale, clip = record.numbers("center"), record.numbers("scale"), record.number("clip")
    record.end()
    return Scaling(center=np.array(center), scale=np.array(scale), clip=clip)


def _check_canonical(entries: tuple[FeatureDefinition, ...], definitions: tuple[FeatureDefinition, ...]) -> None:
    """Check that an artifact's expressions are in canonical form, so that all readers parse the same text."""
    for entry, definition in zip(entries, definitions, strict=True):
        if entry != definition:
            raise ArtifactError(
                f"{SOURCE}: the expression of {definition.name} must be written as {definition.expression}"
            )
