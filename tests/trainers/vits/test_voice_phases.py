"""Both phases of voice training under overflows, memory shortage, several processes, and 16 bits."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from rank_processes import results_on_ranks
from shortages import Shortage, Stage
from tiny_voice import BINS, HOP, SLICE, tiny_model, utterances
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from training_results import comparable

from trainers.loop import IterableSource, NonFiniteError, Precision, StepReport, TrainingRun
from trainers.vits import objective as objectives
from trainers.vits.batches import FrameSplitter, UtteranceBatch
from trainers.vits.objective import Discriminators, LossWeights, VoiceGenerator, VoiceObjective
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.spectrum import FrameSettings
from trainers.vits.training import build_loop

FRAMING = FrameSettings(rate=16_000, hop=HOP, fft=2 * (BINS - 1))
RECIPE = SpeechRecipe(steps=100, adversarial_from=0, device="cpu")
BATCHES = [utterances([50, 36, 44, 33], [7, 5, 9, 3], seed=seed) for seed in range(3)]
START = 65536.0
SCALED = Precision(name="fp16", dtype=None, scaler=partial(torch.amp.GradScaler, "cpu"), reason="a stand-in")
PHASES = ("discriminators", "generator")
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class Training:
    """A tiny voice whose discriminators train from the first window, without noise."""

    def __init__(self, recipe: SpeechRecipe = RECIPE) -> None:
        torch.manual_seed(8)
        self.discriminators = Discriminators((4, 16))
        self.model = tiny_model()
        generator = VoiceGenerator(self.model, frames=SLICE, noise=torch.zeros_like)
        self.objective = VoiceObjective(generator, FRAMING, LossWeights(), self.discriminators)
        self.objective.adversarial = True
        self.loop = build_loop(self.objective, recipe, self.discriminators)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules by phase name."""
        return {"discriminators": self.discriminators, "generator": self.model}

    def reports(self, batches: Sequence[UtteranceBatch]) -> list[StepReport]:
        """Train on batches, one per window."""
        with self.loop.running() as run:
            return windows_of(run, batches)

    def weights(self, name: str) -> Tensor:
        """A module's weights as one vector: float32 [W]."""
        return torch.cat([tensor.detach().flatten() for tensor in self.modules[name].parameters()]).clone()


def windows_of(run: TrainingRun[UtteranceBatch], batches: Sequence[UtteranceBatch]) -> list[StepReport]:
    reports = run.epochs(IterableSource(batches), max_epochs=1)
    return [report for report in reports if isinstance(report, StepReport)]


def scaled(nonfinite: Any = "skip") -> SpeechRecipe:
    return replace(RECIPE, precision=SCALED, nonfinite=nonfinite)  # pyright: ignore[reportArgumentType] - a stand-in


# --- overflows


def overflow_in(training: Training, name: str, window: int) -> None:
    """Make a phase's gradient infinite in one window, as a scaled float16 gradient may be."""
    seen = 0

    def spoilt(gradient: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        return gradient * torch.inf if seen == window + 1 else gradient

    next(training.modules[name].parameters()).register_hook(spoilt)


def states(training: Training, run: TrainingRun[UtteranceBatch]) -> dict[str, Any]:
    """Weights, optimizer, schedule and scaler state of each phase, comparable by ==."""
    return {
        phase.phase.name: comparable([list(training.modules[phase.phase.name].parameters()), phase.update.state()])
        for phase in run._phases
    }


def train_steps(training: Training) -> Iterator[tuple[dict[str, StepReport], dict[str, Any]]]:
    """Each window's reports by phase, and the state after it."""
    with training.loop.running() as run:
        told: dict[str, StepReport] = {}
        for report in run.epochs(IterableSource(BATCHES), max_epochs=1):
            if isinstance(report, StepReport):
                told[report.phase] = report
                if report.phase == PHASES[-1]:
                    yield dict(told), states(training, run)


def without_scale(state: Sequence[Any]) -> Any:
    """Weights, optimizer and schedule."""
    weights, update = state
    return weights, {name: value for name, value in update.items() if name != "scaler"}


@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
@pytest.mark.parametrize("phase", PHASES)
def test_an_overflow_leaves_its_phase_as_it_was_with_half_the_scale_and_the_other_goes_on(
    phase: str, nonfinite: str
) -> None:
    training = Training(scaled(nonfinite))
    overflow_in(training, phase, window=1)
    (_, before), (told, after), (later, last) = train_steps(training)
    (other,) = {*PHASES} - {phase}
    assert (told[phase].stepped, told[other].stepped) == (False, True)
    assert (told[phase].loss_scale, told[other].loss_scale) == (START / 2, START)
    assert without_scale(after[phase]) == without_scale(before[phase])
    assert without_scale(after[other]) != without_scale(before[other])
    assert [(later[name].stepped, later[name].step) for name in (phase, other)] == [(True, 2), (True, 3)]
    assert without_scale(last[phase]) != without_scale(after[phase])
    assert all(training.weights(name).isfinite().all() for name in PHASES)


def test_an_overflow_of_the_discriminators_leaves_them_for_the_generator_as_they_were() -> None:
    """The generator's step equals one with unchanged discriminators."""
    overflown, resting = Training(scaled()), Training(scaled())
    overflow_in(overflown, "discriminators", window=0)
    overflown.reports(BATCHES[:1])
    with resting.loop.running() as run:
        for group in run._phases[0].phase.optimizer.param_groups:
            group["lr"] = 0.0
        windows_of(run, BATCHES[:1])
    torch.testing.assert_close(overflown.weights("generator"), resting.weights("generator"), rtol=0, atol=0)


@pytest.mark.parametrize("phase", PHASES)
def test_a_gradient_that_is_not_finite_without_a_scaler_is_an_error_if_that_is_asked_for(phase: str) -> None:
    training = Training(replace(RECIPE, nonfinite="raise"))
    overflow_in(training, phase, window=1)
    with pytest.raises(NonFiniteError, match=phase):
        training.reports(BATCHES)


# --- memory that runs out


def limit_memory(training: Training, place: str, shortage: Callable[[Tensor], Tensor]) -> None:
    """Run out of memory in the decoder or in a discriminator."""
    verdict: Any = training.discriminators.each[0]
    module: nn.Module = training.model.decoder if place == "decoder" else verdict.verdict

    def hook(_: nn.Module, __: object, made: Tensor) -> Tensor:
        return shortage(made)

    module.register_forward_hook(hook)


def assert_same_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
    """Assert equality up to 1e-5 of the distance from the start."""
    for name in PHASES:
        moved = (wanted[name] - start[name]).double().norm()
        assert moved > 0
        assert float((found[name] - wanted[name]).double().norm() / moved) < 1e-5, name


def all_weights(training: Training) -> dict[str, Tensor]:
    return {name: training.weights(name) for name in PHASES}


@pytest.fixture
def descending(monkeypatch: pytest.MonkeyPatch) -> None:
    use_sgd(monkeypatch)


def use_sgd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use SGD: AdamW amplifies rounding errors to full steps."""

    def sgd(module: nn.Module, _: float) -> torch.optim.SGD:
        return torch.optim.SGD(module.parameters(), lr=0.01)

    monkeypatch.setattr("trainers.vits.training._create_optimizer", sgd)


@pytest.mark.usefixtures("descending")
@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("place", ["decoder", "verdict"])
def test_a_batch_that_does_not_fit_is_cut_and_trains_the_same_weights(place: str, stage: Stage) -> None:
    short, whole = Training(), Training()
    start = all_weights(short)
    shortage = Shortage(stage, fits=2)
    limit_memory(short, place, shortage)
    reports = short.reports(BATCHES)
    whole.reports(BATCHES)
    assert shortage.failures > 0
    assert sum(report.shortages for report in reports) == shortage.failures
    assert_same_weights(all_weights(short), all_weights(whole), start)


# --- several processes


def halves(batch: UtteranceBatch) -> list[UtteranceBatch]:
    return [FrameSplitter().cut(batch, 0, 2), FrameSplitter().cut(batch, 2, 4)]


def weights_of_a_rank() -> dict[str, Any]:
    """Weights trained on each rank with half of every batch."""
    with pytest.MonkeyPatch.context() as patch:
        use_sgd(patch)
        training = Training()
        training.reports([half for batch in BATCHES for half in halves(batch)])
    return {name: weights.numpy() for name, weights in all_weights(training).items()}


@pytest.mark.slow
@pytest.mark.usefixtures("descending")
def test_two_processes_train_the_weights_of_one_with_batches_twice_as_large() -> None:
    one = Training()
    start = all_weights(one)
    one.reports(BATCHES)
    for found in results_on_ranks(weights_of_a_rank):
        assert_same_weights({name: torch.from_numpy(array) for name, array in found.items()}, all_weights(one), start)


# --- 16 bits


@pytest.mark.parametrize(
    ("device", "precision"),
    [("cpu", "bf16"), pytest.param("cuda", "bf16", marks=GPU), pytest.param("cuda", "fp16", marks=GPU)],
)
def test_a_step_in_16_bits_is_finite_moves_every_weight_and_keeps_its_islands_in_32(
    device: str, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(replace(RECIPE, device=device, precision=precision))
    islands: set[tuple[str, torch.dtype, bool]] = set()
    prior = objectives.TokenPrior
    for owner, name in (
        (objectives, "log_mel_of"),
        (objectives, "find_monotonic_path"),
        (objectives, "compute_discrimination_loss"),
    ):
        monkeypatch.setattr(owner, name, _noting(getattr(owner, name), name, device, islands))
    for name in ("log_likelihood", "divergence"):
        monkeypatch.setattr(prior, name, _noting(getattr(prior, name), name, device, islands))
    windows = 20 if precision == "fp16" else 1  # a fresh voice's gradients are large: the scale halves ten times
    decoded: set[torch.dtype] = set()
    _note_outputs(training.model.decoder.conv_pre, decoded)
    before = {name: weight.detach().clone() for name, weight in _named(training)}
    with training.loop.running() as run:
        reports = [report for report in windows_of(run, BATCHES[:1] * windows) if report.stepped]
        assert math.isfinite(run.validate(training.objective.score, IterableSource(BATCHES)).mean)
    assert [report.phase for report in reports[-2:]] == list(PHASES)
    assert all(torch.tensor([report.loss, report.grad_norm]).isfinite().all() for report in reports)
    assert decoded == {torch.float16 if precision == "fp16" else torch.bfloat16}
    assert {name for name, _, _ in islands} == {
        "log_mel_of",
        "find_monotonic_path",
        "compute_discrimination_loss",
        "log_likelihood",
        "divergence",
    }
    assert {(dtype, autocast) for _, dtype, autocast in islands} == {(torch.float32, False)}
    after = {name: weight.detach().cpu() for name, weight in _named(training)}
    assert all(weight.isfinite().all() for weight in after.values())
    assert {name for name, weight in after.items() if torch.equal(weight, before[name])} == set()


def _named(training: Training) -> Iterator[tuple[str, nn.Parameter]]:
    """Every weight of both phases."""
    for name in PHASES:
        for path, weight in training.modules[name].named_parameters():
            yield f"{name}.{path}", weight


def _noting(
    function: Callable[..., Tensor], name: str, device: str, seen: set[tuple[str, torch.dtype, bool]]
) -> Callable[..., Tensor]:
    """Wrap a function to record its dtype."""

    def noting(*given: Any) -> Tensor:
        made = function(*given)
        found = {each.dtype for each in leaves_of((*given, made)) if each.is_floating_point()}
        seen.update((name, dtype, torch.is_autocast_enabled(device)) for dtype in found)
        return made

    return noting


def leaves_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _note_outputs(module: nn.Module, seen: set[torch.dtype]) -> None:
    def note(_: nn.Module, __: object, made: Tensor) -> None:
        seen.add(made.dtype)

    module.register_forward_hook(note)


def test_each_phase_learns_at_its_rate_which_halves_until_the_end() -> None:
    """Discriminators at most at the paper's 0.0002, halved here from their first step."""
    training = Training(replace(RECIPE, steps=6, adversarial_from=3, learning_rate=2e-3))
    reports = training.reports(BATCHES * 2)
    rates = {name: [one.learning_rate for one in reports if one.phase == name] for name in PHASES}
    assert rates["generator"] == pytest.approx([2e-3 * 0.5 ** (step / 6) for step in range(6)])
    assert rates["discriminators"] == pytest.approx([2e-4 * 0.5 ** (step / 3) for step in range(3)])


def test_discriminators_of_a_slow_voice_are_as_slow() -> None:
    training = Training(replace(RECIPE, learning_rate=2e-5))
    reports = training.reports(BATCHES[:1])
    assert [one.learning_rate for one in reports] == [2e-5, 2e-5]


def test_both_optimizers_forget_as_the_papers_do() -> None:
    training = Training()
    with training.loop.running() as run:
        windows_of(run, BATCHES[:1])
        for phase in run._phases:
            (group,) = phase.phase.optimizer.param_groups
            assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.8, 0.99), 1e-9, 0.01)
