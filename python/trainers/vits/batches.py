"""Batches of clips, bucketed by length and padded, with a slice of each for the decoder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias, final

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler

from trainers.loop import IterableSource
from trainers.vits.corpus import RecordedClip, SpeechCorpus

POOL = 8
"""Batches that are sorted by length together: a larger pool saves padding but mixes lengths less."""


class UtteranceBatch(NamedTuple):
    """Clips padded to the longest.

    Attributes:
        tokens: int64 [N, T], zero-padded.
        token_lengths: int64 [N].
        spectra: Linear magnitudes, float32 [N, bins, F], zero-padded.
        frame_lengths: int64 [N].
        starts: First frame of the decoded slice, int64 [N].
        slices: Recorded wave of the slice, float32 [N, samples].
    """

    tokens: Tensor
    token_lengths: Tensor
    spectra: Tensor
    frame_lengths: Tensor
    starts: Tensor
    slices: Tensor


@final
class FrameSplitter:
    """Splits a batch by clips and trims needless padding; the cost of a clip is its padded length in frames."""

    def samples(self, batch: UtteranceBatch) -> int:
        """Number of clips."""
        return len(batch.tokens)

    def cost(self, batch: UtteranceBatch) -> int:
        """Frames of the longest clip."""
        return batch.spectra.shape[-1]

    def cut(self, batch: UtteranceBatch, start: int, stop: int) -> UtteranceBatch:
        """Clips from start to stop, padded to the longest of them."""
        micro_batch = UtteranceBatch(*(tensor[start:stop] for tensor in batch))
        tokens, frames = int(micro_batch.token_lengths.max()), int(micro_batch.frame_lengths.max())
        return micro_batch._replace(tokens=micro_batch.tokens[:, :tokens], spectra=micro_batch.spectra[..., :frames])


class SpeechSample(NamedTuple):
    """One clip as network input.

    Attributes:
        tokens: int64 [T].
        spectrum: Linear magnitudes, float32 [bins, F].
        wave: float32 [F · hop].
    """

    tokens: Tensor
    spectrum: Tensor
    wave: Tensor


@final
class CorpusDataset(Dataset[SpeechSample]):
    """Clips of a corpus, read on access.

    Args:
        corpus: Corpus that holds the clips.
        clips: Clips of the dataset, in order.
        tokens: Returns the token ids of a text.
    """

    def __init__(
        self, corpus: SpeechCorpus, clips: Sequence[RecordedClip], tokens: Callable[[str], Sequence[int]]
    ) -> None:
        self._corpus = corpus
        self._clips = tuple(clips)
        self._tokens = [torch.tensor(tokens(clip.text)) for clip in clips]

    def __len__(self) -> int:
        return len(self._clips)

    def __getitem__(self, index: int) -> SpeechSample:
        clip = self._clips[index]
        return SpeechSample(self._tokens[index], self._corpus.spectrogram(clip), self._corpus.wave(clip))


Recordings: TypeAlias = CorpusDataset | ConcatDataset[SpeechSample]
"""Clips of one corpus, or of several corpora concatenated."""


@final
@dataclass(frozen=True, slots=True)
class UtteranceCollator:
    """Collates clips; draws the start of each slice from torch's global generator.

    Attributes:
        frames: Frames per slice.
        hop: Samples per frame.
        drawn: False takes every slice from the middle of its clip, for validation.
    """

    frames: int
    hop: int
    drawn: bool = True

    def __call__(self, clips: Sequence[SpeechSample]) -> UtteranceBatch:
        """Collate clips into a batch.

        Raises:
            ValueError: A clip is shorter than a slice.
        """
        token_lengths = torch.tensor([len(clip.tokens) for clip in clips])
        frame_lengths = torch.tensor([clip.spectrum.shape[1] for clip in clips])
        room = frame_lengths - self.frames
        if int(room.min()) < 0:
            raise ValueError(
                f"a clip has {int(frame_lengths.min())} frames, fewer than a slice ({self.frames}); prepare again"
            )
        share = torch.rand(len(clips), dtype=torch.float64) if self.drawn else torch.full((len(clips),), 0.5)
        starts = (share * (room + 1)).long()
        tokens = torch.zeros(len(clips), int(token_lengths.max()), dtype=torch.long)
        spectra = torch.zeros(len(clips), clips[0].spectrum.shape[0], int(frame_lengths.max()))
        for row, clip in enumerate(clips):
            tokens[row, : len(clip.tokens)] = clip.tokens
            spectra[row, :, : clip.spectrum.shape[1]] = clip.spectrum
        slices = [
            clip.wave[start * self.hop : (start + self.frames) * self.hop]
            for clip, start in zip(clips, starts.tolist(), strict=True)
        ]
        return UtteranceBatch(tokens, token_lengths, spectra, frame_lengths, starts, torch.stack(slices))


@final
class LengthBucketSampler(Sampler[list[int]]):
    """Samples batches of clips of similar length from an endless stream.

    One round is an epoch of the training loop. Without weights the stream repeats all clips in a new order each time;
    with weights, clips are drawn with replacement and probability proportional to weight.

    Args:
        frames: Length of each clip.
        size: Maximum clips per batch.
        cost: Maximum padded frames per batch; a longer clip forms its own batch.
        batches: Batches per round.
        seed: Seed of the draws.
        weights: Non-negative weight of each clip, if any.
    """

    def __init__(
        self,
        frames: Sequence[int],
        *,
        size: int,
        cost: int,
        batches: int,
        seed: int,
        weights: Sequence[float] | None = None,
    ) -> None:
        self._frames = tuple(frames)
        self._size = size
        self._cost = cost
        self._batches = batches
        self._seed = seed
        self._weights = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        self._round = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the next round, from 0."""
        self._round = epoch

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        begin = self._round * self._batches
        return islice(self._repeat_epochs(), begin, begin + self._batches)

    def _repeat_epochs(self) -> Iterator[list[int]]:
        draw = torch.Generator().manual_seed(self._seed)
        stream = self._stream(draw)
        while True:
            pool = sorted(islice(stream, POOL * self._size), key=self._frames.__getitem__)
            batches = list(self._cut(pool))
            yield from (batches[index] for index in torch.randperm(len(batches), generator=draw).tolist())

    def _stream(self, draw: torch.Generator) -> Iterator[int]:
        count = len(self._frames)
        while True:
            if self._weights is None:
                yield from torch.randperm(count, generator=draw).tolist()
            else:
                yield from torch.multinomial(self._weights, count, replacement=True, generator=draw).tolist()

    def _cut(self, ascending: Sequence[int]) -> Iterator[list[int]]:
        """Cut clips, in ascending order of length, into batches within size and cost."""
        batch: list[int] = []
        for clip in ascending:
            full = len(batch) == self._size or (len(batch) + 1) * self._frames[clip] > self._cost
            if batch and full:
                yield batch
                batch = []
            batch.append(clip)
        yield batch


def create_source(
    recorded: Recordings, buckets: Iterable[list[int]], collate: UtteranceCollator, workers: int = 0
) -> IterableSource[UtteranceBatch]:
    """Batch source for the training loop, read by worker processes if `workers` is above 0."""
    return IterableSource(
        DataLoader(
            recorded,
            batch_sampler=buckets,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
    )
