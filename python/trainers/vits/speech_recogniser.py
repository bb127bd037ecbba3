"""A small speech recogniser, which measures intelligibility; trained only on real recordings.

Files of its folder, which is in the corpus that it was trained on:

- `recogniser.json`: characters, corpus, error rate, and digest of the weights;
- `recogniser.safetensors`: weights.
"""

import json
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NamedTuple, Self, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from predictor.draft_folder import publish_folder
from trainers.loop import Loop, Loss, Phase, adamw, cosine, shuffle_indices
from trainers.media.run_directory import check_free, convert_write_errors
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.distances import edit_distance
from trainers.vits.errors import RecogniserError
from trainers.vits.spectrum import BANDS, SILENCE, FrameSettings, log_mel
from trainers.vits.vocabulary import shorten

STEPS, BATCH, RATE = 300, 16, 2e-3
"""Training steps, clips per step, and peak learning rate."""

EVEN = 0.2
"""Share of the steps, at the start, that align letters evenly over a clip. Without this start some seeds learn letters
at wrong positions, and then only memorise their clips."""

CHANNELS, WIDTH, DILATIONS = 128, 5, (1, 2, 4, 1)

USUAL, SPREAD = -5.0, 2.5
"""Approximate mean and standard deviation of log mels of speech."""

LOUDNESS, NOISE = 0.3, 0.3
"""Standard deviations of the noise added to log mels in training: per clip, and per value."""

MAX_LISTED = 5
"""Number of clips that a message lists."""


def audible_text(text: str) -> str:
    """The audible part of a text: lower-case letters, digits and apostrophes, with single spaces."""
    plain = unicodedata.normalize("NFC", text).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    letters = "".join(c if unicodedata.category(c)[0] in "LMN" or c == "'" else " " for c in plain)
    return " ".join(letters.split())


class TranscriptBatch(NamedTuple):
    """Clips padded to the longest.

    Attributes:
        mels: Log mels, float32 [N, bands, T].
        frames: Frames of each clip, int64 [N].
        letters: Letter ids from 1, int64 [N, L], zero-padded.
        lengths: Letters of each clip, int64 [N].
    """

    mels: Tensor
    frames: Tensor
    letters: Tensor
    lengths: Tensor


class LetterNetwork(nn.Module):
    """Letter probabilities from log mels, by dilated residual convolutions.

    Args:
        letters: Number of letters, without the blank.
    """

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.input = nn.Conv1d(BANDS, CHANNELS, WIDTH, padding=WIDTH // 2)
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in DILATIONS)
        self.blocks = nn.ModuleList(
            nn.Conv1d(CHANNELS, CHANNELS, WIDTH, padding=WIDTH // 2 * wide, dilation=wide) for wide in DILATIONS
        )
        self.output = nn.Conv1d(CHANNELS, letters + 1, 1)

    def forward(self, mels: Tensor, frames: Tensor) -> Tensor:
        """Log probabilities of letters in every frame; padding does not affect them.

        Args:
            mels: float32 [N, bands, T].
            frames: Frames of each clip, int64 [N].

        Returns:
            float32 [N, letters + 1, T], the blank first.
        """
        is_inside = (torch.arange(mels.shape[2], device=mels.device) < frames[:, None])[:, None]
        hidden = self.input((mels - USUAL) / SPREAD * is_inside)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            normed: Tensor = norm(hidden.mT).mT
            hidden = hidden + block(normed.relu() * is_inside)
        return self.output(hidden).log_softmax(1)


def compute_recorded_mel(corpus: SpeechCorpus, clip: RecordedClip) -> Tensor:
    """Log mel of a recording: float32 [bands, frames]."""
    return log_mel(corpus.spectrogram(clip)[None], corpus.framing.rate)[0]


@final
class TrainingBatches:
    """Batches of training recordings with noise from torch's global generator, which the training loop seeds.

    Args:
        corpus: Corpus, of which only the training split is read.
        characters: Letters of its texts.
        seed: Seed of the order, 0 or more.

    Raises:
        RecogniserError: A clip has too few frames for its letters.
    """

    def __init__(self, corpus: SpeechCorpus, characters: str, seed: int) -> None:
        numbers = {letter: number for number, letter in enumerate(characters, 1)}
        self._corpus, self._seed = corpus, seed
        self._clips = [clip for clip in corpus.list_clips("train") if audible_text(clip.text)]
        self._letters = [torch.tensor([numbers[letter] for letter in audible_text(clip.text)]) for clip in self._clips]
        _check_lengths(self._clips)

    @property
    def length(self) -> int:
        """Batches in an epoch."""
        return ceil(len(self._clips) / BATCH)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[TranscriptBatch]:
        """The batches of an epoch."""
        order = shuffle_indices(len(self._clips), seed=self._seed, epoch=epoch).split(BATCH)
        for index in order[start::step]:
            yield self._batch(index.tolist())

    def _batch(self, indices: Sequence[int]) -> TranscriptBatch:
        # A recogniser of only clean speech rejects all synthetic speech.
        clean = [compute_recorded_mel(self._corpus, self._clips[index]) for index in indices]
        mels = [mel + LOUDNESS * torch.randn(()) + NOISE * torch.randn(mel.shape) for mel in clean]
        letters = [self._letters[index] for index in indices]
        return TranscriptBatch(
            mels=pad_sequence([mel.T for mel in mels], batch_first=True, padding_value=SILENCE).mT,
            frames=torch.tensor([mel.shape[1] for mel in mels]),
            letters=pad_sequence(letters, batch_first=True),
            lengths=torch.tensor([len(numbers) for numbers in letters]),
        )


def _check_lengths(clips: Iterable[RecordedClip]) -> None:
    """Check that each clip has a frame per letter, and one for the blank between equal letters."""
    short = [
        f"{clip.name} ({clip.frames} frames for {shorten(clip.text)!r})"
        for clip in clips
        if clip.frames < sum(1 + (a == b) for a, b in pairwise("\0" + audible_text(clip.text)))
    ]
    if short:
        rest = f" and {len(short) - MAX_LISTED} more" if len(short) > MAX_LISTED else ""
        raise RecogniserError(
            "a recogniser cannot be trained on clips with more letters than frames: "
            f"{', '.join(short[:MAX_LISTED])}{rest}; the texts are longer than the recordings: correct or remove them, "
            "and prepare again"
        )


def fit(network: LetterNetwork, batches: TrainingBatches, steps: int, consume: ReportConsumer) -> None:
    """Train a network.

    Raises:
        LoopError: The training failed.
    """

    def loss(batch: TranscriptBatch) -> Loss:
        criterion = compute_even_loss if run.windows < int(EVEN * steps) else compute_recognition_loss
        return criterion(network(batch.mels, batch.frames), batch)

    optimizer = adamw(network.parameters(), lr=RATE)
    schedule = cosine(optimizer, warmup_steps=min(30, steps // 10), total_steps=steps)
    phase = Phase("recogniser", loss, network.parameters(), optimizer, scheduler=schedule)
    loop = Loop([phase], modules={"recogniser": network}, device="cpu", precision="fp32")
    with loop.running() as run:
        for _ in consume(run.epochs(batches, max_epochs=ceil(steps / batches.length))):
            if run.windows == steps:
                break


def compute_even_loss(log_probabilities: Tensor, batch: TranscriptBatch) -> Loss:
    """Mean over clips of the negative log-likelihood per frame, with letters aligned evenly.

    Args:
        log_probabilities: Log probabilities, float32 [N, letters + 1, T].
        batch: The N clips.
    """
    frames = torch.arange(log_probabilities.shape[2])
    is_inside = frames < batch.frames[:, None]
    positions = (frames * batch.lengths[:, None]).div(batch.frames[:, None], rounding_mode="floor")
    letters = batch.letters.gather(1, positions.clamp(max=batch.letters.shape[1] - 1))
    losses = -log_probabilities.gather(1, letters[:, None])[:, 0] * is_inside
    return Loss(mean=(losses.sum(1) / batch.frames).mean(), count=len(batch.frames))


def compute_recognition_loss(log_probabilities: Tensor, batch: TranscriptBatch) -> Loss:
    """Mean over clips of the CTC loss per letter.

    Args:
        log_probabilities: Log probabilities, float32 [N, letters + 1, T].
        batch: The N clips.
    """
    losses = functional.ctc_loss(
        log_probabilities.permute(2, 0, 1), batch.letters, batch.frames, batch.lengths, reduction="none"
    )
    return Loss(mean=(losses / batch.lengths).mean(), count=len(batch.lengths))


FOLDER: Final = "recogniser"
"""Folder of the recogniser in a prepared corpus."""

FACTS: Final = "recogniser.json"
WEIGHTS: Final = "recogniser.safetensors"
VERSION: Final = 1

SILENT: Final = ConsumerChain()
"""Discards progress reports."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpeechRecogniser:
    """A trained recogniser and its error rate.

    Attributes:
        network: Network in evaluation mode.
        characters: Letters in the order of the outputs.
        framing: Framing of the input spectrograms.
        corpus: Digest of the training corpus.
        error_rate: Character error rate on the held-out recordings of that corpus.
    """

    network: LetterNetwork
    characters: str
    framing: FrameSettings
    corpus: str
    error_rate: float

    @torch.inference_mode()
    def transcribe(self, mel: Tensor) -> str:
        """Transcribe greedily: the likeliest letter of every frame, without repetitions and blanks.

        Args:
            mel: Log mel, float32 [bands, frames], on the CPU.
        """
        if not mel.shape[1]:
            return ""
        likeliest: list[int] = self.network(mel[None], torch.tensor([mel.shape[1]]))[0].argmax(0).tolist()
        return "".join(self.characters[letter - 1] for letter, _ in groupby(likeliest) if letter)

    def save(self, folder: Path) -> None:
        """Write a folder atomically; the same recogniser gives the same bytes.

        Raises:
            RecogniserError: The folder exists, or cannot be written.
        """
        weights = save({name: tensor.contiguous() for name, tensor in self.network.state_dict().items()})
        facts = {
            "version": VERSION,
            "characters": self.characters,
            "framing": asdict(self.framing),
            "corpus": self.corpus,
            "error_rate": self.error_rate,
            "weights": sha256(weights).hexdigest(),
        }
        check_free(folder, RecogniserError)
        with convert_write_errors(folder, RecogniserError), publish_folder(folder) as draft:
            (draft / WEIGHTS).write_bytes(weights)
            (draft / FACTS).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a saved recogniser.

        Raises:
            RecogniserError: The folder is missing, damaged, or of another version.
        """
        facts = _read_facts(folder)
        weights = _read(folder, WEIGHTS)
        match facts:
            case {
                "version": int(),
                "characters": str(characters),
                "framing": {"rate": int(rate), "hop": int(hop), "fft": int(fft), **other},
                "corpus": str(corpus),
                "error_rate": float(rate_of_errors),
                "weights": str(digest),
                **rest,
            } if not rest and not other and min(rate, hop, fft) > 0 and 0 <= rate_of_errors < float("inf"):
                if digest != sha256(weights).hexdigest():
                    raise _make_damaged_error(folder, f"{WEIGHTS} does not match the digest in {FACTS}")
                return cls(
                    network=_load_network(folder, characters, weights),
                    characters=characters,
                    framing=FrameSettings(rate, hop, fft),
                    corpus=corpus,
                    error_rate=rate_of_errors,
                )
            case _:
                raise _make_damaged_error(folder, f"{FACTS} has missing or invalid fields")


def train_recogniser(
    corpus: SpeechCorpus, *, steps: int = STEPS, seed: int = 0, threads: int = 1, consume: ReportConsumer = SILENT
) -> SpeechRecogniser:
    """Train a recogniser on the CPU; deterministic for a seed and a number of threads.

    It is trained only on recordings, never on synthesised speech.

    Args:
        corpus: Prepared corpus.
        steps: Optimizer steps, 1 or more.
        seed: Seed of initial weights, order and noise, 0 or more.
        threads: CPU threads.
        consume: Receives progress reports.

    Raises:
        RecogniserError: No text has a letter, or a clip has too few frames for its letters.
        LoopError: The training failed.
    """
    characters = "".join(sorted({letter for clip in corpus.list_clips("train") for letter in audible_text(clip.text)}))
    if not characters:
        raise RecogniserError(f"no training text of {corpus.folder} has a letter; prepare clips with texts")
    with _set_threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = LetterNetwork(len(characters))
        fit(network, TrainingBatches(corpus, characters, seed), steps, consume)
        recogniser = SpeechRecogniser(
            network=network.eval(),
            characters=characters,
            framing=corpus.framing,
            corpus=corpus.digest,
            error_rate=0.0,
        )
        return replace(recogniser, error_rate=measure_error_rate(recogniser, corpus, corpus.list_clips("held_out")))


def measure_error_rate(recogniser: SpeechRecogniser, corpus: SpeechCorpus, clips: Iterable[RecordedClip]) -> float:
    """Character error rate on recordings."""
    errors = letters = 0
    for clip in clips:
        reference = audible_text(clip.text)
        errors += edit_distance(recogniser.transcribe(compute_recorded_mel(corpus, clip)), reference)
        letters += len(reference)
    return errors / max(1, letters)


def load_or_train_recogniser(
    corpus: SpeechCorpus, folder: Path | None = None, *, consume: ReportConsumer = SILENT
) -> SpeechRecogniser:
    """Load the recogniser of a corpus, or train and save it.

    Args:
        corpus: Prepared corpus.
        folder: Folder of the recogniser; None for `recogniser` in the corpus.
        consume: Receives progress reports.

    Raises:
        RecogniserError: The recogniser is damaged or of another corpus; the folder cannot be written; or there is
            nothing to train on.
        LoopError: The training failed.
    """
    path = folder or corpus.folder / FOLDER
    if not path.exists():
        with convert_write_errors(path, RecogniserError):  # check before training that the folder can be written
            path.parent.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=path.parent).close()
        recogniser = train_recogniser(corpus, consume=consume)
        if not path.exists():  # another process may have saved the same one meanwhile
            recogniser.save(path)
        return recogniser
    recogniser = SpeechRecogniser.load(path)
    if recogniser.corpus != corpus.digest:
        raise RecogniserError(
            f"the recogniser in {path} is not of corpus {corpus.folder}; remove {path} to train a new one"
        )
    return recogniser


def _read_facts(folder: Path) -> Mapping[str, object]:
    try:
        facts: object = json.loads(_read(folder, FACTS))
    except ValueError as error:
        raise _make_damaged_error(folder, f"{FACTS} is not JSON: {error}") from error
    match facts:
        case {"version": int(version)} if version != VERSION:
            raise RecogniserError(
                f"recogniser {folder} has format version {version}, expected {VERSION}; remove it to train a new one"
            )
        case dict():
            return {str(key): value for key, value in facts.items()}
        case _:
            raise _make_damaged_error(folder, f"{FACTS} is not an object")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _make_damaged_error(folder, f"{name} cannot be read ({error.strerror})") from error


def _load_network(folder: Path, characters: str, weights: bytes) -> LetterNetwork:
    with torch.random.fork_rng(devices=[]):  # initialisation draws random numbers
        network = LetterNetwork(len(characters))
    try:
        network.load_state_dict(load(weights))
    except (SafetensorError, RuntimeError) as error:
        raise _make_damaged_error(
            folder, f"{WEIGHTS} does not hold the weights of {len(characters)} characters"
        ) from error
    return network.eval()


def _make_damaged_error(folder: Path, problem: str) -> RecogniserError:
    return RecogniserError(f"recogniser {folder} is damaged: {problem}; remove {folder} to train a new one")


@contextmanager
def _set_threads(number: int) -> Generator[None]:
    """Set the number of torch threads temporarily."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
