"""Everything that can go wrong with recordings, voices and corrections, as one tree under `SpeechError`.

Every message names the file or the clip, the cause, and what to do.
"""

from typing import Final

from trainers.media.errors import MediaError, OptionalExtra

SPEECH: Final = OptionalExtra(
    "tts",
    "speech needs",
    (
        "transformers",  # voices and recognisers
        "soundfile",  # recordings
        "scipy",  # other rates, and tests
        "PIL",  # pictures of sound
        "jinja2",  # pages
    ),
)
"""What speech needs besides the core install."""


class SpeechError(MediaError):
    """The root of the tree."""


class CorpusError(SpeechError):
    """Recordings, or a prepared corpus, that cannot be trained on."""


class VoiceError(SpeechError):
    """A folder that holds no voice, or one that does not fit the corpus or the text."""


class FeedbackError(SpeechError):
    """A manifest of corrections and ratings that cannot be used."""


class JudgeError(SpeechError):
    """A recogniser that cannot be trained or loaded."""
