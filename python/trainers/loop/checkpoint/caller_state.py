"""State that the caller adds to checkpoints, such as a replay buffer."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, cast, runtime_checkable

from torch import Tensor

from trainers.loop.checkpoint.tensors import MAPPINGS, check_state
from trainers.loop.errors import ResumeMismatchError, join_names


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


def check_states_fit(saved: Mapping[str, Any], owners: Mapping[str, Stateful]) -> None:
    """Check that saved states fit the current objects, without changing them.

    Empty values and None fit everything, and lists may differ in length, because buffers start empty and grow. All
    other values must have the same keys, shapes, dtypes and types.

    Raises:
        ResumeMismatchError: A name is missing on one side, or the structure of a state differs.
    """
    problems = [f"{name!r} is in the checkpoint and not here" for name in saved if name not in owners]
    problems += [f"{name!r} is here and not in the checkpoint" for name in owners if name not in saved]
    for name, owner in owners.items():
        if name in saved:
            problems += _find_differences(name, saved[name], owner.state_dict())
    if problems:
        raise ResumeMismatchError(
            f"Loop(state=…) does not fit the checkpoint: {join_names(problems)}; use the objects that the training was "
            "started with, or start again in another folder"
        )


def find_structure_changes(now: Mapping[str, Any], initial: Mapping[str, Any]) -> list[str]:
    """Return why the current states would not fit objects in their initial state.

    Args:
        now: The current states.
        initial: The states at the start.
    """
    return [difference for name, state in now.items() for difference in _find_differences(name, state, initial[name])]


def check_states_writable(owners: Mapping[str, Stateful]) -> None:
    """Check that the states can be written and read back.

    Raises:
        CheckpointError: A state holds more than tensors and plain values; the message names the path.
    """
    check_state(collect_states(owners))


def load_states(saved: Mapping[str, Any], owners: Mapping[str, Stateful]) -> None:
    """Restore the states.

    Raises:
        ResumeMismatchError: An object rejects its state.
    """
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


def _find_differences(path: str, saved: object, here: object) -> Iterator[str]:
    """Yield the differences in structure."""
    if saved is None or here is None:
        return
    kind = _describe_kind(here)
    if _describe_kind(saved) != kind or (isinstance(here, Tensor) and not _is_same_tensor(cast("Tensor", saved), here)):
        yield f"{path} is {_format(saved)} in the checkpoint and {_format(here)} here"
    elif kind is dict:
        yield from _compare_mappings(
            path, cast("Mapping[object, object]", saved), cast("Mapping[object, object]", here)
        )
    elif kind in (list, tuple):
        yield from _compare_sequences(path, cast("Sequence[object]", saved), cast("Sequence[object]", here))


def _compare_mappings(path: str, saved: Mapping[object, object], here: Mapping[object, object]) -> Iterator[str]:
    if not saved or not here:  # an empty mapping may grow
        return
    yield from (f"{path}[{key!r}] is in the checkpoint and not here" for key in saved if key not in here)
    yield from (f"{path}[{key!r}] is here and not in the checkpoint" for key in here if key not in saved)
    for key in here:
        if key in saved:
            yield from _find_differences(f"{path}[{key!r}]", saved[key], here[key])


def _compare_sequences(path: str, saved: Sequence[object], here: Sequence[object]) -> Iterator[str]:
    if len(saved) != len(here):  # the list has grown, and its items may differ
        return
    for index, (before, now) in enumerate(zip(saved, here, strict=True)):
        yield from _find_differences(f"{path}[{index}]", before, now)


def _is_same_tensor(saved: Tensor, here: Tensor) -> bool:
    grown = not saved.numel() or not here.numel()
    return saved.dtype == here.dtype and (grown or saved.shape == here.shape)


def _describe_kind(value: object) -> type:
    """Return the type; all tensors share one, all mappings share one, and an int counts as a float, as in sums."""
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, Mapping):
        return dict
    return float if type(value) is int else type(value)


def _format(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"of type {type(value).__name__}"
