"""Recordings as they come: found in their folder, decoded, and refused where nothing can be learnt from them."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import Tensor

from trainers.vits.corpus import FULL_SCALE
from trainers.vits.errors import CorpusError
from trainers.vits.spectrum import FrameSettings

if TYPE_CHECKING:
    from soundfile import SoundFile

FOLDER: Final = "wavs"
ENDINGS: Final = (".wav", ".flac")

QUIETEST: Final = 1e-3
"""A clip whose samples stay nearer than this to their mean, -60 dB of full scale, is silence."""

SLOWEST: Final = 4_000
"""The fewest samples per second at which anybody records speech."""

FASTEST: Final = 768_000
"""The most; to convert from far beyond takes minutes and gigabytes."""

_CUT: Final = re.compile(r"^data : (?P<says>\d+) \(should be (?P<has>\d+)\)", re.MULTILINE)
"""How libsndfile tells of a WAV file that is shorter than its head says; it reads what is there."""

_ENDLESS: Final = 2**31 - 2**20
"""From here on a WAV file's head says that its writer could not know the length."""

Recordings = Mapping[str, tuple[Path, ...]]
"""Files by id: their path in `wavs`, or beside metadata.csv, without its ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLimits:
    """What a recording must be.

    Attributes:
        framing: its rate, and how it is cut into frames.
        resample: whether one of another rate is converted.
        min_frames: the fewest frames.
        max_seconds: how long it may last.
    """

    framing: FrameSettings
    resample: bool
    min_frames: int
    max_seconds: float


def find_recordings(source: Path) -> Recordings:
    """Every recording in `source/wavs`, with the folders in it, and beside metadata.csv.

    Raises:
        OSError: A folder cannot be read.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for folder, paths in ((source / FOLDER, (source / FOLDER).rglob("*")), (source, source.iterdir())):
        for path in _sounds(paths):
            name = path.relative_to(folder).with_suffix("").as_posix()
            found[unicodedata.normalize("NFC", name)].append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def the_recording(recordings: Recordings, name: str) -> Path:
    """The one file of an id.

    Raises:
        CorpusError: There is none, or there are several.
    """
    match recordings.get(name, ()):
        case (path,):
            return path
        case ():
            raise CorpusError(_missing(recordings, name))
        case paths:
            raise CorpusError(f"there are {' and '.join(map(str, paths))}; keep one of them")


def decode(path: Path, accepted: RecordingLimits) -> Tensor:
    """The samples of a recording, cut to whole frames.

    Returns:
        int16 [frames · hop].

    Raises:
        CorpusError: The recording is missing, cannot be decoded, has several channels, another rate that is not to be
            converted, is too short, too long, silent, or louder than full scale.
    """
    wave = _at_rate(*_read(path, accepted), accepted.framing.rate)
    frames = len(wave) // accepted.framing.hop
    if frames < accepted.min_frames:
        raise CorpusError(
            f"{path} has {frames} frames, {len(wave) / accepted.framing.rate:.2f} s; at least {accepted.min_frames} "
            f"({accepted.framing.seconds(accepted.min_frames):.2f} s) are needed: join it with another, or remove it"
        )
    wave = wave[: frames * accepted.framing.hop]
    if np.abs(wave - wave.mean()).max() < QUIETEST:
        raise CorpusError(f"{path} is silent; record it again, or remove it")
    return torch.from_numpy(np.clip(np.rint(wave * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16))


def _sounds(paths: Iterable[Path]) -> list[Path]:
    """The recordings among files, in an order that does not depend on the disk."""
    return sorted(path for path in paths if path.suffix.lower() in ENDINGS and path.name[0] != "." and path.is_file())


def _missing(recordings: Recordings, name: str) -> str:
    """What is wrong where an id has no file."""
    bare = str(PurePosixPath(name.removeprefix(f"{FOLDER}/")).with_suffix(""))
    if bare in recordings:
        return f"the id {name} has the folder or the ending of a file; write {bare}"
    return f"there is no {FOLDER}/{name}.wav and no {FOLDER}/{name}.flac; put the recording there, or remove the line"


def _read(path: Path, accepted: RecordingLimits) -> tuple[NDArray[np.float64], int]:
    """Samples of the one channel, float64 [T], and their rate."""
    if not path.is_file():
        raise CorpusError(f"there is no file {path}; put the recording there, or leave it out")
    try:
        with soundfile.SoundFile(path) as file:
            _check_head(path, file, accepted)
            wave = np.asarray(file.read(dtype="float64"), dtype=np.float64)
            rate = file.samplerate
    except soundfile.LibsndfileError as error:
        raise CorpusError(
            f"{path} cannot be decoded ({error.error_string}); copy it again, or convert it to 16-bit WAV or FLAC"
        ) from error
    if not np.isfinite(wave).all():
        raise CorpusError(f"{path} has samples that are no numbers; convert it to a 16-bit WAV or FLAC file")
    if len(wave) and np.abs(wave).max() > 1:
        raise CorpusError(f"{path} is louder than full scale (a sample of {np.abs(wave).max():.2f}); turn it down")
    return wave, rate


def _check_head(path: Path, file: "SoundFile", accepted: RecordingLimits) -> None:
    """What can be known before a long file is read."""
    cut = _CUT.search(file.extra_info)
    if cut and int(cut["has"]) < int(cut["says"]) < _ENDLESS:
        raise CorpusError(f"{path} ends after {cut['has']} of {cut['says']} bytes of samples; copy it again")
    if file.channels != 1:
        raise CorpusError(f"{path} has {file.channels} channels; mix them into one: ffmpeg -i IN -ac 1 OUT")
    if not SLOWEST <= file.samplerate <= FASTEST:
        raise CorpusError(f"{path} has {file.samplerate} samples per second, by its damaged head; copy it again")
    if file.samplerate != accepted.framing.rate and not accepted.resample:
        raise CorpusError(
            f"{path} has {file.samplerate} samples per second instead of {accepted.framing.rate}; "
            "convert it, or use --resample"
        )
    if file.frames > accepted.max_seconds * file.samplerate:
        raise CorpusError(
            f"{path} lasts {file.frames / file.samplerate:.1f} s, more than {accepted.max_seconds:g} s; "
            "cut it into sentences"
        )


def _at_rate(wave: NDArray[np.float64], rate: int, wanted: int) -> NDArray[np.float64]:
    """A wave at the rate that is wanted."""
    if rate == wanted or not len(wave):
        return wave
    shared = gcd(wanted, rate)
    return np.asarray(resample_poly(wave, wanted // shared, rate // shared), dtype=np.float64)
