"""Reward tuning of a model with GRPO: reinforce steps that led to better images than others of the same group."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import nn

from trainers.dit.images import ImageFolder
from trainers.dit.models import ImageModel
from trainers.dit.networks import ImageNetwork
from trainers.dit.recipe import GrpoRecipe
from trainers.dit.reward_monitor import EvaluationSnapshot, RewardGate
from trainers.dit.rewards import ValidatedReward
from trainers.dit.rollouts import (
    PolicySampler,
    PolicySteps,
    RolloutRound,
    Rollouts,
    compute_clipped_gain,
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
"""Name of the module and of the phase."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Result of a tuning run.

    Attributes:
        rounds: Rewards of the training rollouts, one entry per iteration.
        snapshots: Reward and quality on held-out prompts; the first is before tuning.
        kept: Evaluation whose weights the model now has.
        refused: Evaluation at which the gate ended the tuning, if it did.
        verdict: The outcome in words.
    """

    rounds: tuple[RolloutRound, ...]
    snapshots: tuple[EvaluationSnapshot, ...]
    kept: EvaluationSnapshot
    refused: EvaluationSnapshot | None
    verdict: str


@final
class PolicyLoss:
    """Policy loss: negative clipped gain plus a divergence penalty.

    Args:
        network: Network in training.
        start: Frozen copy from before tuning.
        sampler: Step sampler of both.
        recipe: Clipping and weight of the divergence.
    """

    def __init__(self, network: ImageNetwork, start: ImageNetwork, sampler: PolicySampler, recipe: GrpoRecipe) -> None:
        self._network = network
        self._start = start
        self._sampler = sampler
        self._recipe = recipe

    def loss(self, steps: PolicySteps) -> Loss:
        """Mean loss over images; its parts measure the distance from the start."""
        with full_precision(steps.before.device):  # 16 bits cannot resolve the differences of probabilities
            inputs = (steps.condition, steps.before, steps.timesteps, steps.times, steps.lengths)
            step = self._sampler.step(self._network, *inputs)
            with torch.no_grad():
                start = self._sampler.step(self._start, *inputs)
            ratios = (log_probability(step, steps.after) - steps.probability).exp()
            gain = compute_clipped_gain(ratios, steps.advantages, self._recipe.ratio_clip).mean()
            distance = divergence(step, start).mean()
            moved = (ratios.detach() - 1).abs()
            parts = {
                "divergence": distance.detach(),
                "moved": moved.mean(),
                "clipped": (moved > self._recipe.ratio_clip).float().mean(),
            }
            return Loss(self._recipe.divergence * distance - gain, len(ratios), parts)


def tune(
    model: ImageModel,
    pictures: ImageFolder,
    reward: ValidatedReward,
    gate: RewardGate,
    recipe: GrpoRecipe,
    checkpoints: Checkpoints | None,
    consume: ReportConsumer,
) -> TuningResult:
    """Tune a model's transformer in place, ending with the weights of the best accepted reward.

    Args:
        model: Model trained by flow matching.
        pictures: Prompts to draw, with real images.
        reward: Reward of each image.
        gate: Gate on the quality.
        recipe: Tuning settings.
        checkpoints: Checkpoints for resuming, if any.
        consume: Receives progress reports.

    Raises:
        SchedulerError: The model was not trained by flow matching.
        RewardError: The reward is not defined for single images, or is not finite.
        StoppedError: A signal ended the tuning, after a checkpoint.
        LoopError: The tuning failed.
    """
    rollouts = Rollouts(model, pictures, reward, recipe)
    loop = build_loop(model, rollouts, gate, recipe)
    with loop.running(checkpoints) as run:
        source = LiveSource(rollouts, length=recipe.trained_steps * launched_size())
        for _ in consume(gate.monitor(run, run.epochs(source, max_epochs=recipe.iterations))):
            pass
        run.restore_best()
    return TuningResult(tuple(rollouts.rounds), tuple(gate.snapshots), gate.kept, gate.refused, gate.verdict)


def build_loop(model: ImageModel, rollouts: Rollouts, gate: RewardGate, recipe: GrpoRecipe) -> Loop[PolicySteps]:
    """Training loop with the frozen start; its checkpoints include rollouts and evaluations.

    Raises:
        SettingsError: The precision is not full.
    """
    if recipe.precision not in ("auto", "fp32"):
        raise SettingsError(
            f"precision is {recipe.precision}; 16 bits cannot resolve the probabilities of steps, use fp32"
        )
    transformer, start = model.network.module, deepcopy(model.network)
    sampler = PolicySampler(model.unconditional().move_to("cpu"), recipe)
    policy_loss = PolicyLoss(model.network, start, sampler, recipe)
    optimizer = adamw(transformer.parameters(), lr=recipe.learning_rate, weight_decay=0.0)
    phase = Phase[PolicySteps](
        TRANSFORMER,
        policy_loss.loss,
        transformer.parameters(),
        optimizer,
        clip=recipe.clip,
        allow_zero_gradients=True,  # while all rewards are equal, because the divergence starts at 0
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
