"""Time of a training step in the loop and by hand, with a forward that both phases share and with two forwards.

All subjects have the same first weights and clips. Times are of one thread.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from benchmarks.report import Row, at_most, shown
from benchmarks.speaking.voices import Workplace, first_voice
from trainers.loop import IterableSource
from trainers.vits import objective as objectives
from trainers.vits.batches import CorpusDataset, UtteranceBatch, UtteranceCollator
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.objective import (
    Discriminators,
    GeneratorOutput,
    LossWeights,
    VoiceGenerator,
    VoiceObjective,
    find_monotonic_path,
)
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.training import BETAS, build_loop
from trainers.vits.voice import list_discriminator_channels

WARM: Final = 2
SHARED_REACH, LOOP_REACH, SEARCH_REACH = 0.85, 1.02, 0.02


@final
@dataclass(frozen=True, slots=True)
class Adversaries:
    """A voice's network and its discriminators before training.

    Attributes:
        objective: losses of both.
        discriminators: None without an adversarial loss.
        recipe: settings.
    """

    objective: VoiceObjective
    discriminators: Discriminators | None
    recipe: SpeechRecipe

    @classmethod
    def fresh(cls, corpus: SpeechCorpus, *, judged: bool) -> "Adversaries":
        """Create networks with the same weights each time."""
        voice = first_voice(corpus, 0)
        recipe = SpeechRecipe(adversarial_from=0 if judged else None)
        discriminators = Discriminators(list_discriminator_channels("fast")) if judged else None
        generator = VoiceGenerator(voice.model.train(), frames=recipe.slice_frames)
        objective = VoiceObjective(generator, voice.framing, LossWeights(), discriminators)
        objective.adversarial = judged
        return cls(objective, discriminators, recipe)

    def optimizer(self, module: nn.Module) -> AdamW:
        """An optimizer with the trainer's settings."""
        return AdamW(module.parameters(), lr=self.recipe.learning_rate, betas=BETAS, eps=1e-9, weight_decay=0.01)


def rows(work: Workplace, *, quick: bool) -> list[Row]:
    """Rows for the ratios of pairs, and the milliseconds behind them."""
    rounds, steps = (2, 3) if quick else (9, 10)
    corpus = SpeechCorpus.open(work.corpus)
    batches = _batches(corpus, WARM + steps)
    ways: dict[str, Callable[[], float]] = {
        "in the loop": partial(_in_loop, corpus, batches, judged=False),
        "by hand": partial(_by_hand, corpus, batches, _plain_step, judged=False),
        "adversarial, in the loop": partial(_in_loop, corpus, batches, judged=True),
        "adversarial, one forward by hand": partial(_by_hand, corpus, batches, _shared_step, judged=True),
        "adversarial, two forwards by hand": partial(_by_hand, corpus, batches, _apart_step, judged=True),
    }
    seconds = _rounds(ways, rounds)
    searching = statistics.median(_search_share(corpus, batches) for _ in range(rounds))
    detail, judged = f"median of {rounds} pairs of {steps} steps, processor time", not quick
    return [
        at_most(
            "step: in the loop / by hand",
            _ratio(seconds, "in the loop", "by hand"),
            LOOP_REACH,
            detail=detail,
            judged=judged,
        ),
        at_most(
            "adversarial step: in the loop / one forward by hand",
            _ratio(seconds, "adversarial, in the loop", "adversarial, one forward by hand"),
            LOOP_REACH,
            detail=detail,
            judged=judged,
        ),
        at_most(
            "adversarial step: in the loop / two forwards by hand",
            _ratio(seconds, "adversarial, in the loop", "adversarial, two forwards by hand"),
            SHARED_REACH,
            detail=detail,
            judged=judged,
        ),
        at_most(
            "alignment: share of the step by hand", searching, SEARCH_REACH, detail="processor time", judged=judged
        ),
        *(
            shown(f"step {name}, ms", 1e3 * statistics.median(taken), detail="processor time")
            for name, taken in seconds.items()
        ),
    ]


def _rounds(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds per step by name; all take turns in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(way())
    return seconds


def _ratio(seconds: dict[str, list[float]], of: str, to: str) -> float:
    return statistics.median(one / other for one, other in zip(seconds[of], seconds[to], strict=True))


def _batches(corpus: SpeechCorpus, count: int) -> list[UtteranceBatch]:
    """The same batches for all subjects, of the trainer's size."""
    recipe, clips = SpeechRecipe(), corpus.list_clips("train")
    voice = first_voice(corpus, 0)
    recorded = CorpusDataset(corpus, clips, voice.tokens)
    collate = UtteranceCollator(recipe.slice_frames, voice.framing.hop)
    draw = torch.Generator().manual_seed(1)
    places = torch.randint(len(clips), (count, recipe.batch_size), generator=draw).tolist()
    return [collate([recorded[place] for place in some]) for some in places]


def _in_loop(corpus: SpeechCorpus, batches: Sequence[UtteranceBatch], *, judged: bool) -> float:
    """Seconds per step."""
    adversaries = Adversaries.fresh(corpus, judged=judged)
    clock = _Clocked(batches)
    loop = build_loop(adversaries.objective, replace(adversaries.recipe, device="cpu"), adversaries.discriminators)
    with loop.running() as run:
        for _ in run.epochs(IterableSource(clock), max_epochs=1):
            pass
    return clock.seconds / (len(batches) - WARM)


@final
class _Clocked:
    """Batches that time a loop from its request for the first counted batch until it has processed all."""

    def __init__(self, batches: Sequence[UtteranceBatch]) -> None:
        self._batches = batches
        self.seconds = 0.0

    def __iter__(self) -> Iterator[UtteranceBatch]:
        yield from self._batches[:WARM]
        start = time.thread_time()
        yield from self._batches[WARM:]
        self.seconds = time.thread_time() - start


@final
@dataclass(frozen=True, slots=True)
class _Optimizers:
    generator: Optimizer
    discriminators: Optimizer | None


Step = Callable[[Adversaries, _Optimizers, UtteranceBatch], None]


def _by_hand(corpus: SpeechCorpus, batches: Sequence[UtteranceBatch], step: Step, *, judged: bool) -> float:
    """Seconds per step."""
    adversaries = Adversaries.fresh(corpus, judged=judged)
    judges = adversaries.discriminators
    optimizers = _Optimizers(
        adversaries.optimizer(adversaries.objective.generator.model),
        None if judges is None else adversaries.optimizer(judges),
    )
    start = 0.0
    for number, batch in enumerate(batches):
        if number == WARM:
            start = time.thread_time()
        step(adversaries, optimizers, batch)
    return (time.thread_time() - start) / (len(batches) - WARM)


def _plain_step(adversaries: Adversaries, optimizers: _Optimizers, batch: UtteranceBatch) -> None:
    _learn(adversaries, optimizers, batch, adversaries.objective.generator(batch))


def _shared_step(adversaries: Adversaries, optimizers: _Optimizers, batch: UtteranceBatch) -> None:
    """One forward: the discriminators train on its detached waves, then the generator on its graph."""
    made = adversaries.objective.generator(batch)
    _step_discriminators(adversaries, optimizers, batch, made._replace(waves=made.waves.detach()))
    _learn(adversaries, optimizers, batch, made)


def _apart_step(adversaries: Adversaries, optimizers: _Optimizers, batch: UtteranceBatch) -> None:
    """One forward for each."""
    with torch.no_grad():
        made = adversaries.objective.generator(batch)
    _step_discriminators(adversaries, optimizers, batch, made)
    _learn(adversaries, optimizers, batch, adversaries.objective.generator(batch))


def _step_discriminators(
    adversaries: Adversaries, optimizers: _Optimizers, batch: UtteranceBatch, made: GeneratorOutput
) -> None:
    judges, optimizer = adversaries.discriminators, optimizers.discriminators
    assert judges is not None
    assert optimizer is not None
    optimizer.zero_grad()
    float(_stepped(adversaries.objective.discriminator_loss(batch, made).mean, judges, optimizer, adversaries.recipe))


def _learn(adversaries: Adversaries, optimizers: _Optimizers, batch: UtteranceBatch, made: GeneratorOutput) -> None:
    """The generator's step; the discriminators are frozen, so that they get no gradient."""
    judges = adversaries.discriminators
    optimizers.generator.zero_grad()
    if judges is not None:
        judges.requires_grad_(requires_grad=False)
    loss = adversaries.objective.generator_loss(batch, made).mean
    model = adversaries.objective.generator.model
    float(_stepped(loss, model, optimizers.generator, adversaries.recipe))
    if judges is not None:
        judges.requires_grad_(requires_grad=True)


def _stepped(loss: torch.Tensor, module: nn.Module, optimizer: Optimizer, recipe: SpeechRecipe) -> torch.Tensor:
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip)
    optimizer.step()
    return loss.detach()


def _search_share(corpus: SpeechCorpus, batches: Sequence[UtteranceBatch]) -> float:
    """Share of the alignment search in the steps by hand."""
    taken = 0.0

    def timed(*arguments: torch.Tensor) -> torch.Tensor:
        nonlocal taken
        start = time.thread_time()
        path = find_monotonic_path(*arguments)
        taken += time.thread_time() - start
        return path

    objectives.find_monotonic_path = timed
    try:
        whole = _by_hand(corpus, batches, _plain_step, judged=False) * (len(batches) - WARM)
    finally:
        objectives.find_monotonic_path = find_monotonic_path
    return taken * (len(batches) - WARM) / len(batches) / whole
