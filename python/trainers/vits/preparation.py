"""Prepares a folder of recordings: every clip is checked, decoded and framed once, one after another."""

import re
import shutil
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import gcd
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import Tensor

from trainers.media.metadata import RejectedFile, listed, normal_text
from trainers.media.run_directory import check_free, own_draft, writing
from trainers.vits.corpus import (
    CLIPS,
    FULL_SCALE,
    CorpusContents,
    Part,
    RecordedClip,
    SpeechCorpus,
    content_digest,
    write_clip,
    write_contents,
)
from trainers.vits.errors import CorpusError, SpeechError
from trainers.vits.metadata import TranscriptLine, parts_of, problem_of_text, read_metadata, words_of
from trainers.vits.spectrum import FrameSettings
from trainers.vits.vocabulary import characters, tokenizer_of, tokens, unknown_characters, write_vocabulary

if TYPE_CHECKING:
    from soundfile import SoundFile
    from transformers import VitsTokenizer


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


@dataclass(frozen=True, slots=True)
class RecordingEntry:
    """A recording that is to become a clip.

    Attributes:
        name: of the clip; no two have the same.
        text: what is said.
        path: of the recording, a WAV or FLAC file.
    """

    name: str
    text: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSettings:
    """How recordings become a corpus.

    Attributes:
        framing: rate of the recordings, and how they are cut into frames.
        resample: whether recordings of another rate are converted, by a polyphase filter.
        skip_bad: whether clips that cannot be used are left out; else one is enough to refuse the folder.
        selection: texts to choose by: below 1 a share, else a number.
        held_out: texts to judge by, the same way.
        min_frames: the shortest clip: one slice of a training step.
        max_seconds: the longest clip.
        vocabulary: a model's, whose characters alone can be used; None for that of the texts.
        numbers: how many of so many different texts are to choose by, and to judge by, in the place of the shares.
    """

    framing: FrameSettings = field(default_factory=FrameSettings)
    resample: bool = False
    skip_bad: bool = False
    selection: float = 0.05
    held_out: float = 0.05
    min_frames: int = 32
    max_seconds: float = 20.0
    vocabulary: Mapping[str, int] | None = None
    numbers: Callable[[int], tuple[int, int]] | None = None

    def parts(self, texts: Sequence[str]) -> Mapping[str, Part]:
        """The part of every text; see `parts_of`."""
        selection, held_out = self.selection, self.held_out
        if self.numbers is not None:
            selection, held_out = self.numbers(len(set(map(words_of, texts))))
        return parts_of(texts, selection=selection, held_out=held_out)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            CorpusError: One of them makes no sense, or not with the others.
        """
        _check_framing(self.framing, self.min_frames)
        for name, share in (("selection", self.selection), ("held_out", self.held_out)):
            if not (0 < share < 1 or (share >= 1 and share == int(share))):
                raise CorpusError(f"{name} is {share:g}; give a share between 0 and 1, or a number of texts from 1 on")
        if not self.framing.seconds(self.min_frames) <= self.max_seconds < float("inf"):
            raise CorpusError(
                f"max_seconds is {self.max_seconds:g}; give at least the length of {self.min_frames} frames"
            )


def prepare(
    source: Path, out: Path, settings: CorpusSettings, tell: Callable[[int, int], None] = lambda _done, _total: None
) -> SpeechCorpus:
    """Check recordings and texts, and write them as a prepared corpus; clips are in memory one at a time.

    The folder appears whole or not at all. The same recordings and settings give the same bytes.

    Args:
        source: a folder with metadata.csv (`id|text`) and wavs/ID.wav or wavs/ID.flac, or those beside it.
        out: the folder to make; must not exist.
        settings: what a clip must be, and how the texts are cut into parts.
        tell: called after each clip with how many are done, and of how many.

    Raises:
        CorpusError: The folder or its metadata.csv cannot be used; clips cannot and may not be left out (the message
            lists them); there are too few texts; `out` exists or cannot be written.
    """
    check_free(out, CorpusError)
    lines, refused = read_metadata(source)
    recordings = _found(source)
    named = {one.name for one in (*lines, *refused)}
    entries, missing = _with_recordings(lines, recordings)
    work = _PreparationRun(out, settings, tell)
    return work.write(entries, (*refused, *missing), _unlisted(source, recordings, named))


def prepare_clips(
    entries: Sequence[RecordingEntry],
    out: Path,
    settings: CorpusSettings,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> SpeechCorpus:
    """Check recordings that are named one by one, and write them as a prepared corpus, as `prepare` does.

    Args:
        entries: names, texts and files; an entry whose name another one has is bad.
        out: the folder to make; must not exist.
        settings: what a clip must be, and how the texts are cut into parts.
        tell: called after each clip with how many are done, and of how many.

    Raises:
        CorpusError: There are no entries; some cannot be used and may not be left out (the message lists them); there
            are too few texts; `out` exists or cannot be written.
    """
    check_free(out, CorpusError)
    if not entries:
        raise CorpusError(f"there are no recordings to make {out} of; name some")
    usable, refused = _sorted_out(entries)
    return _PreparationRun(out, settings, tell).write(usable, refused, ())


@final
class _PreparationRun:
    """What becomes of the entries, one after another.

    Args:
        out: where the corpus will be.
        settings: what a clip must be.
        tell: called after each clip with how many are done, and of how many.
    """

    def __init__(self, out: Path, settings: CorpusSettings, tell: Callable[[int, int], None]) -> None:
        self._out = out
        self._settings = settings
        self._tell = tell
        self._accepted = RecordingLimits(
            framing=settings.framing,
            resample=settings.resample,
            min_frames=settings.min_frames,
            max_seconds=settings.max_seconds,
        )
        self._clips: dict[str, RecordedClip] = {}
        self._refused: list[RejectedFile] = []
        self._unknown: Counter[str] = Counter()

    def write(
        self, entries: Sequence[RecordingEntry], refused: Sequence[RejectedFile], unlisted: tuple[str, ...]
    ) -> SpeechCorpus:
        """The corpus of entries, beside what was refused before."""
        tokenizer = tokenizer_of(_vocabulary(self._settings, entries))
        self._refused += refused
        with _draft(self._out) as draft:
            for done, entry in enumerate(entries, start=1):
                self._take(draft, entry, tokenizer)
                self._tell(done, len(entries))
            self._finish(draft, unlisted)
        return SpeechCorpus.open(self._out)

    def _take(self, draft: Path, entry: RecordingEntry, tokenizer: "VitsTokenizer") -> None:
        """Keep the clip of an entry, or why it cannot be."""
        try:
            clip, samples = self._checked(entry, tokenizer)
        except SpeechError as error:
            self._refused.append(RejectedFile(entry.name, error.message))
            return
        with writing(self._out, CorpusError):
            write_clip(draft, clip.digest, samples, self._settings.framing)
        self._clips[clip.digest] = clip
        self._unknown += unknown_characters(tokenizer, entry.text)

    def _finish(self, draft: Path, unlisted: tuple[str, ...]) -> None:
        """Cut the clips into parts, write what else a corpus has, and put it into its place."""
        clips = tuple(self._clips.values())
        if self._refused and not (clips and self._settings.skip_bad):
            raise CorpusError(listed(self._refused, len(clips), "clips"))
        parts = self._settings.parts(_texts(clips))
        contents = CorpusContents(
            framing=self._settings.framing,
            clips=tuple(replace(clip, part=parts[clip.text]) for clip in clips),
            refused=tuple(self._refused),
            unknown=self._unknown,
            unlisted=unlisted,
        )
        with writing(self._out, CorpusError):
            write_contents(draft, contents)
            write_vocabulary(draft, _vocabulary(self._settings, clips))
            draft.rename(self._out)

    def _checked(self, entry: RecordingEntry, tokenizer: "VitsTokenizer") -> tuple[RecordedClip, "Tensor"]:
        """An entry's clip, of which the part is not known yet, and its samples, int16 [frames · hop]."""
        needed = len(tokens(tokenizer, entry.text))
        samples = decode(entry.path, self._accepted)
        frames = len(samples) // self._settings.framing.hop
        if frames < needed:
            raise CorpusError(
                f"{entry.path} has {frames} frames for a text of {needed} characters and blanks, each of which needs "
                "one; check that the text is the recording's"
            )
        digest = content_digest(entry.text, samples)
        if digest in self._clips:
            raise CorpusError(f"{entry.path} has samples and text of clip {self._clips[digest].name}; keep one of them")
        return RecordedClip(entry.name, entry.text, "train", frames, digest), samples


@contextmanager
def _draft(out: Path) -> Generator[Path]:
    """A folder beside `out`; what is left of it in the end is removed."""
    with writing(out, CorpusError):
        draft = own_draft(out)
    try:
        with writing(out, CorpusError):
            (draft / CLIPS).mkdir()
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # after the renaming there is nothing left to remove


def _with_recordings(
    lines: Sequence[TranscriptLine], recordings: Recordings
) -> tuple[tuple[RecordingEntry, ...], tuple[RejectedFile, ...]]:
    """Lines with their files, and those that have none."""
    entries: list[RecordingEntry] = []
    missing: list[RejectedFile] = []
    for line in lines:
        try:
            entries.append(RecordingEntry(line.name, line.text, the_recording(recordings, line.name)))
        except CorpusError as error:
            missing.append(RejectedFile(line.name, error.message))
    return tuple(entries), tuple(missing)


def _sorted_out(entries: Sequence[RecordingEntry]) -> tuple[tuple[RecordingEntry, ...], tuple[RejectedFile, ...]]:
    """Entries with their texts in the normal form, and those that say nothing usable."""
    counts = Counter(entry.name for entry in entries)
    usable: list[RecordingEntry] = []
    refused: list[RejectedFile] = []
    for entry in entries:
        text = normal_text(entry.text)
        if counts[entry.name] > 1:
            reason = f"{entry.path} is one of {counts[entry.name]} recordings of this name; name each differently"
            refused.append(RejectedFile(entry.name, reason))
        elif problem := problem_of_text(text):
            refused.append(RejectedFile(entry.name, f"{entry.path} {problem}"))
        else:
            usable.append(replace(entry, text=text))
    return tuple(usable), tuple(refused)


def _found(source: Path) -> Recordings:
    try:
        return find_recordings(source)
    except OSError as error:
        raise CorpusError(f"{error.filename} cannot be read ({error.strerror})") from error


def _vocabulary(
    settings: CorpusSettings, having: Sequence[RecordingEntry] | Sequence[RecordedClip]
) -> Mapping[str, int]:
    """The model's, or that of the texts."""
    return characters(_texts(having)) if settings.vocabulary is None else settings.vocabulary


def _check_framing(framing: FrameSettings, min_frames: int) -> None:
    """That a clip of the fewest frames has a spectrogram."""
    edge = (framing.fft - framing.hop) // 2
    if framing.rate < 1 or framing.hop < 1 or framing.fft < framing.hop or (framing.fft - framing.hop) % 2:
        raise CorpusError(f"{framing} cannot be used: rate and hop from 1 on, fft at least hop, both even or both odd")
    if min_frames < 1 or min_frames * framing.hop <= edge:
        raise CorpusError(f"min_frames is {min_frames}; {framing} needs at least {edge // framing.hop + 1}")


def _texts(having: Sequence[RecordingEntry] | Sequence[RecordedClip]) -> list[str]:
    return [one.text for one in having]


def _unlisted(source: Path, recordings: Recordings, named: set[str]) -> tuple[str, ...]:
    """Recordings that no line names."""
    left = (path for name, paths in recordings.items() if name not in named for path in paths)
    return tuple(sorted(path.relative_to(source).as_posix() for path in left))
