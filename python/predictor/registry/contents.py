"""What a folder of models has, read from the manifests alone: no network is built, and nothing but them is verified."""

from collections.abc import Iterator
from pathlib import Path

from predictor import artifact, canonical
from predictor.canonical import Record
from predictor.card import Card
from predictor.catalog import ModelListing
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError
from predictor.registry.layout import meant_by, names_in, read_aliases, versions_in


def contents(models: Path) -> tuple[ModelListing, ...]:
    """Every version in a folder of models, by name and number.

    Raises:
        ConfigurationError: there is no such folder, or it cannot be read.
        ModelNotFoundError: it holds no model; the message names the folder that may be meant.
        ArtifactError: the aliases of a model cannot be read.
    """
    try:
        names = sorted(names_in(models))
        found = tuple(one for name in names for one in _line(models / name))
    except OSError as error:
        raise ConfigurationError(f"{models}: the folder cannot be read: {error.strerror}") from error
    if not found:
        raise ModelNotFoundError(f"{models} holds no model, which would be a folder NAME/VERSION{meant_by(models)}")
    return found


def _line(line: Path) -> Iterator[ModelListing]:
    versions = sorted(versions_in(line))
    aliases = read_aliases(line) if versions else {}
    for version in versions:
        own = tuple(sorted(alias for alias, number in aliases.items() if number == version))
        yield _listing(line / str(version), line.name, version, own)


def _listing(folder: Path, name: str, version: int, aliases: tuple[str, ...]) -> ModelListing:
    try:
        return _read(folder, name, version, aliases)
    except OSError as error:
        problem = f"the folder cannot be read: {error.strerror}"
        return ModelListing(name=name, version=version, aliases=aliases, problem=problem)


def _read(folder: Path, name: str, version: int, aliases: tuple[str, ...]) -> ModelListing:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    try:
        record = Record.from_bytes(artifact.verified_manifest(folder), artifact.MANIFEST)
        card = Card.from_json(canonical.to_bytes(record.json("card")).decode())
        kind, ends = _kind(record), _calendar_ends(folder, record)
    except ArtifactError as error:
        return ModelListing(name=name, version=version, aliases=aliases, size=size, problem=error.message)
    return ModelListing(
        name=name,
        version=version,
        aliases=aliases,
        kind=kind,
        skill=card.skill,
        trained_to=card.trained_to,
        calendar_ends=ends,
        size=size,
    )


def _kind(record: Record) -> str:
    return record.record("network").text("kind") if record.has("network") else "ensemble"


def _calendar_ends(folder: Path, record: Record) -> int:
    """An ensemble's manifest names the calendar alone, which ends with the first of its members'."""
    if record.has("network"):
        return record.record("calendar").integer("last")
    return min(_member_ends(folder / artifact.MEMBERS / one.text("name")) for one in record.records("members"))


def _member_ends(folder: Path) -> int:
    member = Record.from_bytes(artifact.verified_manifest(folder), artifact.MANIFEST)
    return member.record("calendar").integer("last")
