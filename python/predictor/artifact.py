"""The artifact: a folder that carries everything a forecast needs, and that proves it arrived whole.

    manifest.json            what the model is; size and SHA-256 of every other file
    manifest.sha256          the manifest's own digest, in the form that `sha256sum --check` reads
    weights.safetensors      the network's parameters
    features.json            feature expressions, operator-set version, fitted numbers
    calendar.json            the exchange's sessions
    golden/golden.json       the golden instance: bars, what every stage must make of them, the expected refusals
    golden/arrays.safetensors

Nothing in it can execute. Loading verifies every digest first, then reads strictly; any doubt is an ArtifactError
that names file and cause, and there is no fallback.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from predictor import canonical
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError, QuantraError
from predictor.features import FittedFeatures
from predictor.networks import (
    InputSizes,
    NetworkConfig,
    NetworkKind,
    Normaliser,
    Target,
    TargetKind,
    build_network,
    check_quantiles,
    kind_named,
    read_config,
    write_config,
)
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline

FORMAT = "quantra-artifact"
FORMAT_VERSION = 1

MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
WEIGHTS, FEATURES, CALENDAR = "weights.safetensors", "features.json", "calendar.json"
GOLDEN_TEXT, GOLDEN_ARRAYS = "golden/golden.json", "golden/arrays.safetensors"
CONTENTS = (WEIGHTS, FEATURES, CALENDAR, GOLDEN_TEXT, GOLDEN_ARRAYS)

MAX_FILE_BYTES = 2 << 30
MAX_TEXT_BYTES = 16 << 20
MAX_HEADER_BYTES = 1 << 20
MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """Conformal calibration: what is added to each quantile so that past outcomes fell below it as often as it says."""

    offsets: tuple[tuple[float, ...], ...]
    """[H][Q] in units of the window's volatility."""
    effective_samples: tuple[float, ...]
    """[H] calibration windows divided by the horizon's overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSpec:
    """The typical input that explanations compare with. Observed features are at their training mean, which is 0."""

    name: str
    known: tuple[float, ...]
    location: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the model is, as far as a forecast depends on it, and its card."""

    kind: NetworkKind
    config: NetworkConfig
    target: Target
    quantiles: tuple[float, ...]
    normaliser: Normaliser
    encoder_length: int
    conformal: Conformal
    baseline: BaselineSpec
    card: Mapping[str, Json]
    """Data, splits, training recipe, library versions, scores beside the baselines: for people, never computed with."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Artifact:
    """A model's parts, whole and checked."""

    manifest: Manifest
    pipeline: Pipeline
    weights: Mapping[str, Tensor]

    def network(self) -> nn.Module:
        """A network of the manifest's kind with these weights, in eval mode.

        Raises:
            ArtifactError: the weights are not exactly those of this network: names, shapes, float32, finite.
        """
        network = _fresh_network(self.manifest, self.pipeline.sizes)
        expected = network.state_dict()
        _check_names(expected, self.weights)
        for name, tensor in self.weights.items():
            _check_tensor(name, tensor, expected[name])
        network.load_state_dict(dict(self.weights), strict=True)
        return network.eval()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Golden:
    """The golden instance as it is stored: facts in text and arrays, see predictor.golden."""

    text: Mapping[str, Json]
    arrays: Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """An artifact as it was found on disk."""

    artifact: Artifact
    golden: Golden
    weights_hash: str
    manifest_hash: str


def save(folder: Path, artifact: Artifact, golden: Golden) -> None:
    """Write the artifact whole or not at all: into a new folder, flushed to disk, then renamed.

    Raises:
        ConfigurationError: something stands at `folder` already.
    """
    if folder.exists():
        raise ConfigurationError(f"{folder} exists already; an artifact is never overwritten: choose another --out")
    files = _contents(artifact, golden)
    manifest = canonical.to_bytes(_manifest_json(artifact, files))
    files[MANIFEST] = manifest
    files[DIGEST] = f"{_sha256(manifest)}  {MANIFEST}\n".encode()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_all(draft, files)
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _flush_folder(folder.parent)


def load(folder: Path) -> Stored:
    """Read and verify an artifact.

    Raises:
        ArtifactError: a file is missing, foreign, changed, cut, too large or of a newer format; or a value in it
            is not what it must be.
    """
    files, record, digest = _verified_files(folder)
    manifest, schema_hash = _read_manifest(record)
    try:
        features = FittedFeatures.from_json(files[FEATURES])
        calendar = SessionCalendar.from_json(files[CALENDAR])
        pipeline = Pipeline(
            features=features,
            target=manifest.target,
            normaliser=manifest.normaliser,
            calendar=calendar,
            encoder_length=manifest.encoder_length,
        )
    except ArtifactError:
        raise
    except QuantraError as error:
        raise ArtifactError(f"{folder.name}: {error.message}") from error
    if features.schema_hash != schema_hash:
        raise ArtifactError(f"{FEATURES}: schema hash is {features.schema_hash}, the manifest says {schema_hash}")
    weights = _read_tensors(files[WEIGHTS])
    golden = Golden(text=_golden_text(files[GOLDEN_TEXT]), arrays=_read_arrays(files[GOLDEN_ARRAYS]))
    artifact = Artifact(manifest=manifest, pipeline=pipeline, weights=weights)
    return Stored(artifact=artifact, golden=golden, weights_hash=_sha256(files[WEIGHTS]), manifest_hash=digest)


def is_artifact(folder: Path) -> bool:
    """Whether the folder claims to be an artifact; `load` finds out whether it is a whole one."""
    return (folder / MANIFEST).is_file()


# --- writing


def _contents(artifact: Artifact, golden: Golden) -> dict[str, bytes]:
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(artifact.weights.items())}
    return {
        WEIGHTS: save_tensors(weights),
        FEATURES: artifact.pipeline.features.to_json(),
        CALENDAR: artifact.pipeline.calendar.to_json(),
        GOLDEN_TEXT: canonical.to_bytes(golden.text),
        GOLDEN_ARRAYS: save_arrays({name: np.ascontiguousarray(a) for name, a in sorted(golden.arrays.items())}),
    }


def _manifest_json(artifact: Artifact, files: Mapping[str, bytes]) -> Json:
    m = artifact.manifest
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()},
        "network": {"kind": m.kind.name, "kind_version": m.kind.version, "config": write_config(m.config)},
        "target": {"kind": m.target.kind.value, "lag": m.target.lag, "horizons": list(m.target.horizons)},
        "quantiles": list(m.quantiles),
        "normaliser": asdict(m.normaliser),
        "encoder_length": m.encoder_length,
        "schema_hash": artifact.pipeline.features.schema_hash,
        "conformal": {
            "offsets": [list(row) for row in m.conformal.offsets],
            "effective_samples": list(m.conformal.effective_samples),
        },
        "baseline": {
            "name": m.baseline.name,
            "known": list(m.baseline.known),
            "location": m.baseline.location,
            "scale": m.baseline.scale,
        },
        "card": m.card,
    }


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o644)
    for inner in {(folder / name).parent for name in files}:
        _flush_folder(inner)


def _flush_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system offers that for folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- reading


def _verified_files(folder: Path) -> tuple[dict[str, bytes], Record, str]:
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is no folder, so no artifact")
    raw = _read(folder, MANIFEST, MAX_TEXT_BYTES)
    _check_manifest_digest(raw, _read(folder, DIGEST, 1024))
    record = Record(canonical.from_bytes(raw, MANIFEST), MANIFEST)
    _check_format(record)
    listed = record.record("files")
    if set(listed.keys()) != set(CONTENTS):
        raise ArtifactError(f"{MANIFEST}: lists files {list(listed.keys())}, expected {sorted(CONTENTS)}")
    _check_no_strangers(folder)
    files = {name: _read_verified(folder, name, listed.record(name)) for name in CONTENTS}
    return files, record, _sha256(raw)


def _check_manifest_digest(manifest: bytes, digest_file: bytes) -> None:
    expected = f"{_sha256(manifest)}  {MANIFEST}\n".encode()
    if digest_file != expected:
        raise ArtifactError(f"{MANIFEST}: its SHA-256 is not the one in {DIGEST}; the artifact was changed or damaged")


def _check_format(record: Record) -> None:
    name, version = record.text("format"), record.integer("format_version")
    if name != FORMAT:
        raise ArtifactError(f"{MANIFEST}: format is {name!r}, expected {FORMAT!r}")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"{MANIFEST}: format version is {version}, this program reads {FORMAT_VERSION}; "
            "update quantra, or train the model again"
        )


def _check_no_strangers(folder: Path) -> None:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    strangers = sorted(found - {MANIFEST, DIGEST, *CONTENTS})
    if strangers:
        raise ArtifactError(f"{strangers[0]}: does not belong to the artifact")


def _read_verified(folder: Path, name: str, entry: Record) -> bytes:
    size, digest = entry.integer("bytes"), entry.text("sha256")
    entry.end()
    data = _read(folder, name, MAX_FILE_BYTES)
    if len(data) != size:
        raise ArtifactError(f"{name}: has {len(data)} bytes, the manifest says {size}; the file was cut or changed")
    if _sha256(data) != digest:
        raise ArtifactError(f"{name}: its SHA-256 is not the manifest's; the file was changed or damaged")
    return data


def _read(folder: Path, name: str, limit: int) -> bytes:
    path = folder / name
    if not path.is_file() or path.is_symlink():
        raise ArtifactError(f"{name}: the file is missing")
    if path.stat().st_size > limit:
        raise ArtifactError(f"{name}: is larger than {limit} bytes")
    return path.read_bytes()


def _read_manifest(record: Record) -> tuple[Manifest, str]:
    """The manifest and the schema hash it names."""
    try:
        kind, config = _read_network(record.record("network"))
        manifest = Manifest(
            kind=kind,
            config=config,
            target=_read_target(record.record("target")),
            quantiles=record.numbers("quantiles"),
            normaliser=_read_normaliser(record.record("normaliser")),
            encoder_length=record.integer("encoder_length"),
            conformal=_read_conformal(record.record("conformal")),
            baseline=_read_baseline(record.record("baseline")),
            card=_read_card(record.json("card")),
        )
        check_quantiles(manifest.quantiles)
    except (ConfigurationError, ValueError) as error:
        raise ArtifactError(f"{MANIFEST}: {error}") from error
    schema_hash = record.text("schema_hash")
    record.end()
    _check_conformal(manifest)
    return manifest, schema_hash


def _read_network(record: Record) -> tuple[NetworkKind, NetworkConfig]:
    kind, version = kind_named(record.text("kind")), record.integer("kind_version")
    if version != kind.version:
        raise ArtifactError(f"{MANIFEST}: network {kind.name!r} is version {version}, this program has {kind.version}")
    settings = record.json("config")
    record.end()
    if not isinstance(settings, Mapping):
        raise ArtifactError(f"{MANIFEST}: network config must be an object")
    scalars = {name: value for name, value in settings.items() if isinstance(value, bool | int | float | str)}
    if len(scalars) != len(settings):
        raise ArtifactError(f"{MANIFEST}: network config holds something else than plain values")
    return kind, read_config(kind, scalars)


def _read_target(record: Record) -> Target:
    target = Target(
        kind=TargetKind(record.text("kind")), lag=record.integer("lag"), horizons=record.integers("horizons")
    )
    record.end()
    return target


def _read_normaliser(record: Record) -> Normaliser:
    normaliser = Normaliser(
        window=record.integer("window"),
        decay=record.number("decay"),
        centred=record.flag("centred"),
        floor=record.number("floor"),
    )
    record.end()
    return normaliser


def _read_conformal(record: Record) -> Conformal:
    rows = record.json("offsets")
    if not isinstance(rows, list):
        raise ArtifactError(f"{MANIFEST}: conformal offsets must be a list of lists")
    offsets = tuple(Record({"row": row}, f"{MANIFEST}: conformal offsets").numbers("row") for row in rows)
    conformal = Conformal(offsets=offsets, effective_samples=record.numbers("effective_samples"))
    record.end()
    return conformal


def _check_conformal(manifest: Manifest) -> None:
    horizons, quantiles = len(manifest.target.horizons), len(manifest.quantiles)
    shape = [len(row) for row in manifest.conformal.offsets]
    if shape != [quantiles] * horizons or len(manifest.conformal.effective_samples) != horizons:
        raise ArtifactError(f"{MANIFEST}: conformal offsets must be {horizons} rows of {quantiles} numbers")


def _read_baseline(record: Record) -> BaselineSpec:
    baseline = BaselineSpec(
        name=record.text("name"),
        known=record.numbers("known"),
        location=record.number("location"),
        scale=record.number("scale"),
    )
    record.end()
    return baseline


def _read_card(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise ArtifactError(f"{MANIFEST}: card must be an object")
    return value


def _golden_text(data: bytes) -> Mapping[str, Json]:
    value = canonical.from_bytes(data, GOLDEN_TEXT)
    if not isinstance(value, Mapping):
        raise ArtifactError(f"{GOLDEN_TEXT}: must be an object")
    return value


def _read_tensors(data: bytes) -> dict[str, Tensor]:
    _check_header(WEIGHTS, data)
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise ArtifactError(f"{WEIGHTS}: {error}") from error


def _read_arrays(data: bytes) -> dict[str, NDArray[np.generic]]:
    _check_header(GOLDEN_ARRAYS, data)
    try:
        return load_arrays(data)
    except SafetensorError as error:
        raise ArtifactError(f"{GOLDEN_ARRAYS}: {error}") from error


def _check_header(name: str, data: bytes) -> None:
    """Bound the header before a reader allocates for it: 8 bytes of length, then JSON."""
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES or length > len(data) - 8:
        raise ArtifactError(f"{name}: its header claims {length} bytes; at most {MAX_HEADER_BYTES} are read")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise ArtifactError(f"{name}: its header is no JSON") from error
    if not isinstance(header, dict) or len(header) > MAX_ENTRIES:
        raise ArtifactError(f"{name}: its header must be an object of at most {MAX_ENTRIES} entries")


# --- the network


def _fresh_network(manifest: Manifest, sizes: InputSizes) -> nn.Module:
    """A network whose weights will be overwritten; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        return build_network(
            manifest.kind, manifest.config, sizes=sizes, target=manifest.target, levels=manifest.quantiles
        )


def _check_names(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    missing, unknown = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or unknown:
        raise ArtifactError(f"{WEIGHTS}: missing weights {missing}, unknown weights {unknown}")


def _check_tensor(name: str, found: Tensor, expected: Tensor) -> None:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise ArtifactError(
            f"{WEIGHTS}: {name} is {found.dtype} {list(found.shape)}, expected {expected.dtype} {list(expected.shape)}"
        )
    if not bool(torch.isfinite(found).all()):
        raise ArtifactError(f"{WEIGHTS}: {name} holds a value that is not finite")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
