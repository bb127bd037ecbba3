"""Errors of images, caches, models and schedulers, all under `ImageError`."""

from typing import Final

from trainers.media.errors import MediaError, OptionalExtra

IMAGES: Final = OptionalExtra("dit", "images need", ("diffusers", "transformers", "PIL", "jinja2"))
"""Optional packages of the image trainer."""


class ImageError(MediaError):
    """Base class of image errors."""


class DataError(ImageError):
    """A folder of images or a prompt cannot be used."""


class CacheError(ImageError):
    """A cache is damaged, or was made from other images or with another model."""


class ModelError(ImageError):
    """A folder holds no model, or its parts do not fit together."""


class PriorError(ImageError):
    """Prior tokens are missing, invalid, or not supported by the model."""


class SchedulerError(ImageError):
    """A scheduler does not match the objective, or cannot take the requested steps exactly."""


class RewardError(ImageError):
    """A reward is unknown, lacks weights or images, or returns non-finite values."""


class GateError(ImageError):
    """A gate cannot distinguish an improvement from reward hacking."""
