"""How much one stream holds: its requests until they are answered, and their answers until the caller has them."""

from typing import final


@final
class StreamWindow:
    """Counts messages and bytes. Not safe for threads.

    Args:
        most: requests and answers.
        most_size: their bytes; one more request may come while they are fewer.
    """

    def __init__(self, most: int, most_size: int) -> None:
        self._most, self._most_size = most, most_size
        self._count = self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether another request may come."""
        return self._count < self._most and self._size < self._most_size

    @property
    def held(self) -> tuple[int, int]:
        """Messages and bytes."""
        return self._count, self._size

    def enter(self, size: int) -> None:
        """A request has come."""
        self._count += 1
        self._size += size

    def answer(self, size: int, answer_size: int) -> None:
        """An answer takes the place of its request."""
        self._size += answer_size - size

    def leave(self, answer_size: int) -> None:
        """The caller has an answer."""
        self._count -= 1
        self._size -= answer_size
