"""The history of a model's aliases in `NAME/history.json`: each move with its reason and gates."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from predictor import canonical
from predictor.canonical import Record, read_as
from predictor.errors import ArtifactError
from predictor.replacement import replace_file

HISTORY: Final = "history.json"


class MoveKind(StrEnum):
    """The cause of a move."""

    FIRST = "first"
    """The model had no champion."""
    SET = "set"
    """`quantra alias`, without gates."""
    PROMOTE = "promote"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of one condition of a promotion."""

    name: str
    passed: bool
    need: str
    """The condition in words."""
    have: str
    """What was found, in words."""
    overridden: bool = False
    """Whether the version may be promoted although the gate failed."""

    @property
    def result(self) -> str:
        """Passed, overridden or failed."""
        return "passed" if self.passed else "overridden" if self.overridden else "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMove:
    """One move of an alias to another version."""

    at: str
    """UTC, by this machine's clock; the order of the moves does not depend on it."""
    alias: str
    previous: int | None
    """The version before; None for a new alias."""
    version: int
    kind: MoveKind
    reason: str
    gates: tuple[GateResult, ...] = ()


def create_move(
    aliases: Mapping[str, int],
    alias: str,
    version: int,
    kind: MoveKind,
    *,
    reason: str,
    gates: tuple[GateResult, ...] = (),
) -> AliasMove:
    """Create a move of an alias from its present version, at the current time."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    previous = aliases.get(alias)
    return AliasMove(at=now, alias=alias, previous=previous, version=version, kind=kind, reason=reason, gates=gates)


def read_moves(model_folder: Path, aliases: Mapping[str, int]) -> tuple[AliasMove, ...]:
    """Read the moves of a model's aliases, oldest first.

    A move is recorded before it is made. If a process was killed in between, the move did not happen and is left out.

    Args:
        model_folder: the model's folder.
        aliases: the present ones.

    Raises:
        ArtifactError: the file is damaged or cannot be read.
    """
    moves, now = list[AliasMove](), dict(aliases)
    for move in reversed(_read(model_folder)):
        after = now.get(move.alias)
        if after == move.version or after != move.previous:
            moves.append(move)
        if move.previous is None:
            now.pop(move.alias, None)
        else:
            now[move.alias] = move.previous
    return tuple(reversed(moves))


def record_move(model_folder: Path, move: AliasMove) -> None:
    """Add a move to the history of a model; the caller holds the lock on its aliases.

    Raises:
        ArtifactError: the file is damaged or cannot be read.
        OSError: the folder cannot be written.
    """
    moves = [*_read(model_folder), move]
    replace_file(model_folder / HISTORY, canonical.to_bytes({"moves": [asdict(move) for move in moves]}))


def find_previous_champion(moves: Sequence[AliasMove], champion: int) -> int | None:
    """Find the version that a rollback returns to; None without an earlier champion.

    A rollback undoes the newest promotion that has not been rolled back.

    Args:
        moves: of the alias champion, oldest first.
        champion: the present one, which may have been set by hand.
    """
    succession: list[int] = []
    for move in moves:
        if move.kind is MoveKind.ROLLBACK and move.version in succession:
            while succession[-1] != move.version:
                succession.pop()
        else:
            if move.previous is not None and succession[-1:] != [move.previous]:
                succession.append(move.previous)
            if succession[-1:] != [move.version]:
                succession.append(move.version)
    before = succession[:-1] if succession and succession[-1] == champion else succession
    return before[-1] if before else None


def _read(model_folder: Path) -> tuple[AliasMove, ...]:
    path, source = model_folder / HISTORY, f"{model_folder.name}/{HISTORY}"
    try:
        content = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise ArtifactError.of(source, f"cannot be read: {error.strerror}") from error
    if content is None:
        return ()
    try:
        return tuple(read_as(move, AliasMove) for move in Record.from_bytes(content, source).records("moves"))
    except ArtifactError as error:
        advice = "correct the file, or move it away and begin a new history"
        raise ArtifactError(f"{error.message}; {advice}", metadata=error.metadata) from error
