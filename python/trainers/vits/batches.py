"""Batches of clips: padded, bucketed by length, with the slice of each that its decoder is to draw."""

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
"""Batches that are sorted by length together: more waste less on padding and mix lengths less."""


class UtteranceBatch(NamedTuple):
    """Some clips, padded to the longest.

    Attributes:
        tokens: int64 [N, T], 0 where padded.
        token_lengths: int64 [N].
        spectra: linear magnitudes, float32 [N, bins, F], 0 where padded.
        frame_lengths: int64 [N].
        starts: first frame of the slice that is decoded, int64 [N].
        slices: the recorded wave there, float32 [N, samples].
    """

    tokens: Tensor
    token_lengths: Tensor
    spectra: Tensor
    frame_lengths: Tensor
    starts: Tensor
    slices: Tensor


@final
class FrameSplitter:
    """Cuts a batch by clips, which cost as many frames as they are padded to, and takes needless padding away."""

    def samples(self, batch: UtteranceBatch) -> int:
        """Clips."""
        return len(batch.tokens)

    def cost(self, batch: UtteranceBatch) -> int:
        """Frames of the longest."""
        return batch.spectra.shape[-1]

    def piece(self, batch: UtteranceBatch, start: int, stop: int) -> UtteranceBatch:
        """Some of the clips, padded to the longest among them."""
        part = UtteranceBatch(*(tensor[start:stop] for tensor in batch))
        tokens, frames = int(part.token_lengths.max()), int(part.frame_lengths.max())
        return part._replace(tokens=part.tokens[:, :tokens], spectra=part.spectra[..., :frames])


class SpeechSample(NamedTuple):
    """One clip as the network takes it.

    Attributes:
        tokens: int64 [T].
        spectrum: linear magnitudes, float32 [bins, F].
        wave: float32 [F · hop].
    """

    tokens: Tensor
    spectrum: Tensor
    wave: Tensor


@final
class CorpusDataset(Dataset[SpeechSample]):
    """The clips of a corpus by their place, read when they are asked for.

    Args:
        corpus: where they are.
        clips: which of them.
        tokens: ids of a text.
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
"""Clips of one corpus, or of several, one after another."""


@final
@dataclass(frozen=True, slots=True)
class UtteranceCollator:
    """Puts clips together; where each slice begins is drawn from torch's generator.

    Attributes:
        frames: of a slice.
        hop: samples of a frame.
        drawn: False takes every slice from its clip's middle, as a validation wants it.
    """

    frames: int
    hop: int
    drawn: bool = True

    def __call__(self, clips: Sequence[SpeechSample]) -> UtteranceBatch:
        """The batch.

        Raises:
            ValueError: a clip is shorter than a slice.
        """
        token_lengths = torch.tensor([len(clip.tokens) for clip in clips])
        frame_lengths = torch.tensor([clip.spectrum.shape[1] for clip in clips])
        room = frame_lengths - self.frames
        if int(room.min()) < 0:
            raise ValueError(f"a clip has {int(frame_lengths.min())} frames, and a slice {self.frames}; prepare again")
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
    """Rounds of batches of clips of similar length, cut from an endless stream of draws.

    A round is what the loop calls an epoch. The stream goes through all clips in a new order again and again; with
    weights, clips are drawn with replacement, each with a probability in proportion to its weight.

    Args:
        frames: of each clip.
        size: clips in a batch at most.
        cost: padded frames in a batch at most; a single longer clip is a batch of its own.
        batches: in a round.
        seed: of the draws.
        weights: of each clip, 0 or more; None goes through all.
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
        """Choose the round that comes next, counted from 0."""
        self._round = epoch

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        begin = self._round * self._batches
        return islice(self._endless(), begin, begin + self._batches)

    def _endless(self) -> Iterator[list[int]]:
        draw = torch.Generator().manual_seed(self._seed)
        stream = self._stream(draw)
        while True:
            pool = sorted(islice(stream, POOL * self._size), key=self._frames.__getitem__)
            cut = list(self._cut(pool))
            yield from (cut[place] for place in torch.randperm(len(cut), generator=draw).tolist())

    def _stream(self, draw: torch.Generator) -> Iterator[int]:
        count = len(self._frames)
        while True:
            if self._weights is None:
                yield from torch.randperm(count, generator=draw).tolist()
            else:
                yield from torch.multinomial(self._weights, count, replacement=True, generator=draw).tolist()

    def _cut(self, ascending: Sequence[int]) -> Iterator[list[int]]:
        """Batches of clips in ascending order of length, each within size and cost."""
        batch: list[int] = []
        for clip in ascending:
            full = len(batch) == self._size or (len(batch) + 1) * self._frames[clip] > self._cost
            if batch and full:
                yield batch
                batch = []
            batch.append(clip)
        yield batch


def source_of(
    recorded: Recordings, buckets: Iterable[list[int]], collate: UtteranceCollator, workers: int = 0
) -> IterableSource[UtteranceBatch]:
    """A source of batches for the loop, read by worker processes if there are any."""
    return IterableSource(
        DataLoader(
            recorded,
            batch_sampler=buckets,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
    )
