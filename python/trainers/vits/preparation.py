"""Preparation of a corpus: checks, decodes and frames recordings."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
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

from predictor.draft_folder import publish_folder
from trainers.media.metadata import RejectedFile, describe_rejections, normal_text
from trainers.media.run_directory import check_free, convert_write_errors
from trainers.vits.corpus import (
    CLIPS,
    FULL_SCALE,
    RecordedClip,
    SpeechCorpus,
    Split,
    hash_content,
    write_clip,
)
from trainers.vits.errors import CorpusError, SpeechError
from trainers.vits.metadata import assign_splits, find_text_problem, normalise_words, read_metadata
from trainers.vits.spectrum import FrameSettings
from trainers.vits.vocabulary import (
    build_tokenizer,
    count_unknown_characters,
    list_characters,
    tokenize,
)

if TYPE_CHECKING:
    from soundfile import SoundFile
    from transformers import VitsTokenizer


WAVES_FOLDER: Final = "wavs"

ENDINGS: Final = (".wav", ".flac")

SILENT_BELOW: Final = 1e-3
"""A clip whose samples all stay this close to their mean (-60 dB of full scale) is silent."""

MIN_RATE: Final = 4_000
"""Minimum plausible sample rate of speech."""

MAX_RATE: Final = 768_000
"""Maximum sample rate; conversion from far beyond takes minutes and gigabytes."""

_TRUNCATION_NOTE: Final = re.compile(r"^data : (?P<says>\d+) \(should be (?P<has>\d+)\)", re.MULTILINE)
"""Note of libsndfile on a truncated WAV file, which it reads without an error."""

_MIN_UNKNOWN_LENGTH: Final = 2**31 - 2**20
"""Lengths from here on in a WAV header mean that the writer did not know the length."""

Recordings = Mapping[str, tuple[Path, ...]]
"""Files by id, which is the path without extension, relative to `wavs` or to the folder of metadata.csv."""


@dataclass(frozen=True, slots=True)
class RecordingEntry:
    """A recording to prepare.

    Attributes:
        name: Unique name of the clip.
        text: Spoken text.
        path: WAV or FLAC file.
    """

    name: str
    text: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSettings:
    """Settings for preparing a corpus.

    Attributes:
        framing: Sample rate and framing.
        resample: Whether to convert recordings of another rate, with a polyphase filter.
        skip_bad: Whether to leave out unusable clips; otherwise one rejects the folder.
        selection: Selection texts: a share if below 1, else a number.
        held_out: Held-out texts, likewise.
        min_frames: Shortest clip: one slice of a training step.
        max_seconds: Longest clip.
        vocabulary: Vocabulary of a model, to use only its characters; None builds one from the texts.
        numbers: Returns the numbers of selection and held-out texts for a number of different texts; overrides the
            shares.
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

    def assign_splits(self, texts: Sequence[str]) -> Mapping[str, Split]:
        """The split of every text; see `trainers.vits.metadata.assign_splits`."""
        selection, held_out = self.selection, self.held_out
        if self.numbers is not None:
            selection, held_out = self.numbers(len(set(map(normalise_words, texts))))
        return assign_splits(texts, selection=selection, held_out=held_out)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            CorpusError: A value is out of range, or inconsistent with the others.
        """
        framing = self.framing
        min_frames = self.min_frames
        edge = (framing.fft - framing.hop) // 2
        if framing.rate < 1 or framing.hop < 1 or framing.fft < framing.hop or (framing.fft - framing.hop) % 2:
            raise CorpusError(
                f"{framing} cannot be used: rate and hop from 1 on, fft at least hop, both even or both odd"
            )
        if min_frames < 1 or min_frames * framing.hop <= edge:
            raise CorpusError(f"min_frames is {min_frames}; {framing} needs at least {edge // framing.hop + 1}")
        for name, share in (("selection", self.selection), ("held_out", self.held_out)):
            if not (0 < share < 1 or (share >= 1 and share == int(share))):
                raise CorpusError(f"{name} is {share:g}; give a share between 0 and 1, or a whole number of texts")
        if not self.framing.seconds(self.min_frames) <= self.max_seconds < float("inf"):
            raise CorpusError(
                f"max_seconds is {self.max_seconds:g}; give at least the length of {self.min_frames} frames"
            )


def find_recordings(source: Path) -> Recordings:
    """Find all recordings in `source/wavs`, recursively, and in `source`.

    Raises:
        OSError: A folder cannot be read.
    """
    recordings: defaultdict[str, list[Path]] = defaultdict(list)
    for folder, paths in ((source / WAVES_FOLDER, (source / WAVES_FOLDER).rglob("*")), (source, source.iterdir())):
        sounds = (path for path in paths if path.suffix.lower() in ENDINGS and path.name[0] != "." and path.is_file())
        for path in sorted(sounds):
            name = path.relative_to(folder).with_suffix("").as_posix()
            recordings[unicodedata.normalize("NFC", name)].append(path)
    return {name: tuple(paths) for name, paths in recordings.items()}


def find_recording(recordings: Recordings, name: str) -> Path:
    """The one file of an id.

    Raises:
        CorpusError: The id has no file, or several.
    """
    match recordings.get(name, ()):
        case (path,):
            return path
        case ():
            bare = str(PurePosixPath(name.removeprefix(f"{WAVES_FOLDER}/")).with_suffix(""))
            if bare in recordings:
                raise CorpusError(f"the id {name} includes a folder or extension; write {bare}")
            raise CorpusError(
                f"neither {WAVES_FOLDER}/{name}.wav nor {WAVES_FOLDER}/{name}.flac exists; add the recording, or "
                "remove the line"
            )
        case paths:
            raise CorpusError(f"several recordings have this id: {' and '.join(map(str, paths))}; keep one of them")


def decode(path: Path, settings: CorpusSettings) -> Tensor:
    """Decode a recording, cut to whole frames.

    Returns:
        int16 [frames · hop].

    Raises:
        CorpusError: The recording is missing, undecodable, multi-channel, of another rate (without `resample`), too
            short, too long, silent, or louder than full scale.
    """
    wave, rate = _read(path, settings)
    target_rate = settings.framing.rate
    if rate != target_rate and len(wave):
        shared = gcd(target_rate, rate)
        wave = np.asarray(resample_poly(wave, target_rate // shared, rate // shared), dtype=np.float64)
    frames = len(wave) // settings.framing.hop
    if frames < settings.min_frames:
        raise CorpusError(
            f"{path} has {frames} frames, {len(wave) / settings.framing.rate:.2f} s; at least {settings.min_frames} "
            f"({settings.framing.seconds(settings.min_frames):.2f} s) are needed: join it with another, or remove it"
        )
    wave = wave[: frames * settings.framing.hop]
    if np.abs(wave - wave.mean()).max() < SILENT_BELOW:
        raise CorpusError(f"{path} is silent; record it again, or remove it")
    return torch.from_numpy(np.clip(np.rint(wave * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16))


def _read(path: Path, settings: CorpusSettings) -> tuple[NDArray[np.float64], int]:
    """Samples of the single channel, float64 [T], and their rate."""
    if not path.is_file():
        raise CorpusError(f"file {path} does not exist; add the recording, or leave it out")
    try:
        with soundfile.SoundFile(path) as file:
            _check_head(path, file, settings)
            wave = np.asarray(file.read(dtype="float64"), dtype=np.float64)
            rate = file.samplerate
    except soundfile.LibsndfileError as error:
        raise CorpusError(
            f"{path} cannot be decoded ({error.error_string}); copy it again, or convert it to 16-bit WAV or FLAC"
        ) from error
    if not np.isfinite(wave).all():
        raise CorpusError(f"{path} has non-finite samples; convert it to a 16-bit WAV or FLAC file")
    if len(wave) and np.abs(wave).max() > 1:
        raise CorpusError(f"{path} is louder than full scale (a sample of {np.abs(wave).max():.2f}); turn it down")
    return wave, rate


def _check_head(path: Path, file: "SoundFile", settings: CorpusSettings) -> None:
    """Check the header before reading a long file."""
    truncated = _TRUNCATION_NOTE.search(file.extra_info)
    if truncated and int(truncated["has"]) < int(truncated["says"]) < _MIN_UNKNOWN_LENGTH:
        has, says = truncated["has"], truncated["says"]
        raise CorpusError(f"{path} ends after {has} of {says} bytes of samples; copy it again")
    if file.channels != 1:
        raise CorpusError(f"{path} has {file.channels} channels; mix them into one: ffmpeg -i IN -ac 1 OUT")
    if not MIN_RATE <= file.samplerate <= MAX_RATE:
        raise CorpusError(f"{path} has {file.samplerate} samples per second in a damaged header; copy it again")
    if file.samplerate != settings.framing.rate and not settings.resample:
        raise CorpusError(
            f"{path} has {file.samplerate} samples per second instead of {settings.framing.rate}; "
            "convert it, or use --resample"
        )
    if file.frames > settings.max_seconds * file.samplerate:
        raise CorpusError(
            f"{path} lasts {file.frames / file.samplerate:.1f} s, more than {settings.max_seconds:g} s; "
            "cut it into sentences"
        )


def prepare_corpus(
    source: Path,
    out: Path,
    settings: CorpusSettings,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> SpeechCorpus:
    """Check recordings and texts, and write a prepared corpus, one clip in memory at a time.

    The folder is written atomically. The same recordings and settings give the same bytes.

    Args:
        source: Folder with metadata.csv (`id|text`) and ID.wav or ID.flac, in `wavs` or directly.
        out: Folder to create.
        settings: Requirements on clips, and the split.
        on_progress: Called after each clip with the number done and the total.

    Raises:
        CorpusError: The folder or its metadata.csv is unusable; clips are unusable and `skip_bad` is False (the message
            lists them); there are too few texts; `out` exists or cannot be written.
    """
    check_free(out, CorpusError)
    lines, refused = read_metadata(source)
    try:
        recordings = find_recordings(source)
    except OSError as error:
        raise CorpusError(f"{error.filename} cannot be read ({error.strerror})") from error
    listed_names = {line.name for line in (*lines, *refused)}
    entries, missing = list[RecordingEntry](), list[RejectedFile]()
    for line in lines:
        try:
            entries.append(RecordingEntry(line.name, line.text, find_recording(recordings, line.name)))
        except CorpusError as error:
            missing.append(RejectedFile(line.name, error.message))
    unlisted = [path for name, paths in recordings.items() if name not in listed_names for path in paths]
    return _PreparationRun(out, settings, on_progress).write(
        entries, (*refused, *missing), tuple(sorted(path.relative_to(source).as_posix() for path in unlisted))
    )


def prepare_clips(
    entries: Sequence[RecordingEntry],
    out: Path,
    settings: CorpusSettings,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> SpeechCorpus:
    """Prepare individual recordings, like `prepare`.

    Args:
        entries: Names, texts and files; entries with duplicate names are rejected.
        out: Folder to create.
        settings: Requirements on clips, and the split.
        on_progress: Called after each clip with the number done and the total.

    Raises:
        CorpusError: `entries` is empty; some are unusable and `skip_bad` is False (the message lists them); there are
            too few texts; `out` exists or cannot be written.
    """
    check_free(out, CorpusError)
    if not entries:
        raise CorpusError(f"no recordings were given for {out}; give at least one")
    counts = Counter(entry.name for entry in entries)
    usable, refused = list[RecordingEntry](), list[RejectedFile]()
    for entry in entries:
        text = normal_text(entry.text)
        if counts[entry.name] > 1:
            reason = f"{entry.path} is one of {counts[entry.name]} recordings of this name; name each differently"
            refused.append(RejectedFile(entry.name, reason))
        elif problem := find_text_problem(text):
            refused.append(RejectedFile(entry.name, f"{entry.path} {problem}"))
        else:
            usable.append(replace(entry, text=text))
    return _PreparationRun(out, settings, on_progress).write(usable, refused, ())


@final
class _PreparationRun:
    """Writes entries into a corpus one by one.

    Args:
        out: Folder to create.
        settings: Requirements on clips, and the split.
        on_progress: Called after each clip with the number done and the total.
    """

    def __init__(self, out: Path, settings: CorpusSettings, on_progress: Callable[[int, int], None]) -> None:
        self._out = out
        self._settings = settings
        self._on_progress = on_progress
        self._clips: dict[str, RecordedClip] = {}
        self._refused: list[RejectedFile] = []
        self._unknown: Counter[str] = Counter()

    def write(
        self, entries: Sequence[RecordingEntry], refused: Sequence[RejectedFile], unlisted: tuple[str, ...]
    ) -> SpeechCorpus:
        """Write the corpus; `refused` lists files that were rejected before."""
        tokenizer = build_tokenizer(_build_vocabulary(self._settings, entries))
        self._refused += refused
        with ExitStack() as stack:
            with convert_write_errors(self._out, CorpusError):
                draft = stack.enter_context(publish_folder(self._out, is_durable=False))
                (draft / CLIPS).mkdir()
            for number, entry in enumerate(entries, start=1):
                self._add(draft, entry, tokenizer)
                self._on_progress(number, len(entries))
            corpus = self._split_clips(draft, unlisted)
            with convert_write_errors(self._out, CorpusError):
                corpus.write()
                stack.close()
        return SpeechCorpus.open(self._out)

    def _add(self, draft: Path, entry: RecordingEntry, tokenizer: "VitsTokenizer") -> None:
        """Write the clip of an entry, or record why it is rejected."""
        try:
            clip, samples = self._check(entry, tokenizer)
        except SpeechError as error:
            self._refused.append(RejectedFile(entry.name, error.message))
            return
        with convert_write_errors(self._out, CorpusError):
            write_clip(draft, clip.digest, samples, self._settings.framing)
        self._clips[clip.digest] = clip
        self._unknown += count_unknown_characters(tokenizer, entry.text)

    def _split_clips(self, draft: Path, unlisted: tuple[str, ...]) -> SpeechCorpus:
        """The corpus of all added clips, each in a split."""
        clips = tuple(self._clips.values())
        if self._refused and not (clips and self._settings.skip_bad):
            raise CorpusError(describe_rejections(self._refused, len(clips), "clips"))
        splits = self._settings.assign_splits([clip.text for clip in clips])
        return SpeechCorpus(
            folder=draft,
            framing=self._settings.framing,
            clips=tuple(replace(clip, split=splits[clip.text]) for clip in clips),
            vocabulary=_build_vocabulary(self._settings, clips),
            refused=tuple(self._refused),
            unknown=self._unknown,
            unlisted=unlisted,
        )

    def _check(self, entry: RecordingEntry, tokenizer: "VitsTokenizer") -> tuple[RecordedClip, "Tensor"]:
        """Clip of an entry, with a provisional split, and its samples, int16 [frames · hop]."""
        min_frames = len(tokenize(tokenizer, entry.text))
        samples = decode(entry.path, self._settings)
        frames = len(samples) // self._settings.framing.hop
        if frames < min_frames:
            raise CorpusError(
                f"{entry.path} has {frames} frames for a text of {min_frames} characters and blanks, but each needs "
                "one; check that the text belongs to the recording"
            )
        digest = hash_content(entry.text, samples)
        if digest in self._clips:
            raise CorpusError(f"{entry.path} duplicates clip {self._clips[digest].name}; keep one of them")
        return RecordedClip(entry.name, entry.text, "train", frames, digest), samples


def _build_vocabulary(
    settings: CorpusSettings, clips: Sequence[RecordingEntry] | Sequence[RecordedClip]
) -> Mapping[str, int]:
    """The given vocabulary, or one built from the texts."""
    return list_characters(clip.text for clip in clips) if settings.vocabulary is None else settings.vocabulary
