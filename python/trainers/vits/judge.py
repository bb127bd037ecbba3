"""The judge: a small recogniser that hears how well speech can be understood. It learns from real recordings alone.

Graves, Fernández, Gomez and Schmidhuber, "Connectionist temporal classification" (2006). It hears each frame with the
18 on either side, so that it learns sounds and little of the language, with which it could fill gaps.
"""

import unicodedata
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import ceil
from typing import Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from trainers.loop import Loop, Loss, Phase, adamw, cosine, permutation
from trainers.progress import Chain, Consumer
from trainers.vits.corpus import Clip, Corpus
from trainers.vits.errors import JudgeError
from trainers.vits.measures import edit_distance
from trainers.vits.spectrum import BANDS, SILENCE, Framing, log_mel

STEPS, BATCH, RATE = 600, 16, 2e-3
"""Of the training: steps, clips in each, and the highest learning rate."""
CHANNELS, WIDTH, DILATIONS = 128, 5, (1, 2, 4, 1)
USUAL, SPREAD = -5.0, 2.5
"""Mean and standard deviation of speech's logarithms, roughly."""
LOUDNESS, NOISE = 0.3, 0.3
"""Standard deviations of what is added in training to the logarithms: to a whole clip, and to every value."""
SILENT: Final = Chain()
"""Progress that nobody sees."""


def spelling(text: str) -> str:
    """What of a text can be heard: its letters, digits and apostrophes in lower case, its words one space apart."""
    plain = unicodedata.normalize("NFC", text).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" or c == "'" else " " for c in plain)
    return " ".join(kept.split())


class Transcribed(NamedTuple):
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


class Recogniser(nn.Module):
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


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """A recogniser, and how well it hears real speech that it was not trained on.

    Attributes:
        network: with its weights; in evaluation mode.
        characters: what it can hear, in the order of its outputs.
        framing: of the spectrograms that it hears.
        corpus: the digest of the corpus that it learnt from.
        error_rate: of characters, on that corpus' held-out recordings; 0 or more.
    """

    network: Recogniser
    characters: str
    framing: Framing
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


def train_judge(
    corpus: Corpus, *, steps: int = STEPS, seed: int = 0, threads: int = 1, consume: Consumer = SILENT
) -> Judge:
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
        network = Recogniser(len(characters))
        _fit(network, Lessons(corpus, characters, seed), steps, consume)
        judge = Judge(
            network=network.eval(),
            characters=characters,
            framing=corpus.framing,
            corpus=corpus.digest,
            error_rate=0.0,
        )
        return replace(judge, error_rate=error_rate(judge, corpus, corpus.part("held_out")))


def error_rate(judge: Judge, corpus: Corpus, clips: Iterable[Clip]) -> float:
    """Characters that it hears wrongly in real recordings, as a share of those that were said; 0 or more."""
    errors = letters = 0
    for clip in clips:
        said = spelling(clip.text)
        errors += edit_distance(judge.transcribe(real_mel(corpus, clip)), said)
        letters += len(said)
    return errors / max(1, letters)


def real_mel(corpus: Corpus, clip: Clip) -> Tensor:
    """The logarithms of a recording's mel bands: float32 [bands, frames]."""
    return log_mel(corpus.spectrogram(clip)[None], corpus.framing.rate)[0]


@final
class Lessons:
    """Training recordings in batches, each time with other noise, from torch's generator: the loop sets it.

    Args:
        corpus: prepared recordings, of which only the training part is read.
        characters: the letters of its texts.
        seed: of the order; 0 or more.

    Raises:
        JudgeError: a clip has more letters than can be told apart in its frames.
    """

    def __init__(self, corpus: Corpus, characters: str, seed: int) -> None:
        numbers = {letter: number for number, letter in enumerate(characters, 1)}
        self._corpus, self._seed = corpus, seed
        self._clips = [clip for clip in corpus.part("train") if spelling(clip.text)]
        self._letters = [torch.tensor([numbers[letter] for letter in spelling(clip.text)]) for clip in self._clips]
        _check_lengths(self._clips)

    @property
    def length(self) -> int:
        """Batches in an epoch."""
        return ceil(len(self._clips) / BATCH)

    def batches(self, epoch: int, *, start: int = 0, step: int = 1) -> Iterator[Transcribed]:
        """The batches of an epoch."""
        order = permutation(len(self._clips), seed=self._seed, epoch=epoch).split(BATCH)
        for index in order[start::step]:
            yield self._batch(index.tolist())

    def _batch(self, places: Sequence[int]) -> Transcribed:
        """Some clips, with noise."""
        mels = [_noisy(real_mel(self._corpus, self._clips[place])) for place in places]
        letters = [self._letters[place] for place in places]
        return Transcribed(
            mels=pad_sequence([mel.T for mel in mels], batch_first=True, padding_value=SILENCE).mT,
            frames=torch.tensor([mel.shape[1] for mel in mels]),
            letters=pad_sequence(letters, batch_first=True),
            lengths=torch.tensor([len(some) for some in letters]),
        )


def _noisy(mel: Tensor) -> Tensor:
    """The same, louder or quieter, and less clear: a judge of clear speech alone would reject all that is synthetic."""
    return mel + LOUDNESS * torch.randn(()) + NOISE * torch.randn(mel.shape)


def _check_lengths(clips: Iterable[Clip]) -> None:
    """A blank must fit between two letters that are the same."""
    short = [
        f"{clip.name} ({clip.frames} frames for {clip.text!r})"
        for clip in clips
        if clip.frames < sum(1 + (a == b) for a, b in pairwise("\0" + spelling(clip.text)))
    ]
    if short:
        raise JudgeError(
            f"a judge cannot learn from clips with more letters than frames: {', '.join(short[:5])}"
            f"{f' and {len(short) - 5} more' if len(short) > 5 else ''}; their texts say more than they do: correct "
            "or remove them, and prepare again"
        )


def _fit(network: Recogniser, lessons: Lessons, steps: int, consume: Consumer) -> None:
    """Train for so many steps."""

    def loss(batch: Transcribed) -> Loss:
        return recognition_loss(network(batch.mels, batch.frames), batch)

    optimizer = adamw(network.parameters(), lr=RATE)
    schedule = cosine(optimizer, warmup_steps=min(30, steps // 10), total_steps=steps)
    phase = Phase("judge", loss, network.parameters(), optimizer, scheduler=schedule, clip=None)
    loop = Loop([phase], modules={"judge": network}, device="cpu", precision="fp32")
    with loop.running() as run:
        for _ in consume(run.epochs(lessons, max_epochs=ceil(steps / lessons.length))):
            if run.windows == steps:
                break


def recognition_loss(heard: Tensor, batch: Transcribed) -> Loss:
    """The mean over utterances of −log p(letters), each per letter.

    Args:
        heard: logarithms of probabilities, float32 [N, letters + 1, T].
        batch: what was said, N utterances.
    """
    losses = functional.ctc_loss(heard.permute(2, 0, 1), batch.letters, batch.frames, batch.lengths, reduction="none")
    return Loss(mean=(losses / batch.lengths).mean(), count=len(batch.lengths))


@contextmanager
def _threads(number: int) -> Generator[None]:
    """So many threads of torch inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
