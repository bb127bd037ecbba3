"""The content of one checkpoint, and how its files are written, verified and read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor

from trainers.loop.checkpoint.folder import META, STATE, SUFFIX, DamagedError, describe_error
from trainers.loop.checkpoint.tensors import (
    MAPPINGS,
    FileDigest,
    check_group,
    check_state,
    create_file,
    group_bytes,
    read_group,
    read_state,
    state_bytes,
    write_group,
    write_state,
)
from trainers.loop.errors import ResumeMismatchError, SettingsError, join_names

FORMAT = 1
META_BYTES = 4096
MAX_SHOWN_CHARACTERS = 60

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a training run between two windows.

    Attributes:
        tensors: Tensors by name, in groups such as `modules` or `average`; every group that is not empty has a file.
        state: The states of optimizers, schedulers, scalers, generators and the rest: nested tensors and plain Python
            values.
        epoch: The epoch, counted from 0.
        window: Number of complete windows of that epoch.
        windows: Number of windows since the start of the training.
        best: Whether the newest recorded value is the best one.
    """

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    epoch: int
    window: int
    windows: int
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint(Snapshot):
    """A checkpoint that was read; all tensors are on the CPU and share no memory with its files.

    Attributes:
        settings: The settings that identify the training.
        folder: The folder of the checkpoint.
        damaged: Newer checkpoints that are damaged, with the reasons.
    """

    settings: Mapping[str, Json]
    folder: Path
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """The content of `meta.json`.

    Attributes:
        epoch: The epoch, counted from 0.
        window: Number of complete windows of that epoch.
        windows: Number of windows since the start of the training.
        best: Whether the newest recorded value was the best one.
        settings: The settings that identify the training.
        torch: The version of torch that wrote it.
        files: The digests of all other files, by name.
    """

    epoch: int
    window: int
    windows: int
    best: bool
    settings: Mapping[str, Json]
    torch: str
    files: Mapping[str, FileDigest]

    def text(self) -> bytes:
        """Return the file: JSON with a digest of its content, which reveals any change."""
        return _seal({"format": FORMAT, **asdict(self)})

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parse the result of `text()`.

        Raises:
            DamagedError: A byte has changed, or another version wrote it.
        """
        content = _unseal(text)
        if content.get("format") != FORMAT:
            raise DamagedError(f"meta.json has format {content.get('format')}; this version reads {FORMAT}")
        try:
            files = {name: FileDigest(**digest) for name, digest in content.pop("files").items()}
            return cls(**{name: value for name, value in content.items() if name != "format"}, files=files)
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"meta.json has a missing or invalid value: {error}") from error


def check_snapshot(snapshot: Snapshot) -> None:
    """Check that a snapshot can be written and read back.

    Raises:
        CheckpointError: A value cannot; the message names it.
    """
    for group, tensors in snapshot.tensors.items():
        check_group(group, tensors)
    check_state(snapshot.state)


def snapshot_bytes(snapshot: Snapshot) -> int:
    """Estimate the size of a checkpoint on the disk; the estimate is not too low."""
    return META_BYTES + state_bytes(snapshot.state) + sum(map(group_bytes, snapshot.tensors.values()))


def write_checkpoint(folder: Path, snapshot: Snapshot, settings: Mapping[str, Json]) -> int:
    """Write all files to the disk, `meta.json` last, and return their size in bytes.

    Raises:
        OSError: A file cannot be written.
    """
    files: dict[str, FileDigest] = {}
    for group, tensors in snapshot.tensors.items():
        if tensors:
            with create_file(folder / f"{group}{SUFFIX}") as sink:
                write_group(sink, tensors)
            files[f"{group}{SUFFIX}"] = sink.digest()
    with create_file(folder / STATE) as sink:
        write_state(sink, snapshot.state)
    files[STATE] = sink.digest()
    with create_file(folder / META) as sink:
        meta = CheckpointMetadata(
            epoch=snapshot.epoch,
            window=snapshot.window,
            windows=snapshot.windows,
            best=snapshot.best,
            settings=settings,
            torch=str(torch.__version__),
            files=files,
        )
        sink.write(meta.text())
    return sum(digest.bytes for digest in (*files.values(), sink.digest()))


def read_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Verify and read a checkpoint.

    Raises:
        DamagedError: A file has changed since it was written; the message names it.
    """
    try:
        meta = read_meta(folder)
        _verify(folder, meta.files)
        groups = [name for name in meta.files if name.endswith(SUFFIX)]
        return LoadedCheckpoint(
            tensors={name.removesuffix(SUFFIX): read_group(folder / name) for name in groups},
            state=read_state(folder / STATE),
            settings=meta.settings,
            epoch=meta.epoch,
            window=meta.window,
            windows=meta.windows,
            best=meta.best,
            folder=folder,
        )
    except OSError as error:
        raise DamagedError(f"it cannot be read: {describe_error(error)}") from error


def read_tensors(folder: Path, group: str) -> dict[str, Tensor] | None:
    """Verify a checkpoint, and read one group of its tensors [...]; None if it has no such group.

    Raises:
        DamagedError: A file has changed since it was written; the message names it.
    """
    try:
        meta = read_meta(folder)
        _verify(folder, meta.files)
        return read_group(folder / f"{group}{SUFFIX}") if f"{group}{SUFFIX}" in meta.files else None
    except OSError as error:
        raise DamagedError(f"it cannot be read: {describe_error(error)}") from error


def read_meta(folder: Path) -> CheckpointMetadata:
    """Read the metadata of a checkpoint.

    Raises:
        DamagedError: `meta.json` is missing or has changed since it was written.
        OSError: It cannot be read.
    """
    try:
        return CheckpointMetadata.parse((folder / META).read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"{META} is missing") from error


def _verify(folder: Path, files: Mapping[str, FileDigest]) -> None:
    present = {path.name for path in folder.iterdir()}
    for name in sorted({STATE, META, *files} - present):
        raise DamagedError(f"{name} is missing")
    for name in sorted(present - {META, *files}):
        raise DamagedError(f"{name} does not belong to it")
    for name, digest in files.items():
        size = (folder / name).stat().st_size
        if size != digest.bytes:
            raise DamagedError(f"{name} has {size} bytes and should have {digest.bytes}")
        with (folder / name).open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != digest.sha256:
                raise DamagedError(f"{name} does not match its digest")


def _seal(content: Mapping[str, object]) -> bytes:
    digest = sha256(_render(content)).hexdigest()
    return _render({"content": content, "sha256": digest})


def _unseal(text: bytes) -> dict[str, Any]:
    """Parse and verify the text; writing it again must give the same bytes, which is stricter than a JSON parser."""
    try:
        sealed: Any = json.loads(text)
        content: dict[str, Any] = sealed["content"]
        same = _seal(content) == text
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"meta.json is not the JSON that was written: {error}") from error
    if not same or not isinstance(content, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  it was just read
        raise DamagedError("meta.json does not match its own digest")
    return content


def _render(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode()


@runtime_checkable
class Stateful(Protocol):
    """An object whose state checkpoints can save and restore, such as torch's modules and schedulers."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: tensors and plain Python values, nested in dicts, lists and tuples."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Restore a saved state.

        Args:
            state_dict: The saved state, with tensors on the CPU.

        Raises:
            RuntimeError, ValueError, KeyError: The state does not fit the object.
        """
        ...


def collect_states(owners: Mapping[str, Stateful]) -> dict[str, Any]:
    """Return the states with all tensors on the host, because another process may read them on other devices."""
    return {name: copy_to_host(owner.state_dict()) for name, owner in owners.items()}


def load_states(saved: Mapping[str, Any], owners: Mapping[str, Stateful]) -> None:
    """Restore the states; every object checks whether its state fits.

    Raises:
        ResumeMismatchError: A name is missing on one side, or an object rejects its state.
    """
    problems = [f"{name!r} is in the checkpoint and not here" for name in saved if name not in owners]
    problems += [f"{name!r} is here and not in the checkpoint" for name in owners if name not in saved]
    if problems:
        raise ResumeMismatchError(
            f"Loop(state=…) does not fit the checkpoint: {join_names(problems)}; use the objects that the training was "
            "started with, or start again in another folder"
        )
    for name, owner in owners.items():
        try:
            owner.load_state_dict(saved[name])
        except (RuntimeError, ValueError, KeyError) as error:
            raise ResumeMismatchError(
                f"state {name!r} cannot be restored from the checkpoint; error of {type(owner).__name__}: {error}"
            ) from error


def copy_to_host(value: Any) -> Any:
    """Return the value with all tensors on the CPU; tensors that are already there are not copied."""
    if isinstance(value, Tensor):
        return value.cpu()
    if type(value) in MAPPINGS:
        copied = copy(value)  # keeps attributes, where a module's state_dict stores versions
        for key, item in value.items():
            copied[key] = copy_to_host(item)
        return copied
    if type(value) in (list, tuple):
        return type(value)([copy_to_host(item) for item in value])
    return value


def as_json(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return a copy as JSON reads it back, with lists for tuples.

    Raises:
        SettingsError: The settings are not JSON, which has neither NaN nor infinity.
    """
    try:
        text = json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"the settings of checkpoints must be numbers, strings, lists and mappings with string keys: {error}"
        ) from error
    return json.loads(text)


def find_differences(saved: Mapping[str, Json], current: Mapping[str, Json]) -> list[str]:
    """Describe every setting that differs, with both values; nested ones by path, such as `network.layers`."""
    before, now = dict(_flatten(saved)), dict(_flatten(current))
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name} was {_format(before, name)} and is now {_format(now, name)}"
        for name in names
        if name not in before or name not in now or before[name] != now[name]
    ]


def _flatten(settings: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _format(values: Mapping[str, Json], name: str) -> str:
    if name not in values:
        return "absent"
    text = json.dumps(values[name], ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"
