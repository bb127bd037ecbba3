"""The root of what can go wrong with media, and the packages without which nothing can be done with them."""

from dataclasses import dataclass
from importlib.util import find_spec


class MediaError(Exception):
    """The root of the trees of speech and of images.

    Attributes:
        message: What is wrong and what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PageError(MediaError):
    """A page, or a picture, that cannot be written."""


class MissingExtraError(MediaError):
    """A package of an extra that is not installed."""


@dataclass(frozen=True, slots=True)
class OptionalExtra:
    """What a task needs besides the core install.

    Attributes:
        name: Of the extra.
        task: What needs it, with its verb, as a sentence begins.
        packages: What it brings, by the names under which they are imported.
    """

    name: str
    task: str
    packages: tuple[str, ...]


def require_packages(extra: OptionalExtra) -> None:
    """Check that an extra is installed.

    Raises:
        MissingExtraError: Naming the packages that are missing, and how to get them.
    """
    missing = [name for name in extra.packages if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{extra.task} {', '.join(missing)}, which this Python does not have: pip install 'quantra[{extra.name}]'"
        )
