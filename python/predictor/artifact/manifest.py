"""The manifest: the definition of a model, as values and as JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.networks import (
    NetworkConfig,
    NetworkKind,
    Normaliser,
    Target,
    TargetKind,
    check_quantiles,
    get_stored_kind,
    list_config_settings,
    read_config,
    read_normaliser,
    write_normaliser,
)
from predictor.windows import BarRequirements

FORMAT = "quantra-artifact"
ENSEMBLE_FORMAT = "quantra-ensemble"
FORMAT_VERSION = 2

MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
WEIGHTS, FEATURES, CALENDAR = "weights.safetensors", "features.json", "calendar.json"
GOLDEN_TEXT, GOLDEN_ARRAYS = "golden/golden.json", "golden/arrays.safetensors"
CONTENTS = (WEIGHTS, FEATURES, CALENDAR, GOLDEN_TEXT, GOLDEN_ARRAYS)
"""All files except the manifest and its digest."""

ENSEMBLE_CONTENTS = (GOLDEN_TEXT, GOLDEN_ARRAYS)
"""The same for an ensemble, without its members."""
MEMBERS = "members"
"""Folder of an ensemble with one artifact per member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """Conformal calibration: offsets that give each quantile its nominal coverage on past outcomes."""

    offsets: tuple[tuple[float, ...], ...]
    """[H][Q] in units of the window's scale."""
    effective_samples: tuple[float, ...]
    """[H] calibration windows divided by the horizon's overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSpec:
    """The typical input that explanations compare with; observed features are at their training mean, 0."""

    name: str
    known: tuple[float, ...]
    static: tuple[float, ...] = ()
    location: tuple[float, ...]
    """[H]"""
    scale: tuple[float, ...]
    """[H]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about the model that forecasts depend on, and its card."""

    kind: NetworkKind
    config: NetworkConfig
    target: Target
    quantiles: tuple[float, ...]
    normaliser: Normaliser
    encoder_length: int
    minimum: BarRequirements = field(default_factory=BarRequirements)
    conformal: Conformal
    baseline: BaselineSpec
    universe: tuple[str, ...] = ()
    """Symbols of a graph network, in node order; empty for other networks."""
    card: Mapping[str, Json]
    """Data, splits, training recipe, library versions and scores: information only, not used in computations."""


def encode_manifest(m: Manifest) -> dict[str, Json]:
    """Convert the manifest to JSON."""
    return {
        "network": {
            "kind": m.kind.name,
            "kind_version": m.kind.version,
            "config": list_config_settings(m.config),
            "arithmetic": m.kind.arithmetic,
        },
        "target": encode_target(m.target),
        "quantiles": list(m.quantiles),
        "normaliser": write_normaliser(m.normaliser),
        "encoder_length": m.encoder_length,
        "minimum": asdict(m.minimum),
        "conformal": encode_conformal(m.conformal),
        "baseline": {
            "name": m.baseline.name,
            "known": list(m.baseline.known),
            "static": list(m.baseline.static),
            "location": list(m.baseline.location),
            "scale": list(m.baseline.scale),
        },
        "universe": list(m.universe),
        "card": m.card,
    }


def decode_manifest(record: Record) -> Manifest:
    """Read the manifest; the record may hold more keys.

    Raises:
        ArtifactError: a key is missing or a value is invalid.
    """
    try:
        kind, config = _read_network(record.record("network"))
        target = decode_target(record.record("target"))
        normaliser, minimum = record.record("normaliser"), record.record("minimum")
        manifest = Manifest(
            kind=kind,
            config=config,
            target=target,
            quantiles=record.numbers("quantiles"),
            normaliser=read_normaliser(normaliser, target, normaliser.text("kind")),
            encoder_length=record.integer("encoder_length"),
            minimum=BarRequirements(encoder_share=minimum.number("encoder_share"), values=minimum.integer("values")),
            conformal=decode_conformal(record.record("conformal")),
            baseline=_read_baseline(record.record("baseline"), target),
            universe=record.texts("universe"),
            card=read_card(record.json("card")),
        )
        minimum.end()
        check_quantiles(manifest.quantiles)
    except (ConfigurationError, ValueError) as error:
        raise ArtifactError.of(MANIFEST, str(error)) from error
    check_conformal(manifest.conformal, manifest.target, manifest.quantiles)
    _check_universe(manifest)
    return manifest


def encode_target(target: Target) -> dict[str, Json]:
    """Convert the target to JSON."""
    return {"kind": target.kind.value, "lag": target.lag, "horizons": list(target.horizons)}


def encode_conformal(conformal: Conformal) -> dict[str, Json]:
    """Convert conformal offsets to JSON."""
    return {
        "offsets": [list(row) for row in conformal.offsets],
        "effective_samples": list(conformal.effective_samples),
    }


def decode_target(record: Record) -> Target:
    """Read the target from JSON; raises like `decode_manifest`."""
    target = Target(
        kind=TargetKind(record.text("kind")), lag=record.integer("lag"), horizons=record.integers("horizons")
    )
    record.end()
    return target


def decode_conformal(record: Record) -> Conformal:
    """Read conformal offsets from JSON; `check_conformal` checks their shape."""
    conformal = Conformal(offsets=record.rows("offsets"), effective_samples=record.numbers("effective_samples"))
    record.end()
    return conformal


def check_conformal(conformal: Conformal, target: Target, levels: tuple[float, ...]) -> None:
    """Raise ArtifactError unless the offsets have one number per horizon and quantile."""
    horizons, quantiles = len(target.horizons), len(levels)
    shape = [len(row) for row in conformal.offsets]
    if shape != [quantiles] * horizons or len(conformal.effective_samples) != horizons:
        raise ArtifactError.of(MANIFEST, f"conformal offsets must be {horizons} rows of {quantiles} numbers")


def _check_universe(manifest: Manifest) -> None:
    """Raise ArtifactError unless a graph network has unique symbols and other networks have none."""
    universe, kind = manifest.universe, manifest.kind
    if bool(universe) != kind.is_panel_model:
        need = "at least one" if kind.is_panel_model else "none"
        raise ArtifactError.of(
            MANIFEST, f"universe has {len(universe)} symbols, but network {kind.name!r} needs {need}"
        )
    twice = [symbol for symbol, count in Counter(universe).items() if count > 1]
    if twice:
        raise ArtifactError.of(MANIFEST, f"universe: {', '.join(twice[:5])} appears twice")


def read_card(value: Json) -> Mapping[str, Json]:
    """Read the card, which is any JSON object."""
    if not isinstance(value, Mapping):
        raise ArtifactError.of(MANIFEST, "card must be an object")
    return value


def _read_network(record: Record) -> tuple[NetworkKind, NetworkConfig]:
    kind, version = get_stored_kind(record.text("kind")), record.integer("kind_version")
    if version != kind.version:
        raise ArtifactError.of(MANIFEST, f"network {kind.name!r} is version {version}, this program has {kind.version}")
    if record.json("arithmetic") != kind.arithmetic:
        raise record.make_error(
            "arithmetic", f"is not that of {kind.name!r} version {version}: {dict(kind.arithmetic)}"
        )
    settings = record.json("config")
    record.end()
    if not isinstance(settings, Mapping):
        raise ArtifactError.of(MANIFEST, "network config must be an object")
    scalars = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
    if len(scalars) != len(settings):
        raise ArtifactError.of(MANIFEST, "network config must hold only numbers, texts and booleans")
    return kind, read_config(kind, scalars)


def _read_baseline(record: Record, target: Target) -> BaselineSpec:
    horizons = len(target.horizons)
    baseline = BaselineSpec(
        name=record.text("name"),
        known=record.numbers("known"),
        static=record.numbers("static"),
        location=record.numbers("location"),
        scale=record.numbers("scale"),
    )
    record.end()
    if len(baseline.location) != horizons or len(baseline.scale) != horizons:
        raise record.make_error("location", f"and scale must have {horizons} numbers each, one per horizon")
    return baseline
