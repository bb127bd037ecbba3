"""The checkpoints of a training run, and the signals that stop it."""

import math
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from errno import ENOSPC
from os import PathLike
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Literal, Self, TypeAlias, final

from torch import Tensor

from predictor.draft_folder import publish_folder
from trainers.loop.checkpoint.folder import (
    CheckpointEntry,
    DamagedError,
    check_space,
    create_folder,
    describe_error,
    list_entries,
    lock,
    make_disk_full_error,
    next_entry,
    remove,
    remove_leftovers,
)
from trainers.loop.checkpoint.snapshot import (
    Json,
    LoadedCheckpoint,
    Snapshot,
    as_json,
    check_snapshot,
    find_differences,
    read_checkpoint,
    read_meta,
    read_tensors,
    snapshot_bytes,
    write_checkpoint,
)
from trainers.loop.errors import CheckpointError, NoBestWeightsError, ResumeMismatchError, SettingsError

LOCK = ".lock"
BATCHES_PER_STEP = "batches per step (accumulate x processes)"
"""The part of a checkpoint's layout with the size of an accumulation window."""

Which = Literal["best", "newest"]

GROUPS: Mapping[Which, str] = {"best": "best", "newest": "modules"}


@final
class Checkpoints:
    """The checkpoint folder of a training run.

    Call `open` before anything that writes; reading does not need it.

    Args:
        folder: The folder, which must hold only the checkpoints of this run; created if missing.
        keep: Number of newest checkpoints to keep, 1 or more, in addition to the newest one that was the best.
        every_seconds: Seconds between checkpoints; None for no such rule.
        every_windows: Windows between checkpoints; None for no such rule.
        settings: The settings that identify the training, as JSON. A training run resumes only from checkpoints with
        the
            same settings.
        clock: A monotonic clock in seconds, for `every_seconds`.

    Attributes:
        folder: The folder.

    Raises:
        SettingsError: A number is out of range, or `settings` is not JSON.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        keep: int = 3,
        every_seconds: float | None = 300.0,
        every_windows: int | None = None,
        settings: Mapping[str, Json] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if keep < 1:
            raise SettingsError(f"keep is {keep}; it must be 1 or more")
        if every_windows is not None and every_windows < 1:
            raise SettingsError(f"every_windows is {every_windows}; it must be 1 or more, or None")
        if every_seconds is not None and not 0 < every_seconds < math.inf:
            raise SettingsError(f"every_seconds is {every_seconds}; it must be a positive number, or None")
        self.folder = Path(folder)
        self._keep = keep
        self._settings = as_json(settings or {})
        self._every_seconds = every_seconds
        self._every_windows = every_windows
        self._clock = clock
        self._since = clock()
        self._is_open = False

    @contextmanager
    def open(self) -> Generator[None]:
        """Lock the folder against other trainings, and remove incomplete files of killed ones.

        A nested call does nothing, so a caller may hold the folder for longer than the loop.

        Raises:
            CheckpointError: Another training holds the folder, or it cannot be written.
        """
        if self._is_open:
            yield
            return
        with ExitStack() as stack:
            try:
                create_folder(self.folder)
                stack.enter_context(lock(self.folder / LOCK))
                remove_leftovers(self.folder)
            except OSError as error:
                raise CheckpointError(f"{self.folder} cannot hold checkpoints: {describe_error(error)}") from error
            self._since = self._clock()
            self._is_open = True
            try:
                yield
            finally:
                self._is_open = False

    @property
    def is_empty(self) -> bool:
        """Whether the folder holds no checkpoint, not even a damaged one."""
        return not self._list_entries()

    def load(self) -> LoadedCheckpoint | None:
        """Read the newest undamaged checkpoint; None if the folder has no checkpoint.

        Raises:
            ResumeMismatchError: It belongs to another training; the message names every setting that differs.
            CheckpointError: All checkpoints are damaged.
        """
        damaged: list[str] = []
        for entry in reversed(self._list_entries()):
            try:
                restored = read_checkpoint(entry.path)
            except DamagedError as error:
                damaged.append(f"{entry.path.name}: {error.message}")
                continue
            different = find_differences(restored.settings, self._settings)
            if different:
                raise ResumeMismatchError(
                    f"{entry.path} belongs to another training: {'; '.join(different)}; restore these settings to "
                    "resume it, or choose another folder to start anew"
                )
            return replace(restored, damaged=tuple(damaged))
        if damaged:
            raise CheckpointError(
                f"all checkpoints in {self.folder} are damaged ({'; '.join(damaged)}); restore them from a backup, or "
                "remove them to start anew"
            )
        return None

    def batches_per_step(self) -> int | None:
        """The batches of all processes in one step of the training to resume; None without a checkpoint.

        Divide it by the number of processes for the `accumulate` with which another number of them resumes.

        Raises:
            ResumeMismatchError: As `load`.
            CheckpointError: As `load`.
        """
        restored = self.load()
        return None if restored is None else restored.state["layout"].get(BATCHES_PER_STEP)

    def weights(self, which: Which = "best") -> dict[str, Tensor]:
        """Read only the weights of the newest checkpoint, for example to start another training with any settings.

        It does not lock or change the folder, so the training that owns it may be running.

        Args:
            which: `best` for the weights of the lowest value so far, averaged if there is a moving average; `newest`
                for the trained weights at the time of the checkpoint.

        Returns:
            Weights and buffers by name, such as `network.0.weight`, in the modules' shapes [...], on the CPU.

        Raises:
            CheckpointError: The folder has no checkpoint, or the newest one is damaged; older ones are not tried.
            NoBestWeightsError: No value had been recorded at that time.
            SettingsError: `which` is invalid.
        """
        if which not in GROUPS:
            raise SettingsError(f"which is {which!r}; it must be {' or '.join(map(repr, GROUPS))}")
        present = self._list_entries()
        if not present:
            raise CheckpointError(f"{self.folder} holds no checkpoint; give the checkpoint folder of a training run")
        entry = present[-1]
        try:
            tensors = read_tensors(entry.path, GROUPS[which])
        except DamagedError as error:
            if not entry.path.exists():  # the training that owns it has replaced it by a newer one
                return self.weights(which)
            raise CheckpointError(
                f"{entry.path} is damaged: {error.message}; restore it from a backup, or remove it to use the weights "
                "of the previous one"
            ) from error
        if tensors is None:
            raise NoBestWeightsError(
                f'{entry.path} holds no best weights, because no value was recorded; use the newest: weights("newest")'
            )
        return tensors

    def is_due(self, windows: int) -> bool:
        """Return whether a checkpoint is due after `windows`, 1 or more, since the start of the training."""
        if self._every_windows is not None and windows % self._every_windows == 0:
            return True
        return self._every_seconds is not None and self._clock() - self._since >= self._every_seconds

    def save(self, snapshot: Snapshot) -> tuple[Path, int]:
        """Write a checkpoint to the disk, then remove those that are not kept; return its folder and size in bytes.

        Raises:
            CheckpointError: It cannot be written, and earlier ones are unchanged; or it was written, but old ones
                cannot be removed. Training can continue.
        """
        self._check_open()
        self._since = self._clock()  # set before writing, so that a failed save is not retried in every window
        check_snapshot(snapshot)
        needed = snapshot_bytes(snapshot)
        try:
            check_space(self.folder, needed)
            entry = next_entry(self.folder, snapshot.windows)
            with publish_folder(entry.path) as draft:
                size = write_checkpoint(draft, snapshot, self._settings)
        except OSError as error:
            if error.errno == ENOSPC:
                raise make_disk_full_error(self.folder, needed) from error
            raise CheckpointError(
                f"the checkpoint after {snapshot.windows} windows cannot be written to {self.folder}: "
                f"{describe_error(error)}; earlier checkpoints are unchanged"
            ) from error
        try:
            for old in list_superseded(list_entries(self.folder), entry, self._keep):
                remove(old)
        except OSError as error:
            raise CheckpointError(
                f"{entry.path} is written, but older checkpoints cannot be removed: {describe_error(error)}"
            ) from error
        return entry.path, size

    def clear(self) -> None:
        """Remove all checkpoints, oldest first, after the training has succeeded.

        Raises:
            CheckpointError: A checkpoint cannot be removed.
        """
        self._check_open()
        try:
            for entry in list_entries(self.folder):
                remove(entry)
        except OSError as error:
            raise CheckpointError(f"checkpoints in {self.folder} cannot be removed: {describe_error(error)}") from error

    def _check_open(self) -> None:
        if not self._is_open:
            raise CheckpointError(f"{self.folder} is not open: use `with checkpoints.open():` first")

    def _list_entries(self) -> list[CheckpointEntry]:
        try:
            return list_entries(self.folder)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be read: {describe_error(error)}") from error


def list_superseded(present: Sequence[CheckpointEntry], newest: CheckpointEntry, keep: int) -> list[CheckpointEntry]:
    """Return the checkpoints to remove, oldest first, after `newest` was written.

    The `keep` newest are kept, and the newest that was the best. Of each window only the last revision counts.
    Checkpoints after `newest` are removed too: they were damaged when the training resumed from an earlier one.
    """
    current = {entry.windows: entry for entry in sorted(present) if entry <= newest}
    ranked = list(current.values())
    best = next((entry for entry in reversed(ranked) if _was_best(entry)), newest)
    kept = {*ranked[-keep:], best}
    return [entry for entry in present if entry not in kept]


def _was_best(entry: CheckpointEntry) -> bool:
    try:
        return read_meta(entry.path).best
    except DamagedError:
        return False


Handler: TypeAlias = Callable[[int, FrameType | None], object] | int

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@final
class StopSignals:
    """A context that records the first SIGTERM or SIGINT; a second signal of the same kind takes effect at once.

    Ignored signals and those that the host of an embedded interpreter handles are not touched. Outside the main thread,
    where Python cannot handle signals, the context does nothing.

    Args:
        echo_seconds: A repeated signal within this many seconds counts as one: `torchrun` forwards signals to
            processes that have already received them from the terminal.
        clock: A monotonic clock in seconds.

    Attributes:
        requested: The number of the first signal; 0 before.
        is_installed: Whether a handler is installed for any signal.
    """

    def __init__(self, *, echo_seconds: float = 0.0, clock: Callable[[], float] = monotonic) -> None:
        self._echo_seconds = echo_seconds
        self._clock = clock
        self.requested = 0
        self.is_installed = False
        self._passed_on = False
        self._previous: dict[int, Handler] = {}
        self._noted: dict[int, float] = {}

    def __enter__(self) -> Self:
        """Install the handlers."""
        for number in STOP_SIGNALS:
            previous = signal.getsignal(number)
            if previous is None or previous == signal.SIG_IGN:
                continue
            with suppress(ValueError):  # not the main thread of the main interpreter
                signal.signal(number, self._note)
                self._previous[number] = previous
        self.is_installed = bool(self._previous)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Restore the previous handlers, and raise a recorded signal again unless the context ends with an error."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        self.is_installed = False
        if self.requested and not self._passed_on and error is None:
            self._passed_on = True
            signal.raise_signal(self.requested)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        del frame
        if number in self._noted and self._clock() - self._noted[number] >= self._echo_seconds:
            self._passed_on = True
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
        self._noted.setdefault(number, self._clock())
        self.requested = self.requested or number
