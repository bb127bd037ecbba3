"""Flow control: bounds the pending requests and unread responses of a stream."""

from typing import final


@final
class StreamWindow:
    """Counts messages and bytes. Not thread-safe.

    Args:
        most: Largest number of requests and responses.
        most_size: Bytes at which no further request may follow.
    """

    def __init__(self, most: int, most_size: int) -> None:
        self._most, self._most_size = most, most_size
        self._count = self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether another request may follow."""
        return self._count < self._most and self._size < self._most_size

    @property
    def held(self) -> tuple[int, int]:
        """Messages and bytes."""
        return self._count, self._size

    def enter(self, size: int) -> None:
        """Count a request."""
        self._count += 1
        self._size += size

    def answer(self, size: int, response_size: int) -> None:
        """Count a response instead of its request."""
        self._size += response_size - size

    def leave(self, response_size: int) -> None:
        """Stop counting a response that the caller received."""
        self._count -= 1
        self._size -= response_size
