"""Errors of recordings, voices and corrections, all under `SpeechError`."""

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
"""Optional packages of the speech trainer."""


class SpeechError(MediaError):
    """Base class of speech errors."""


class CorpusError(SpeechError):
    """Recordings or a prepared corpus cannot be used for training."""


class VoiceError(SpeechError):
    """A folder holds no voice, or the voice does not fit the corpus or the text."""


class FeedbackError(SpeechError):
    """Corrections and ratings cannot be used."""


class RecogniserError(SpeechError):
    """A speech recogniser cannot be trained or loaded."""
