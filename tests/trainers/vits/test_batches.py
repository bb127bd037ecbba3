"""Batches of utterances: similar lengths, bounded cost, and reproducible rounds."""

from itertools import chain

import pytest
import torch
from tiny_voice import utterances

from trainers.vits.batches import FrameSplitter, LengthBucketSampler, SpeechSample, UtteranceCollator

FRAMES = [33 + (7 * clip) % 50 for clip in range(41)]


def buckets(*, cost: int = 10_000, weights: list[float] | None = None, batches: int = 6) -> LengthBucketSampler:
    return LengthBucketSampler(FRAMES, size=6, cost=cost, batches=batches, seed=9, weights=weights)


def rounds(source: LengthBucketSampler, count: int) -> list[list[list[int]]]:
    drawn: list[list[list[int]]] = []
    for number in range(count):
        source.set_epoch(number)
        drawn.append(list(source))
    return drawn


def test_rounds_continue_where_the_previous_one_ended() -> None:
    assert list(chain(*rounds(buckets(batches=6), 4))) == list(chain(*rounds(buckets(batches=24), 1)))


def test_all_clips_come_equally_often() -> None:
    drawn = [clip for batch in chain(*rounds(buckets(cost=10**6, batches=41 * 8), 1)) for clip in batch]
    counts = torch.bincount(torch.tensor(drawn), minlength=41)
    assert int(counts.max() - counts.min()) <= 8  # the last pool of a round has its own order


def test_no_batch_costs_more_than_it_may_and_none_is_larger() -> None:
    for batch in chain(*rounds(buckets(cost=200), 3)):
        assert len(batch) <= 6
        assert len(batch) * max(FRAMES[clip] for clip in batch) <= 200


def test_a_clip_that_alone_costs_more_is_a_batch_of_its_own() -> None:
    assert {len(batch) for batch in chain(*rounds(buckets(cost=10), 2))} == {1}


def test_batches_waste_less_on_padding_than_random_ones() -> None:
    def waste(batches: list[list[int]]) -> float:
        padded = sum(len(batch) * max(FRAMES[clip] for clip in batch) for batch in batches)
        return padded / sum(FRAMES[clip] for batch in batches for clip in batch)

    order = torch.randperm(41, generator=torch.Generator().manual_seed(3)).tolist()
    assert waste(list(chain(*rounds(buckets(), 8)))) < 1.1 < waste([order[k : k + 6] for k in range(0, 41, 6)])


def test_weights_decide_how_often_a_clip_is_drawn() -> None:
    weights = [0.0] * 20 + [1.0] * 20 + [10.0]
    drawn = [clip for batch in chain(*rounds(buckets(weights=weights, batches=400), 1)) for clip in batch]
    assert min(drawn) >= 20
    assert drawn.count(40) / len(drawn) == pytest.approx(1 / 3, abs=0.04)


def speech(frames: int) -> SpeechSample:
    return SpeechSample(torch.arange(1, 4), torch.rand(5, frames), torch.arange(frames * 4).float())


def test_a_slice_is_the_wave_of_its_frames() -> None:
    batch = UtteranceCollator(frames=8, hop=4)([speech(20), speech(8)])
    for row in range(2):
        start = int(batch.starts[row]) * 4
        assert batch.slices[row].tolist() == list(range(start, start + 32))
    assert int(batch.starts[1]) == 0


def test_every_start_that_fits_is_drawn() -> None:
    torch.manual_seed(2)
    collate = UtteranceCollator(frames=8, hop=4)
    assert {int(collate([speech(11)]).starts) for _ in range(80)} == {0, 1, 2, 3}


def test_a_validation_takes_the_middle() -> None:
    assert int(UtteranceCollator(frames=8, hop=4, drawn=False)([speech(20)]).starts) == 6


def test_a_clip_shorter_than_a_slice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a clip has 7 frames, fewer than a slice \(8\)"):
        UtteranceCollator(frames=8, hop=4)([speech(7)])


def test_a_micro_batch_loses_padding_and_nothing_else() -> None:
    whole = utterances([50, 36, 44], [7, 5, 9])
    micro_batch = FrameSplitter().cut(whole, 1, 2)
    assert (micro_batch.tokens.shape, micro_batch.spectra.shape[-1]) == ((1, 5), 36)
    assert torch.equal(micro_batch.spectra, whole.spectra[1:2, :, :36])
    assert (FrameSplitter().samples(whole), FrameSplitter().cost(whole)) == (3, 50)
