"""Everything that can go wrong with images, caches, models and their schedulers, as one tree under `ImageError`.

Every message names the file or the part, the cause, and what to do.
"""

from typing import Final

from trainers.media.errors import MediaError, OptionalExtra

IMAGES: Final = OptionalExtra("dit", "images need", ("diffusers", "transformers", "PIL", "jinja2"))
"""What images need besides the core install."""


class ImageError(MediaError):
    """The root of the tree."""


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
