"""The ensemble: a folder of artifacts that are served as one model, under one manifest.

manifest.json    target and offsets of the ensemble, SHA-256 of every member's manifest
manifest.sha256  digest of the manifest
golden/          golden instance of the ensemble
members/NAME/    one complete artifact per member

A member's manifest contains the SHA-256 of each of its files, so the ensemble's manifest covers all of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from predictor.artifact.artifact import Artifact, Golden, StoredArtifact
from predictor.artifact.folder import (
    add_manifest,
    check_absent,
    check_format,
    check_no_other_files,
    decode_golden,
    encode_golden,
    list_entries,
    load,
    read_listed_files,
    read_verified_files,
    read_verified_manifest,
    sha256,
    write_folder,
)
from predictor.artifact.manifest import (
    DIGEST,
    ENSEMBLE_CONTENTS,
    ENSEMBLE_FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    MEMBERS,
    Conformal,
    check_conformal,
    decode_conformal,
    decode_target,
    encode_conformal,
    encode_target,
    read_card,
)
from predictor.canonical import Json, Record
from predictor.covariates import get_request_group
from predictor.errors import ArtifactError, ConfigurationError
from predictor.networks import Target, check_quantiles

MAX_MEMBERS: Final = 32

ROUNDING: Final = 1e-9
"""Largest difference of a sum of weights from 1."""

COMBINATION: Final[Mapping[str, str]] = {
    "quantiles": "mean of each quantile over the members' calibrated forecasts (Vincent average)",
    "scores": "minus the mean of the members' ranks; none unless every member ranks",
    "offsets": "in units of the mean of the members' window volatilities, added to the mean, then uncrossed",
}
"""Rules of combination; an ensemble states them in full, and one with different rules is rejected."""

WEIGHTED_COMBINATION: Final[Mapping[str, str]] = {
    **COMBINATION,
    "quantiles": "mean of each quantile over the members' calibrated forecasts by the manifest's weights, then sorted",
}
"""The same for an ensemble with weights."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """Settings that all members of an ensemble share."""

    target: Target
    quantiles: tuple[float, ...]
    calendar: str

    def __str__(self) -> str:
        """The settings in a sentence."""
        levels = ", ".join(f"{level:g}" for level in self.quantiles)
        return f"{self.target}, quantiles {levels}, calendar {self.calendar}"


def check_compatible(members: Mapping[str, Artifact]) -> CommonSettings:
    """Check that artifacts, by member name, can form an ensemble, and return their shared settings.

    Networks, features, encoder lengths, normalisers and seeds may differ.

    Raises:
        ConfigurationError: targets, quantiles or calendars differ, or members define a feature's name or a
            covariate's group differently.
    """
    first, *_ = members
    for name, member in members.items():
        _check_equal("target", first, members[first].manifest.target, name, member.manifest.target)
        _check_equal("quantiles", first, members[first].manifest.quantiles, name, member.manifest.quantiles)
    calendars = {name: member.pipeline.calendar for name, member in members.items()}
    for (a, calendar), (b, other) in combinations(calendars.items(), 2):
        _check_equal("calendar", a, calendar.name, b, other.name)
        both = max(calendar.first, other.first), min(calendar.last, other.last)
        if both[0] > both[1] or not np.array_equal(calendar.sessions(*both), other.sessions(*both)):
            raise ConfigurationError(
                f"the calendars {other.name} of {a} and {b} have different sessions; train one of them again with the "
                "calendar package of the other"
            )
    _check_names(members)
    _check_covariates(members)
    manifest, calendar = members[first].manifest, calendars[first].name
    return CommonSettings(target=manifest.target, quantiles=manifest.quantiles, calendar=calendar)


def _check_equal(fact: str, a: str, value: object, b: str, other: object) -> None:
    if value != other:
        raise ConfigurationError(
            f"the {fact} of {a} is {value}, that of {b} is {other}; members of an ensemble must share it: leave one out"
        )


def _check_names(members: Mapping[str, Artifact]) -> None:
    """Check that each feature name has one definition, because explanations share names."""
    meanings: dict[str, tuple[str, str]] = {}
    for name, member in members.items():
        features = member.pipeline.features.features
        for feature in (*features.observed, *features.known):
            other, expression = meanings.setdefault(feature.name, (name, str(feature.expression)))
            if expression != str(feature.expression):
                raise ConfigurationError(
                    f"feature {feature.name!r} is {expression} in {other}, but {feature.expression} in {name}; "
                    "explanations cannot distinguish them: rename one and train its member again"
                )


def _check_covariates(members: Mapping[str, Artifact]) -> None:
    """Check that each covariate has one group, because callers send it once."""
    groups: dict[str, tuple[str, str]] = {}
    for name, member in members.items():
        for need in member.pipeline.covariates:
            other, group = groups.setdefault(need.name, (name, get_request_group(need)))
            _check_equal(f"group of covariate {need.name!r}", other, group, name, get_request_group(need))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleManifest:
    """Everything about the ensemble that forecasts depend on, and its card."""

    members: Mapping[str, str]
    """SHA-256 of each member's manifest, by name."""
    target: Target
    quantiles: tuple[float, ...]
    calendar: str
    conformal: Conformal
    """The ensemble's offsets, in addition to the members'; see `COMBINATION`."""
    weights: tuple[tuple[float, ...], ...] = ()
    """[M][Q] weight of each member at each quantile, with a sum of 1 per quantile; empty: all are equal."""
    card: Mapping[str, Json]
    """Data, splits, and scores with those of the members: information only, not used in computations."""

    def __post_init__(self) -> None:
        wrong = [name for name in self.members if not _NAME.fullmatch(name)]
        if wrong:
            raise ConfigurationError(
                f"member name {wrong[0][:80]!r} is invalid; it must have 1 to 64 letters, digits, dots, dashes and "
                "underscores"
            )
        if not 1 <= len(self.members) <= MAX_MEMBERS:
            raise ConfigurationError(f"an ensemble has 1 to {MAX_MEMBERS} members, but there are {len(self.members)}")
        if self.weights:
            self._check_weights()

    @property
    def combination(self) -> Mapping[str, str]:
        """The rules by which the members are combined."""
        return WEIGHTED_COMBINATION if self.weights else COMBINATION

    def _check_weights(self) -> None:
        members, quantiles = len(self.members), len(self.quantiles)
        if [len(row) for row in self.weights] != [quantiles] * members:
            raise ConfigurationError(f"weights must be {members} rows of {quantiles} numbers, one row per member")
        sums = [sum(column) for column in zip(*self.weights, strict=True)]
        if min(map(min, self.weights)) < 0 or max(abs(total - 1) for total in sums) > ROUNDING:
            raise ConfigurationError(
                f"weights must be 0 or more and have a sum of 1 per quantile, but the least is "
                f"{min(map(min, self.weights)):g} and the sums are {', '.join(f'{total:g}' for total in sums)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredEnsemble:
    """An ensemble that was loaded from a folder."""

    manifest: EnsembleManifest
    members: Mapping[str, StoredArtifact]
    golden: Golden
    manifest_hash: str
    """SHA-256 of the manifest, which identifies the ensemble and all its members."""

    @property
    def weights_hash(self) -> str:
        """SHA-256 over the members' names and weights."""
        return hash_ensemble_weights({name: member.weights_hash for name, member in self.members.items()})


def hash_ensemble_weights(members: Mapping[str, str]) -> str:
    """SHA-256 over lines of weight digests and names of the members, in the format of `sha256sum`."""
    return sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(members.items())).encode())


def save_ensemble(folder: Path, manifest: EnsembleManifest, members: Mapping[str, Path], golden: Golden) -> None:
    """Write the ensemble atomically, with a copy of every member.

    Args:
        folder: new folder.
        manifest: manifest of the ensemble, with its members.
        members: folder of each member.
        golden: golden instance of the ensemble.

    Raises:
        ConfigurationError: `folder` exists already.
        ArtifactError: a member is damaged or does not match the manifest.
    """
    check_absent(folder)
    golden_files = encode_golden(golden)
    files = add_manifest(_write_manifest(manifest, golden_files), golden_files)
    for name, digest in manifest.members.items():
        member = members[name]
        text, _, member_files = read_verified_files(member)
        if sha256(text) != digest:
            raise ArtifactError(f"{member}: its manifest was changed after it was read; build the ensemble again")
        unchanged = {**member_files, MANIFEST: text, DIGEST: (member / DIGEST).read_bytes()}
        files |= {f"{MEMBERS}/{name}/{file}": data for file, data in unchanged.items()}
    write_folder(folder, files)


def load_ensemble(folder: Path) -> StoredEnsemble:
    """Read and verify an ensemble and every member.

    Raises:
        ArtifactError: as `load`, for the ensemble's files or a member's, which the message names; or a member is
            missing or replaced, or the members do not fit together.
    """
    text = read_verified_manifest(folder)
    record = Record.from_bytes(text, MANIFEST)
    check_format(record, ENSEMBLE_FORMAT)
    manifest = _read_manifest(record)
    files = read_listed_files(folder, record, ENSEMBLE_CONTENTS)
    record.end()
    member_folders = [f"{MEMBERS}/{name}" for name in manifest.members]
    check_no_other_files(folder, (MANIFEST, DIGEST, *ENSEMBLE_CONTENTS), separate_folders=member_folders)
    members = {name: _load_member(folder, name, digest) for name, digest in manifest.members.items()}
    try:
        common = check_compatible({name: member.artifact for name, member in members.items()})
    except ConfigurationError as error:
        raise ArtifactError.of(MANIFEST, error.message) from error
    stated = CommonSettings(target=manifest.target, quantiles=manifest.quantiles, calendar=manifest.calendar)
    if stated != common:
        raise ArtifactError.of(MANIFEST, f"says {stated}, but its members forecast {common}")
    return StoredEnsemble(manifest=manifest, members=members, golden=decode_golden(files), manifest_hash=sha256(text))


def is_ensemble(folder: Path) -> bool:
    """Whether the folder has a verified manifest of an ensemble; `load_ensemble` verifies the rest."""
    try:
        record = Record.from_bytes(read_verified_manifest(folder), MANIFEST)
        return record.text("format") == ENSEMBLE_FORMAT
    except ArtifactError:
        return False  # loading it as an artifact reports the problem


# --- writing


def _write_manifest(m: EnsembleManifest, files: Mapping[str, bytes]) -> Json:
    return {
        "format": ENSEMBLE_FORMAT,
        "format_version": FORMAT_VERSION,
        "files": list_entries(files),
        "members": [{"name": name, "manifest_sha256": digest} for name, digest in m.members.items()],
        "combination": m.combination,
        **({"weights": [list(row) for row in m.weights]} if m.weights else {}),
        "target": encode_target(m.target),
        "quantiles": list(m.quantiles),
        "calendar": m.calendar,
        "conformal": encode_conformal(m.conformal),
        "card": m.card,
    }


# --- reading


def _read_manifest(record: Record) -> EnsembleManifest:
    weights = record.rows("weights") if record.has("weights") else ()
    rules = WEIGHTED_COMBINATION if weights else COMBINATION
    if record.json("combination") != rules:
        raise record.make_error("combination", f"is not this program's: {dict(rules)}")
    try:
        manifest = EnsembleManifest(
            members=_read_members(record),
            target=decode_target(record.record("target")),
            quantiles=record.numbers("quantiles"),
            calendar=record.text("calendar"),
            conformal=decode_conformal(record.record("conformal")),
            weights=weights,
            card=read_card(record.json("card")),
        )
        check_quantiles(manifest.quantiles)
    except (ConfigurationError, ValueError) as error:
        raise ArtifactError.of(MANIFEST, str(error)) from error
    check_conformal(manifest.conformal, manifest.target, manifest.quantiles)
    return manifest


def _read_members(record: Record) -> Mapping[str, str]:
    members: dict[str, str] = {}
    for entry in record.records("members"):
        name = entry.text("name")
        if name in members:
            raise entry.make_error("name", f"is {name!r}, the name of an earlier member")
        members[name] = entry.text("manifest_sha256")
        entry.end()
    return members


def _load_member(folder: Path, name: str, digest: str) -> StoredArtifact:
    path = f"{MEMBERS}/{name}"
    if (folder / MEMBERS).is_symlink() or (folder / path).is_symlink():
        raise ArtifactError.of(path, "is a link; an ensemble holds its members, not links to them")
    if not (folder / path).is_dir():
        raise ArtifactError.of(path, "the member is missing")
    try:
        member = load(folder / path)
    except ArtifactError as error:
        raise prefix_error_path(path, error) from error
    if member.manifest_hash != digest:
        problem = f"its SHA-256 is not the one in the ensemble's {MANIFEST}; another artifact is in its place"
        raise ArtifactError.of(f"{path}/{MANIFEST}", problem)
    return member


def prefix_error_path(path: str, error: ArtifactError) -> ArtifactError:
    """The same error with the path of a folder inside the artifact."""
    file = error.metadata.get("file")
    return ArtifactError(
        f"{path}/{error.message}", metadata={**error.metadata, **({} if file is None else {"file": f"{path}/{file}"})}
    )
