"""State that the caller adds to checkpoints, such as a replay buffer."""

from collections.abc import Mapping
from copy import copy
from typing import Any, Protocol, runtime_checkable

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


def check_states_writable(owners: Mapping[str, Stateful]) -> None:
    """Check that the states can be written and read back.

    Raises:
        CheckpointError: A state holds more than tensors and plain values; the message names the path.
    """
    check_state(collect_states(owners))


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
