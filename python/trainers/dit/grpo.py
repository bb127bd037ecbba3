"""Tuning a model by rewards: it draws, and learns which of its steps led to better images than others of a group."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import nn

from trainers.dit.images import ImageFolder
from trainers.dit.models import ImageModel
from trainers.dit.monitoring import EvaluationSnapshot, RewardGate
from trainers.dit.networks import ImageNetwork
from trainers.dit.recipe import GrpoRecipe
from trainers.dit.rewards import ValidatedReward
from trainers.dit.rollouts import (
    PolicySampler,
    PolicySteps,
    RolloutRound,
    Rollouts,
    RolloutSettings,
    clipped_gain,
    divergence,
    log_probability,
)
from trainers.loop import (
    Checkpoints,
    FrozenModule,
    LiveSource,
    Loop,
    Loss,
    Phase,
    SettingsError,
    adamw,
    full_precision,
    launched_size,
)
from trainers.progress import ReportConsumer

TRANSFORMER: Final = "transformer"
"""Its name as a module and as a phase."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """How a tuning went.

    Attributes:
        rounds: rewards of what was drawn to learn from, an entry an iteration.
        looks: reward and quality of held-out prompts; the first is the start.
        kept: the look whose weights the model has now.
        refused: the look at which the gate ended it; None where it did not.
        verdict: that in words.
    """

    rounds: tuple[RolloutRound, ...]
    looks: tuple[EvaluationSnapshot, ...]
    kept: EvaluationSnapshot
    refused: EvaluationSnapshot | None
    verdict: str


@final
class PolicyLoss:
    """The loss of steps: less what is gained by making good ones more probable, and how far that leads from the start.

    Args:
        network: that is trained.
        start: the same as it was, frozen.
        steps: of both.
        recipe: clipping, and how much going away from the start costs.
    """

    def __init__(self, network: ImageNetwork, start: ImageNetwork, steps: PolicySampler, recipe: GrpoRecipe) -> None:
        self._network = network
        self._start = start
        self._steps = steps
        self._recipe = recipe

    def loss(self, moves: PolicySteps) -> Loss:
        """A mean over images; its parts tell how far the network has gone."""
        with full_precision(moves.before.device):  # probabilities differ by less than 16 bits can say
            told = (moves.condition, moves.before, moves.timesteps, moves.times, moves.lengths)
            step = self._steps.of(self._network, *told)
            with torch.no_grad():
                start = self._steps.of(self._start, *told)
            ratios = (log_probability(step, moves.after) - moves.probability).exp()
            gain = clipped_gain(ratios, moves.advantages, self._recipe.ratio_clip).mean()
            away = divergence(step, start).mean()
            moved = (ratios.detach() - 1).abs()
            parts = {
                "divergence": away.detach(),
                "moved": moved.mean(),
                "clipped": (moved > self._recipe.ratio_clip).float().mean(),
            }
            return Loss(self._recipe.divergence * away - gain, len(ratios), parts)


def tune(
    model: ImageModel,
    pictures: ImageFolder,
    reward: ValidatedReward,
    gate: RewardGate,
    recipe: GrpoRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
) -> TuningResult:
    """Tune a model's transformer in place; it then has the weights of the best reward that the gate accepts.

    Args:
        model: that has learnt flow matching.
        pictures: prompts to draw, and real images of them.
        reward: for each image.
        gate: what must not get worse.
        recipe: every setting.
        checkpoints: where a stopped tuning goes on from; None for none.
        consume: takes the reports.

    Raises:
        SchedulerError: the model has not learnt flow matching.
        RewardError: the reward is none for single images, or what it says is no number.
        StoppedError: a signal ended it, after a checkpoint.
        LoopError: the tuning failed.
    """
    rollouts = Rollouts(model, pictures, reward, play_of(recipe))
    loop = loop_of(model, rollouts, gate, recipe)
    with loop.running(checkpoints) as run:
        source = LiveSource(rollouts, length=recipe.trained_steps * launched_size())
        for _ in consume(gate.watched(run, run.epochs(source, max_epochs=recipe.iterations))):
            pass
        run.restore_best()
    return TuningResult(tuple(rollouts.rounds), tuple(gate.looks), gate.kept, gate.refused, gate.verdict)


def play_of(recipe: GrpoRecipe) -> RolloutSettings:
    """How images are drawn to learn from."""
    return RolloutSettings(
        groups=recipe.groups,
        members=recipe.members,
        steps=recipe.draw_steps,
        trained=recipe.trained_steps,
        noise=recipe.chance,
        guidance=recipe.guidance,
    )


def loop_of(model: ImageModel, rollouts: Rollouts, gate: RewardGate, recipe: GrpoRecipe) -> Loop[PolicySteps]:
    """The loop: the start is frozen, and what was drawn and seen is in its checkpoints.

    Raises:
        SettingsError: another precision than the full one is asked for.
    """
    if recipe.precision not in ("auto", "fp32"):
        raise SettingsError(
            f"precision is {recipe.precision}; steps differ in their probabilities by less than 16 bits can say, so it "
            "must be fp32"
        )
    transformer, start = model.network.module, deepcopy(model.network)
    steps = PolicySampler(model.unconditional().on("cpu"), play_of(recipe))
    improving = PolicyLoss(model.network, start, steps, recipe)
    optimizer = adamw(transformer.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    phase = Phase[PolicySteps](
        TRANSFORMER,
        improving.loss,
        transformer.parameters(),
        optimizer,
        clip=recipe.clip,
        allow_zero_gradients=True,  # where all rewards are equal, as at the beginning nothing else moves
    )
    modules: dict[str, nn.Module | FrozenModule] = {
        TRANSFORMER: transformer,
        "start": FrozenModule(start.module),
        "vae": FrozenModule(model.latents.module),
        "text_encoder": FrozenModule(model.prompts.module),
    }
    return Loop(
        [phase],
        modules=modules,
        device=recipe.device,
        precision="fp32",
        accumulate=recipe.accumulate,
        oom=recipe.oom,
        nonfinite=recipe.nonfinite,
        ema={TRANSFORMER: recipe.ema} if recipe.ema else None,
        compile=recipe.compiled,
        deterministic=recipe.deterministic,
        state={"rollouts": rollouts, "gate": gate},
    )
