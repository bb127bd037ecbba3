"""The judge's network: a small recogniser, and how it learns to spell recordings.

Graves, Fernández, Gomez and Schmidhuber, "Connectionist temporal classification" (2006). It hears each frame with the
18 on either side, so that it learns sounds and little of the language, with which it could fill gaps.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from trainers.loop import Loop, Loss, Phase, adamw, cosine, permutation
from trainers.progress import ReportConsumer
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.errors import JudgeError
from trainers.vits.spectrum import BANDS, SILENCE, log_mel
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
