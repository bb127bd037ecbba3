"""What a covariate may be called, so that expressions can name it."""

import re
from typing import Final

from predictor.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LONGEST_SHOWN: Final = 70


def check_name(name: str, whose: str = "covariate") -> None:
    """Refuse what expressions could not name.

    Args:
        name: The covariate's.
        whose: What it is called in the message.

    Raises:
        ConfigurationError: Saying what a name must be.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{whose} {name[:_LONGEST_SHOWN]!r} must have 1 to 64 small letters, digits and underscores, and start "
            "with a letter, to be named in expressions"
        )
