"""The layout of a models folder: `NAME/VERSION/` artifacts, `NAME/aliases.json` and its history."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from predictor import artifact, canonical
from predictor.canonical import Record
from predictor.card import Card
from predictor.catalog import ModelListing
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.file_lock import lock_file
from predictor.registry.alias_history import (
    AliasMove,
    GateResult,
    MoveKind,
    create_move,
    find_previous_champion,
    read_moves,
    record_move,
)
from predictor.replacement import check_file, replace_file

ALIASES: Final = "aliases.json"

_LOCK: Final = f".{ALIASES}.lock"
"""Held while the aliases are changed, so that no change is lost."""

CHAMPION: Final = "champion"
"""The alias that a plain name resolves to."""

MAX_SHOWN_CHARACTERS: Final = 80
"""Most characters of external text in a message."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_VERSION = re.compile(r"0|[1-9][0-9]{0,8}")
"""Each version has one spelling; 01 is not valid for 1."""


def is_name(text: str) -> bool:
    """Whether the text is a valid model name."""
    return _NAME.fullmatch(text) is not None


def parse_version(text: str) -> int | None:
    """Parse a version; None if the text is not one."""
    return int(text) if _VERSION.fullmatch(text) else None


def list_names(models: Path) -> frozenset[str]:
    """Return the valid model names in a models folder.

    Raises:
        OSError: the folder is missing or cannot be read.
    """
    try:
        return frozenset(p.name for p in models.iterdir() if is_name(p.name) and p.is_dir())
    except ValueError:  # a NUL or a lone surrogate: such a folder cannot exist
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None


def list_versions(model_folder: Path) -> frozenset[int]:
    """Return the versions with a subfolder in a model's folder, valid or not.

    Raises:
        OSError: the folder is missing or cannot be read.
    """
    numbers = {p: parse_version(p.name) for p in model_folder.iterdir()}
    return frozenset(number for p, number in numbers.items() if number is not None and p.is_dir())


def suggest_models_folder(models: Path) -> str:
    """Suggest the parent or subfolder that holds models, for an error message; empty if neither does."""
    if artifact.is_artifact(models):
        return f"; did you mean {models.parent.parent}?"
    if any(map(artifact.is_artifact, models.glob("[0-9]*"))):
        return f"; did you mean {models.parent}?"
    deeper = (path.parent.parent for path in sorted(models.glob("*/*/[0-9]*")) if artifact.is_artifact(path))
    inside = next(deeper, None)
    return "" if inside is None else f"; did you mean {inside}?"


def read_aliases(model_folder: Path) -> dict[str, int]:
    """Read the aliases of the model in this folder.

    Raises:
        ArtifactError: the file is not an object of integers, a key is not an alias, or it cannot be read.
    """
    path, source = model_folder / ALIASES, f"{model_folder.name}/{ALIASES}"
    try:
        content = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise ArtifactError.of(source, f"cannot be read: {error.strerror}") from error
    if content is None:
        return {}
    try:
        record = Record.from_bytes(content, source)
        aliases = {alias: record.integer(alias) for alias in record.keys()}  # noqa: SIM118 - a Record is not a dict
        wrong = [alias for alias in aliases if not _is_alias(alias)]
        if wrong:
            raise ArtifactError.of(source, f"{wrong[0][:MAX_SHOWN_CHARACTERS]!r} is not an alias; {_ALIAS_RULE}")
    except ArtifactError as error:
        advice = "correct the file, or remove it and set the aliases again"
        raise ArtifactError(f"{error.message}; {advice}", metadata=error.metadata) from error
    return aliases


def find_version(models: Path, reference: str) -> tuple[Path, int]:
    """Find a model's folder and version by NAME, NAME@VERSION or NAME@ALIAS.

    NAME means the champion, or the newest version of a model without a champion.

    Raises:
        ModelNotFoundError: the model does not exist.
        VersionNotFoundError: the model has no such version or alias.
        ArtifactError: the aliases cannot be read.
    """
    name, at, selector = reference.partition("@")
    model_folder = find_model_folder(models, name)
    if artifact.is_artifact(model_folder):
        raise ModelNotFoundError(
            f"{model_folder} is a version of the model {models.name}; give {models.parent} as the folder"
        )
    aliases, versions = read_aliases(model_folder), list_versions(model_folder)
    version = aliases.get(selector or CHAMPION, parse_version(selector))
    if not at and version is None:
        version = max(versions, default=None)
    if version is None or not artifact.is_artifact(model_folder / str(version)):
        problem = (
            f"{models} holds no {reference[:MAX_SHOWN_CHARACTERS]}; {name} has the versions {sorted(versions)} "
            f"and the aliases {dict(sorted(aliases.items()))}"
        )
        lost_aliases = [alias for alias, number in aliases.items() if number == version]
        if lost_aliases and versions:
            problem += f"; put version {version} back, or run `quantra alias {name} {lost_aliases[0]} {max(versions)}`"
        raise VersionNotFoundError(problem)
    return model_folder, version


def find_model_folder(models: Path, name: str) -> Path:
    """Find the folder of a model's versions.

    Raises:
        ModelNotFoundError: the model does not exist.
    """
    names = sorted(list_names(models)) if models.is_dir() else []
    if name not in names:
        known = f"there are {names}" if names else "it holds no model; give another folder with --models"
        raise ModelNotFoundError(f"there is no model {name[:MAX_SHOWN_CHARACTERS]!r} in {models}; {known}")
    return models / name


def set_alias(model_folder: Path, alias: str, version: int) -> None:
    """Point an alias of the model in this folder to a version, in one step.

    Raises:
        ConfigurationError: the alias is not a valid name, the version does not exist, or the folder cannot be written.
    """
    if not _is_alias(alias):
        raise ConfigurationError(f"{alias[:MAX_SHOWN_CHARACTERS]!r} is not an alias; {_ALIAS_RULE}")
    _check_version(model_folder, version)
    check_file(model_folder / ALIASES)
    with lock_file(model_folder / _LOCK):
        _move(model_folder, alias, version, MoveKind.SET, reason="by `quantra alias`")


def promote_version(
    model_folder: Path, version: int, *, expected: int | None, reason: str, gates: tuple[GateResult, ...]
) -> AliasMove | None:
    """Make a version the champion of the model in this folder.

    Args:
        model_folder: the model's folder.
        version: the new champion.
        expected: the present champion, with which it was compared; None for a model without a champion.
        reason: why, for the history.
        gates: conditions of the promotion, all passed or overridden.

    Returns:
        The move; None if the version is already the champion.

    Raises:
        ConfigurationError: the version does not exist, another one has become the champion, or the folder cannot be
            written.
    """
    _check_version(model_folder, version)
    check_file(model_folder / ALIASES)
    with lock_file(model_folder / _LOCK):
        champion = read_aliases(model_folder).get(CHAMPION)
        if champion not in {expected, version}:
            raise ConfigurationError(
                f"{model_folder.name}@{version} was compared with version {expected}, but the champion is now "
                f"{champion}; compare again"
            )
        return _move(model_folder, CHAMPION, version, MoveKind.PROMOTE, reason=reason, gates=gates)


def roll_back(model_folder: Path, *, reason: str, expected: int | None = None) -> AliasMove:
    """Make the previous champion the champion again.

    Args:
        model_folder: the model's folder.
        reason: why, for the history.
        expected: the champion to replace, so that a repeated call does not go back further; None for any.

    Raises:
        ConfigurationError: another version is the champion, no previous champion is recorded, its version is missing,
            or the folder cannot be written.
        ArtifactError: the aliases or their history cannot be read.
    """
    check_file(model_folder / ALIASES)
    with lock_file(model_folder / _LOCK):
        aliases = read_aliases(model_folder)
        champion = aliases.get(CHAMPION)
        if expected not in {None, champion}:
            raise ConfigurationError(
                f"the champion of {model_folder.name} is version {champion}, not {expected}; roll back version "
                f"{champion} if you want to go back further"
            )
        moves = [move for move in read_moves(model_folder, aliases) if move.alias == CHAMPION]
        before = None if champion is None else find_previous_champion(moves, champion)
        if before is None:
            raise ConfigurationError(
                f"{model_folder.name} has no champion before version {champion}; point the alias at another version "
                "with `quantra alias`"
            )
        _check_version(model_folder, before)
        move = _move(model_folder, CHAMPION, before, MoveKind.ROLLBACK, reason=reason)
    assert move is not None  # noqa: S101 - the version before is another one
    return move


def _check_version(model_folder: Path, version: int) -> None:
    if not artifact.is_artifact(model_folder / str(version)):
        raise ConfigurationError(
            f"{model_folder}: has no version {version}; it has {sorted(list_versions(model_folder))}"
        )


def _move(
    model_folder: Path, alias: str, version: int, kind: MoveKind, *, reason: str, gates: tuple[GateResult, ...] = ()
) -> AliasMove | None:
    """Record and make a move under the lock; None if the alias already names the version.

    The record is written first, so that every move has one; `read_moves` leaves out interrupted moves.
    """
    aliases = read_aliases(model_folder)
    if aliases.get(alias) == version:
        return None
    move = create_move(aliases, alias, version, kind, reason=reason, gates=gates)
    record_move(model_folder, move)
    replace_file(model_folder / ALIASES, canonical.to_bytes(aliases | {alias: version}))
    return move


def claim_champion(model_folder: Path, version: int) -> int:
    """Make a version the champion of the model in this folder, unless it has one; returns the champion.

    Raises:
        ArtifactError: see `read_aliases`.
        OSError: the folder cannot be written.
    """
    with lock_file(model_folder / _LOCK):
        aliases = read_aliases(model_folder)
        if CHAMPION not in aliases:
            _move(model_folder, CHAMPION, version, MoveKind.FIRST, reason="the model had no champion")
    return aliases.get(CHAMPION, version)


def claim_first_champion(folder: Path) -> None:
    """Make a new artifact the champion if it is the first version of its model and no aliases exist."""
    model_folder, version = folder.absolute().parent, parse_version(folder.name)
    if version is None or list_versions(model_folder) - {version}:
        return
    with suppress(OSError), lock_file(model_folder / _LOCK):  # without a lock, the first server chooses and logs it
        if not (model_folder / ALIASES).exists():
            _move(model_folder, CHAMPION, version, MoveKind.FIRST, reason="the first version")


_ALIAS_RULE = "it must be 1 to 64 letters, digits, dots, dashes and underscores, and not a number"


def _is_alias(text: str) -> bool:
    return is_name(text) and not text.isdigit()


def list_models(models: Path) -> tuple[ModelListing, ...]:
    """List every version in a models folder, sorted by name and version.

    Raises:
        ConfigurationError: the folder does not exist or cannot be read.
        ModelNotFoundError: the folder holds no model; the message suggests another folder.
        ArtifactError: the aliases of a model cannot be read.
    """
    try:
        names = sorted(list_names(models))
        listings = tuple(listing for name in names for listing in _list_model(models / name))
    except OSError as error:
        raise ConfigurationError(f"{models}: the folder cannot be read: {error.strerror}") from error
    if not listings:
        raise ModelNotFoundError(
            f"{models} holds no model, which would be a folder NAME/VERSION{suggest_models_folder(models)}"
        )
    return listings


def read_histories(models: Path) -> dict[str, tuple[AliasMove, ...]]:
    """Read the moves of every model's aliases, oldest first.

    Raises:
        ConfigurationError: the folder does not exist or cannot be read.
        ArtifactError: the aliases of a model or their history cannot be read.
    """
    try:
        folders = [models / name for name in sorted(list_names(models))]
    except OSError as error:
        raise ConfigurationError(f"{models}: the folder cannot be read: {error.strerror}") from error
    return {
        model_folder.name: read_moves(model_folder, read_aliases(model_folder))
        for model_folder in folders
        if list_versions(model_folder)
    }


def _list_model(model_folder: Path) -> Iterator[ModelListing]:
    versions = sorted(list_versions(model_folder))
    aliases = read_aliases(model_folder) if versions else {}
    for version in versions:
        version_aliases = tuple(sorted(alias for alias, number in aliases.items() if number == version))
        try:
            yield _read(model_folder / str(version), model_folder.name, version, version_aliases)
        except OSError as error:
            problem = f"the folder cannot be read: {error.strerror}"
            yield ModelListing(name=model_folder.name, version=version, aliases=version_aliases, problem=problem)


def _read(folder: Path, name: str, version: int, aliases: tuple[str, ...]) -> ModelListing:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    try:
        record = Record.from_bytes(artifact.read_verified_manifest(folder), artifact.MANIFEST)
        card = Card.from_json(canonical.to_bytes(record.json("card")).decode())
        kind = record.record("network").text("kind") if record.has("network") else "ensemble"
        if record.has("network"):
            ends = record.record("calendar").integer("last")
        else:  # it ends with the first calendar of a member
            members = [folder / artifact.MEMBERS / member.text("name") for member in record.records("members")]
            ends = min(map(_find_member_end, members))
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


def _find_member_end(folder: Path) -> int:
    member = Record.from_bytes(artifact.read_verified_manifest(folder), artifact.MANIFEST)
    return member.record("calendar").integer("last")
