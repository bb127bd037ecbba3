"""The lock file, which lists the versions that may be served by the SHA-256 of their manifests."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

from predictor.artifact import MANIFEST
from predictor.errors import ArtifactError, ConfigurationError
from predictor.registry.layout import MAX_SHOWN_CHARACTERS, is_name, parse_version

RECIPE: Final = "run 'sha256sum */*/manifest.json' in the folder of models and keep what it prints"
"""How to create a lock file."""

_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?([^/.][^/]*)/([^/.][^/]*)/manifest\.json")


class _Entry(NamedTuple):
    name: str
    folder: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLock:
    """The versions that may be served.

    A lock file is the output of `sha256sum */*/manifest.json` in the models folder. A manifest contains the SHA-256 of
    every other file of its artifact, or of its members' manifests, so one line covers the whole version.
    """

    file: str
    """The lock file's name, for messages."""
    digests: Mapping[str, Mapping[int, str]]
    """SHA-256 of the manifest of each version, by the model's name."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a lock file; ignores lines of folders that are not versions, such as drafts.

        Raises:
            ConfigurationError: the file cannot be read, a line is not `sha256sum` output for a manifest, a version is
                listed twice, or the file lists no version.
        """
        lines = enumerate(_read_text(path).splitlines(), start=1)
        entries = [(number, _parse_entry(path, number, line)) for number, line in lines if line.strip()]
        digests: dict[str, dict[int, str]] = {}
        for number, (name, folder, digest) in entries:
            version = parse_version(folder)
            if version is None or not is_name(name):
                continue
            if version in digests.setdefault(name, {}):
                raise ConfigurationError(f"{path}: line {number} lists {name}/{version} again; make it anew: {RECIPE}")
            digests[name][version] = digest
        if not any(digests.values()):
            raise ConfigurationError(f"{path}: lists no version, so nothing could be served; {RECIPE}")
        return cls(file=path.name, digests=digests)

    def versions(self, name: str) -> frozenset[int]:
        """Return the listed versions of a model."""
        return frozenset(self.digests.get(name, {}))

    def check(self, name: str, version: int, manifest_hash: str) -> None:
        """Check that a version is listed with this manifest.

        Raises:
            ArtifactError: the version is not listed, or its manifest has another hash.
        """
        expected = self.digests.get(name, {}).get(version)
        if expected != manifest_hash:
            fault = "is not listed in" if expected is None else "is not the one listed in"
            raise ArtifactError.of(
                MANIFEST,
                f"{fault} the lock file {self.file}, so the version is not served; if it is meant to be, make the lock "
                f"file anew: {RECIPE}",
            )

    def missing(self, name: str, there: frozenset[int]) -> list[tuple[int, str]]:
        """Return each listed version of a model that has no folder, with an error message."""
        problem = f"is listed in the lock file {self.file}, but missing; put it in place, or make the lock file anew: "
        return [(version, problem + RECIPE) for version in sorted(self.versions(name) - there)]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: the lock file cannot be read: {error.strerror}; {RECIPE}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: the lock file is not text in UTF-8; {RECIPE}") from error


def _parse_entry(path: Path, number: int, line: str) -> _Entry:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ConfigurationError(
            f"{path}: line {number} is {line[:MAX_SHOWN_CHARACTERS]!r}, but must be 64 hexadecimal digits, two spaces "
            f"and NAME/VERSION/{MANIFEST}; {RECIPE}"
        )
    digest, name, folder = match.groups()
    return _Entry(name, folder, digest.lower())
