"""The judge: a small recogniser that hears how well speech can be understood. It learns from real recordings alone.

It is kept in a folder of its own, beside the corpus that it learnt from:

- `judge.json`: what it can hear, of which corpus it is, how well it hears it, and the digest of its weights;
- `judge.safetensors`: its weights.
"""

import json
import os
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple, Self, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from trainers.loop import Loop, Loss, Phase, adamw, cosine, permutation
from trainers.media.run_directory import appearing, check_free, own_draft, writing
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.distances import edit_distance
from trainers.vits.errors import JudgeError
from trainers.vits.spectrum import BANDS, SILENCE, FrameSettings, log_mel
from trainers.vits.vocabulary import shortened

STEPS, BATCH, RATE = 300, 16, 2e-3
"""Of the training: steps, clips in each, and the highest learning rate."""

EVEN = 0.2
"""The first part of the steps, in which all letters of a clip last the same. Without this start some seeds end with the
letters at other places than where they are said, and such a network has only learnt its clips by heart."""

CHANNELS, WIDTH, DILATIONS = 128, 5, (1, 2, 4, 1)

USUAL, SPREAD = -5.0, 2.5
"""Mean and standard deviation of speech's logarithms, roughly."""

LOUDNESS, NOISE = 0.3, 0.3
"""Standard deviations of what is added in training to the logarithms: to a whole clip, and to every value."""

SHOWN = 5
"""Clips that a message names."""


def spelling(text: str) -> str:
    """What of a text can be heard: its letters, digits and apostrophes in lower case, its words one space apart."""
    plain = unicodedata.normalize("NFC", text).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" or c == "'" else " " for c in plain)
    return " ".join(kept.split())


class TranscriptBatch(NamedTuple):
    """Some clips, padded to the longest.

    Attributes:
        mels: logarithms of mel bands, float32 [N, bands, T].
        frames: of every clip, int64 [N].
        letters: their numbers from 1, int64 [N, L], 0 where padded.
        lengths: letters of every clip, int64 [N].
    """

    mels: Tensor
    frames: Tensor
    letters: Tensor
    lengths: Tensor


class LetterNetwork(nn.Module):
    """Log mels to the probabilities of letters, by dilated convolutions with residual connections.

    Args:
        letters: how many there are, beside the blank.
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
        """What is heard in every frame; what stands after a clip's last frame is not heard in it.

        Args:
            mels: float32 [N, bands, T].
            frames: of every clip, int64 [N].

        Returns:
            Logarithms of probabilities, float32 [N, letters + 1, T], the blank first.
        """
        within = (torch.arange(mels.shape[2], device=mels.device) < frames[:, None])[:, None]
        hidden = self.input((mels - USUAL) / SPREAD * within)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            normed: Tensor = norm(hidden.mT).mT
            hidden = hidden + block(normed.relu() * within)
        return self.output(hidden).log_softmax(1)


def real_mel(corpus: SpeechCorpus, clip: RecordedClip) -> Tensor:
    """The logarithms of a recording's mel bands: float32 [bands, frames]."""
    return log_mel(corpus.spectrogram(clip)[None], corpus.framing.rate)[0]


@final
class TrainingBatches:
    """Training recordings in batches, each time with other noise, from torch's generator: the loop sets it.

    Args:
        corpus: prepared recordings, of which only the training part is read.
        characters: the letters of its texts.
        seed: of the order; 0 or more.

    Raises:
        JudgeError: a clip has more letters than can be told apart in its frames.
    """

    def __init__(self, corpus: SpeechCorpus, characters: str, seed: int) -> None:
        numbers = {letter: number for number, letter in enumerate(characters, 1)}
        self._corpus, self._seed = corpus, seed
        self._clips = [clip for clip in corpus.part("train") if spelling(clip.text)]
        self._letters = [torch.tensor([numbers[letter] for letter in spelling(clip.text)]) for clip in self._clips]
        _check_lengths(self._clips)

    @property
    def length(self) -> int:
        """Batches in an epoch."""
        return ceil(len(self._clips) / BATCH)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[TranscriptBatch]:
        """The batches of an epoch."""
        order = permutation(len(self._clips), seed=self._seed, epoch=epoch).split(BATCH)
        for index in order[start::step]:
            yield self._batch(index.tolist())

    def _batch(self, places: Sequence[int]) -> TranscriptBatch:
        """Some clips, with noise."""
        mels = [_noisy(real_mel(self._corpus, self._clips[place])) for place in places]
        letters = [self._letters[place] for place in places]
        return TranscriptBatch(
            mels=pad_sequence([mel.T for mel in mels], batch_first=True, padding_value=SILENCE).mT,
            frames=torch.tensor([mel.shape[1] for mel in mels]),
            letters=pad_sequence(letters, batch_first=True),
            lengths=torch.tensor([len(some) for some in letters]),
        )


def _noisy(mel: Tensor) -> Tensor:
    """The same, louder or quieter, and less clear: a judge of clear speech alone would reject all that is synthetic."""
    return mel + LOUDNESS * torch.randn(()) + NOISE * torch.randn(mel.shape)


def _check_lengths(clips: Iterable[RecordedClip]) -> None:
    """A blank must fit between two letters that are the same."""
    short = [
        f"{clip.name} ({clip.frames} frames for {shortened(clip.text)!r})"
        for clip in clips
        if clip.frames < sum(1 + (a == b) for a, b in pairwise("\0" + spelling(clip.text)))
    ]
    if short:
        more = f" and {len(short) - SHOWN} more" if len(short) > SHOWN else ""
        raise JudgeError(
            f"a judge cannot learn from clips with more letters than frames: {', '.join(short[:SHOWN])}{more}; their "
            "texts say more than they do: correct or remove them, and prepare again"
        )


def fit(network: LetterNetwork, lessons: TrainingBatches, steps: int, consume: ReportConsumer) -> None:
    """Train a network for so many steps.

    Raises:
        LoopError: The training failed.
    """

    def loss(batch: TranscriptBatch) -> Loss:
        criterion = even_loss if run.windows < int(EVEN * steps) else recognition_loss
        return criterion(network(batch.mels, batch.frames), batch)

    optimizer = adamw(network.parameters(), lr=RATE)
    schedule = cosine(optimizer, warmup_steps=min(30, steps // 10), total_steps=steps)
    phase = Phase("judge", loss, network.parameters(), optimizer, scheduler=schedule)
    loop = Loop([phase], modules={"judge": network}, device="cpu", precision="fp32")
    with loop.running() as run:
        for _ in consume(run.epochs(lessons, max_epochs=ceil(steps / lessons.length))):
            if run.windows == steps:
                break


def even_loss(heard: Tensor, batch: TranscriptBatch) -> Loss:
    """The mean over utterances of the negative logarithm of the letters' probability, as if all lasted the same.

    Args:
        heard: logarithms of probabilities, float32 [N, letters + 1, T].
        batch: what was said, N utterances.
    """
    frames = torch.arange(heard.shape[2])
    within = frames < batch.frames[:, None]
    places = (frames * batch.lengths[:, None]).div(batch.frames[:, None], rounding_mode="floor")
    letters = batch.letters.gather(1, places.clamp(max=batch.letters.shape[1] - 1))
    losses = -heard.gather(1, letters[:, None])[:, 0] * within
    return Loss(mean=(losses.sum(1) / batch.frames).mean(), count=len(batch.frames))


def recognition_loss(heard: Tensor, batch: TranscriptBatch) -> Loss:
    """The mean over utterances of the negative logarithm of the letters' probability, each per letter.

    Args:
        heard: logarithms of probabilities, float32 [N, letters + 1, T].
        batch: what was said, N utterances.
    """
    losses = functional.ctc_loss(heard.permute(2, 0, 1), batch.letters, batch.frames, batch.lengths, reduction="none")
    return Loss(mean=(losses / batch.lengths).mean(), count=len(batch.lengths))


FOLDER: Final = "judge"
"""Where a prepared corpus keeps its judge."""

FACTS: Final = "judge.json"

WEIGHTS: Final = "judge.safetensors"

VERSION: Final = 1

SILENT: Final = ConsumerChain()
"""Progress that nobody sees."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpeechRecogniser:
    """A recogniser, and how well it hears real speech that it was not trained on.

    Attributes:
        network: with its weights; in evaluation mode.
        characters: what it can hear, in the order of its outputs.
        framing: of the spectrograms that it hears.
        corpus: the digest of the corpus that it learnt from.
        error_rate: of characters, on that corpus' held-out recordings; 0 or more.
    """

    network: LetterNetwork
    characters: str
    framing: FrameSettings
    corpus: str
    error_rate: float

    @torch.inference_mode()
    def transcribe(self, mel: Tensor) -> str:
        """What it hears: the likeliest letter of every frame, repetitions and blanks taken away.

        Args:
            mel: logarithms of mel bands, float32 [bands, frames], on the CPU.
        """
        if not mel.shape[1]:
            return ""
        likeliest: list[int] = self.network(mel[None], torch.tensor([mel.shape[1]]))[0].argmax(0).tolist()
        return "".join(self.characters[letter - 1] for letter, _ in groupby(likeliest) if letter)

    def save(self, folder: Path) -> None:
        """Write it into a folder, which appears whole or not at all; the same judge gives the same bytes.

        Raises:
            JudgeError: The folder exists, or cannot be written.
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
        check_free(folder, JudgeError)
        with writing(folder, JudgeError), appearing(folder, own_draft(folder)) as draft:
            (draft / WEIGHTS).write_bytes(weights)
            (draft / FACTS).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")
            for path in draft.iterdir():
                _flush(path)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            JudgeError: There is none, it is damaged, or of another version.
        """
        facts = _facts(folder)
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
                    raise _damaged(folder, f"{WEIGHTS} is not the file that {FACTS} speaks of")
                return cls(
                    network=_network(folder, characters, weights),
                    characters=characters,
                    framing=FrameSettings(rate, hop, fft),
                    corpus=corpus,
                    error_rate=rate_of_errors,
                )
            case _:
                raise _damaged(folder, f"{FACTS} does not say what it must")


def train_judge(
    corpus: SpeechCorpus, *, steps: int = STEPS, seed: int = 0, threads: int = 1, consume: ReportConsumer = SILENT
) -> SpeechRecogniser:
    """Train a recogniser on a corpus' training recordings, on the CPU: the same weights for the same seed and threads.

    There is nothing else that it could learn from: no synthesised speech can be given.

    Args:
        corpus: prepared recordings.
        steps: of the optimizer, 1 or more.
        seed: of its first weights, the order of the clips and the noise; 0 or more.
        threads: of the CPU.
        consume: progress.

    Raises:
        JudgeError: there are no texts to learn, or a clip has more letters than can be told apart in its frames.
        LoopError: the training failed.
    """
    characters = "".join(sorted({letter for clip in corpus.part("train") for letter in spelling(clip.text)}))
    if not characters:
        raise JudgeError(f"{corpus.folder} has no text with a letter to train a judge on; prepare clips with texts")
    with _threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = LetterNetwork(len(characters))
        fit(network, TrainingBatches(corpus, characters, seed), steps, consume)
        judge = SpeechRecogniser(
            network=network.eval(),
            characters=characters,
            framing=corpus.framing,
            corpus=corpus.digest,
            error_rate=0.0,
        )
        return replace(judge, error_rate=error_rate(judge, corpus, corpus.part("held_out")))


def error_rate(judge: SpeechRecogniser, corpus: SpeechCorpus, clips: Iterable[RecordedClip]) -> float:
    """Characters that it hears wrongly in real recordings, as a share of those that were said; 0 or more."""
    errors = letters = 0
    for clip in clips:
        said = spelling(clip.text)
        errors += edit_distance(judge.transcribe(real_mel(corpus, clip)), said)
        letters += len(said)
    return errors / max(1, letters)


def judge_of(corpus: SpeechCorpus, folder: Path | None = None, *, consume: ReportConsumer = SILENT) -> SpeechRecogniser:
    """The judge of a corpus: the one that is kept, or else one that is trained now and kept.

    Args:
        corpus: prepared recordings.
        folder: where it is kept; None for `judge` in the corpus' own.
        consume: progress of the training.

    Raises:
        JudgeError: The folder holds a damaged judge, or that of another corpus, or cannot be written; or there is
            nothing to train on.
        LoopError: The training failed.
    """
    place = folder or corpus.folder / FOLDER
    if not place.exists():
        _check_written(place)
        judge = train_judge(corpus, consume=consume)
        if not place.exists():  # else another process was faster, with the same
            judge.save(place)
        return judge
    judge = SpeechRecogniser.load(place)
    if judge.corpus != corpus.digest:
        raise JudgeError(
            f"{place} holds the judge of another corpus than {corpus.folder}; remove {place}, and one is trained anew"
        )
    return judge


def _facts(folder: Path) -> Mapping[str, object]:
    """What judge.json says, of this version."""
    try:
        found: object = json.loads(_read(folder, FACTS))
    except ValueError as error:
        raise _damaged(folder, f"{FACTS} is no JSON: {error}") from error
    match found:
        case {"version": int(version)} if version != VERSION:
            raise JudgeError(
                f"{folder} is a judge of version {version}, here {VERSION} is read; remove it, and one is trained anew"
            )
        case dict():
            return {str(key): value for key, value in found.items()}
        case _:
            raise _damaged(folder, f"{FACTS} is no object")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error


def _network(folder: Path, characters: str, weights: bytes) -> LetterNetwork:
    """A recogniser of so many characters with these weights."""
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
        network = LetterNetwork(len(characters))
    try:
        network.load_state_dict(load(weights))
    except (SafetensorError, RuntimeError) as error:
        raise _damaged(folder, f"{WEIGHTS} does not hold the weights of {len(characters)} characters") from error
    return network.eval()


def _damaged(folder: Path, problem: str) -> JudgeError:
    return JudgeError(f"judge {folder} is damaged: {problem}; remove {folder}, and one is trained anew")


def _check_written(folder: Path) -> None:
    """Refuse before the training a folder that cannot be written after it."""
    with writing(folder, JudgeError):
        own_draft(folder).rmdir()


def _flush(path: Path) -> None:
    """Have a file on the disk before its folder gets its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _threads(number: int) -> Generator[None]:
    """So many threads of torch inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
