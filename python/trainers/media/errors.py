"""Base error of the media trainers, and the check for optional packages."""

from dataclasses import dataclass
from importlib.util import find_spec


class MediaError(Exception):
    """Base class of speech and image errors.

    Attributes:
        message: The problem and the remedy.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PageError(MediaError):
    """A page or picture cannot be written."""


class MissingExtraError(MediaError):
    """A package of an optional extra is not installed."""


@dataclass(frozen=True, slots=True)
class OptionalExtra:
    """An optional extra of the package.

    Attributes:
        name: Name of the extra, such as `vits`.
        task: Start of the error message, such as "speech needs".
        packages: Import names of its packages.
    """

    name: str
    task: str
    packages: tuple[str, ...]


def require_packages(extra: OptionalExtra) -> None:
    """Check that an extra is installed.

    Raises:
        MissingExtraError: Packages are missing; the message says how to install them.
    """
    missing = [name for name in extra.packages if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{extra.task} {', '.join(missing)}, not installed in this Python: pip install 'quantra[{extra.name}]'"
        )
