"""A control that compares spoken and recorded audio frame by frame.

The voice speaks the text with its own durations. The loss is the mean absolute difference of the two log mels, cut to
the shorter one. First weights, optimizer, learning rate, steps and clips equal ours.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import AdamW
from torch.optim.lr_scheduler import ExponentialLR

from benchmarks.speaking.voices import Workplace, first_voice
from trainers.loop import IterableSource, Loop, Loss, Phase, UnusedParameterError
from trainers.vits.batches import CorpusDataset, UtteranceBatch, UtteranceCollator
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.spectrum import log_mel_of
from trainers.vits.training import BETAS, FINAL_RATE
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice


def spoken_loss(voice: Voice, batch: UtteranceBatch, recorded: Tensor) -> Tensor:
    """Scalar loss of free-running speech against the recordings' log mel [N, bands, F]."""
    places = torch.arange(batch.tokens.shape[1])
    spoken = voice.model(input_ids=batch.tokens, attention_mask=(places < batch.token_lengths[:, None]).long())
    said = log_mel_of(spoken.waveform, voice.framing)
    frames = min(said.shape[-1], recorded.shape[-1])
    return functional.l1_loss(said[..., :frames], recorded[..., :frames])


def trained(work: Workplace, name: str, *, steps: int, seed: int) -> Path:
    """Train a voice with this loss; its speaking rate is searched as for ours."""
    place = work.folder / name
    if (place / "voice.json").is_file():
        return place
    corpus = SpeechCorpus.open(work.corpus)
    voice, recipe = first_voice(corpus, seed), SpeechRecipe()
    optimizer = AdamW(voice.model.parameters(), lr=recipe.learning_rate, betas=BETAS, eps=1e-9, weight_decay=0.01)
    schedule = ExponentialLR(optimizer, FINAL_RATE ** (1 / steps))
    voice.model.train()
    for _, (batch, recorded) in zip(range(steps), _batches(corpus, voice, recipe, seed), strict=False):
        optimizer.zero_grad()
        spoken_loss(voice, batch, recorded).backward()
        torch.nn.utils.clip_grad_norm_(voice.model.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
    voice.fit_speaking_rate([(clip.text, clip.frames) for clip in corpus.list_clips("selection")])
    VoiceVersions(place).add(voice, {"steps": steps, "seed": seed})
    return place


def refused_parts(work: Workplace) -> list[str]:
    """The parts of the network that our loop names when it rejects this loss."""
    corpus = SpeechCorpus.open(work.corpus)
    voice = first_voice(corpus, 0)
    parameters = voice.model.parameters()
    batches = _batches(corpus, voice, SpeechRecipe(), 0)

    def loss(pair: tuple[UtteranceBatch, Tensor]) -> Loss:
        return Loss(spoken_loss(voice, *pair), len(pair[1]))

    phase = Phase("spoken", loss, parameters, AdamW(voice.model.parameters(), lr=1e-3))
    loop = Loop([phase], modules={"voice": voice.model}, device="cpu")
    try:
        with loop.running() as run:
            for _ in run.epochs(IterableSource([next(batches) for _ in range(3)]), max_epochs=1):
                pass
    except UnusedParameterError as error:
        return [name for name, _ in voice.model.named_children() if name in str(error)]
    return []


def _batches(
    corpus: SpeechCorpus, voice: Voice, recipe: SpeechRecipe, seed: int
) -> Iterator[tuple[UtteranceBatch, Tensor]]:
    """Endless shuffled epochs of batches, each with its recordings' log mel, padded with silence."""
    clips = corpus.list_clips("train")
    recorded = CorpusDataset(corpus, clips, voice.tokens)
    collate = UtteranceCollator(recipe.slice_frames, voice.framing.hop)
    draw = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(clips), generator=draw).tolist()
        for first in range(0, len(order) - recipe.batch_size + 1, recipe.batch_size):
            some = [recorded[place] for place in order[first : first + recipe.batch_size]]
            longest = max(len(one.wave) for one in some)
            waves = torch.stack([functional.pad(one.wave, (0, longest - len(one.wave))) for one in some])
            yield collate(some), log_mel_of(waves, voice.framing)
