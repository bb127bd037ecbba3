"""Everything that can go wrong with images, caches, models and their schedulers, as one tree under `ImageError`.

Every message names the file or the part, the cause, and what to do.
"""

from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("diffusers", "transformers", "PIL", "jinja2")
"""What the extra `dit` brings, by the names under which they are imported."""


class ImageError(Exception):
    """The root of the tree.

    Attributes:
        message: What is wrong and what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DataError(ImageError):
    """A folder of images, or a prompt, that cannot be trained on."""


class CacheError(ImageError):
    """A folder of encoded images that is damaged, or was made from other images or by another model."""


class ModelError(ImageError):
    """A folder that holds no model, or parts that do not fit one another."""


class PriorError(ImageError):
    """Prior tokens that are missing, that say nothing, or that a model does not read."""


class SchedulerError(ImageError):
    """A scheduler that does not belong to the objective, or steps that it cannot take exactly."""


class RewardError(ImageError):
    """A reward that cannot be had: its name, weights or images are missing, or what it says is no number."""


class GateError(ImageError):
    """A gate that could not tell an improvement from a ruse."""


class MissingExtraError(ImageError):
    """A package of the extra `dit` that is not installed."""


def require_packages() -> None:
    """Check that the extra `dit` is installed.

    Raises:
        MissingExtraError: Naming the packages that are missing, and how to get them.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"images need {', '.join(missing)}, which this Python does not have: pip install 'quantra[dit]'"
        )
