"""Everything that can go wrong with recordings, voices and corrections, as one tree under `SpeechError`.

Every message names the file or the clip, the cause, and what to do.
"""

from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("transformers", "soundfile", "scipy", "PIL", "jinja2")
"""What the extra `tts` brings, by the names under which they are imported."""


class SpeechError(Exception):
    """The root of the tree.

    Attributes:
        message: What is wrong and what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CorpusError(SpeechError):
    """Recordings, or a prepared corpus, that cannot be trained on."""


class VoiceError(SpeechError):
    """A folder that holds no voice, or one that does not fit the corpus or the text."""


class FeedbackError(SpeechError):
    """A manifest of corrections and ratings that cannot be used."""


class JudgeError(SpeechError):
    """A recogniser that cannot be trained or loaded."""


class MissingExtraError(SpeechError):
    """A package of the extra `tts` that is not installed."""


def require_packages() -> None:
    """Check that the extra `tts` is installed.

    Raises:
        MissingExtraError: Naming the packages that are missing, and how to get them.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"speech needs {', '.join(missing)}, which this Python does not have: pip install 'quantra[tts]'"
        )
