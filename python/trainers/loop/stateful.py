"""What a caller keeps beside the loop and checkpoints hold."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """A thing whose state goes into checkpoints and comes back, as torch's modules and schedulers have it."""

    def state_dict(self) -> dict[str, Any]:
        """The state: tensors and plain Python values, in any nesting of dicts, lists and tuples."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Go on from such a state.

        Args:
            state_dict: As it was saved, nobody else's; its tensors are on the CPU.

        Raises:
            RuntimeError, ValueError, KeyError: It does not fit.
        """
        ...
