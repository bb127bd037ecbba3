"""VITS objective: every part gets a gradient, independent of how a window is split."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from tiny_voice import BINS, HOP, PARTS, SLICE, tiny_model, utterances
from torch import Tensor, nn
from torch.nn import functional
from transformers import VitsModel

from trainers.loop import IterableSource, Loop, Loss, Phase, Report, StepReport, UnusedParameterError
from trainers.vits.batches import FrameSplitter, UtteranceBatch
from trainers.vits.objective import Discriminators, LossWeights, TokenPrior, VoiceGenerator, VoiceObjective
from trainers.vits.spectrum import FrameSettings, log_mel_of

FRAMING = FrameSettings(rate=16_000, hop=HOP, fft=2 * (BINS - 1))
WHOLE = ([50, 36, 44, 33], [7, 5, 9, 3])


class GradientRecorder(torch.optim.SGD):
    """An optimizer that records the gradients of its last step."""

    seen: list[Tensor]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.seen = [parameter.grad.clone() for parameter in self.param_groups[0]["params"]]
        return super().step(closure)


def objective_of(model: VitsModel, discriminators: Discriminators | None = None) -> VoiceObjective:
    """An objective without posterior noise, so that clips have the same loss in any batch."""
    generator = VoiceGenerator(model, frames=SLICE, noise=torch.zeros_like)
    objective = VoiceObjective(generator, FRAMING, LossWeights(), discriminators)
    objective.adversarial = discriminators is not None
    return objective


def some_discriminators() -> Discriminators:
    torch.manual_seed(8)
    return Discriminators((4, 16))


def gradients(
    batches: Sequence[UtteranceBatch], *, accumulate: int, limit: int | None = None, stochastic: bool = False
) -> tuple[list[Tensor], list[Report]]:
    """Generator gradients of one window with the discriminators' loss, and the reports."""
    model, discriminators = tiny_model(stochastic=stochastic), some_discriminators()
    objective = objective_of(model, discriminators)
    optimizer = GradientRecorder(model.parameters(), lr=0.0)
    judging = torch.optim.SGD(discriminators.parameters(), lr=0.0)
    phases = [
        Phase("discriminators", objective.discriminator_loss, discriminators.parameters(), judging, uses="generator"),
        Phase(
            "generator",
            objective.generator_loss,
            model.parameters(),
            optimizer,
            clip=None,
            counts=objective.counts,
            forward=objective.generator,
        ),
    ]
    modules: dict[str, nn.Module] = {"generator": model, "discriminators": discriminators}
    loop = Loop(phases, modules=modules, device="cpu", accumulate=accumulate, splitter=FrameSplitter())
    with loop.running() as run:
        for phase in run._phases:
            phase.cutter.limit = limit
        reports = list(run.epochs(IterableSource(batches), max_epochs=1))
    return optimizer.seen, reports


def halves() -> list[UtteranceBatch]:
    whole = utterances(*WHOLE)
    return [FrameSplitter().cut(whole, 0, 2), FrameSplitter().cut(whole, 2, 4)]


def assert_same(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    """Assert equality up to 1e-5 of the whole gradient's norm."""
    one, other = (torch.cat([tensor.flatten() for tensor in tensors]).double() for tensors in (found, wanted))
    assert float((one - other).norm() / other.norm()) < 1e-5


def test_two_accumulated_batches_give_the_gradient_of_one() -> None:
    found, _ = gradients(halves(), accumulate=2)
    wanted, _ = gradients([utterances(*WHOLE)], accumulate=1)
    assert_same(found, wanted)


def test_pieces_give_the_gradient_of_the_batch() -> None:
    found, reports = gradients([utterances(*WHOLE)], accumulate=1, limit=110)
    wanted, _ = gradients([utterances(*WHOLE)], accumulate=1)
    assert isinstance(reports[-2], StepReport)
    assert_same(found, wanted)


def test_the_mean_of_the_halves_means_would_be_another() -> None:
    whole, _ = gradients([utterances(*WHOLE)], accumulate=1)
    first, second = (gradients([half], accumulate=1)[0] for half in halves())
    mean = torch.cat([((one + other) / 2).flatten() for one, other in zip(first, second, strict=True)])
    wanted = torch.cat([tensor.flatten() for tensor in whole])
    assert float((mean - wanted).norm() / wanted.norm()) > 1e-3


def test_the_stochastic_predictor_keeps_its_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*sizes: int, **_: object) -> Tensor:
        return torch.zeros(*sizes)

    monkeypatch.setattr(torch, "randn", nothing)
    found, _ = gradients(halves(), accumulate=2, stochastic=True)
    wanted, _ = gradients([utterances(*WHOLE)], accumulate=1, stochastic=True)
    assert_same(found, wanted)


@pytest.mark.parametrize("stochastic", [False, True])
def test_every_parameter_of_all_five_parts_gets_a_gradient(*, stochastic: bool) -> None:
    model = tiny_model(stochastic=stochastic)
    objective = objective_of(model)
    batch = utterances(*WHOLE)
    objective.generator_loss(batch, objective.generator(batch)).mean.backward()
    without = Counter(name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is None)
    zero = {name for name, weight in model.named_parameters() if weight.grad is not None and not weight.grad.any()}
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == set(PARTS)
    assert without == Counter()
    assert zero == set()


def test_mel_bands_that_were_first_asked_for_in_inference_mode_still_teach() -> None:
    framing = FrameSettings(rate=11_025, hop=HOP, fft=2 * (BINS - 1))  # a rate unused by other tests
    waves = torch.randn(1, SLICE * HOP, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        log_mel_of(waves, framing)
    log_mel_of(waves.requires_grad_(), framing).sum().backward()
    assert waves.grad is not None


def test_the_loss_on_the_spoken_wave_alone_is_refused_by_naming_what_it_never_trains() -> None:
    """Comparing the spoken mel with the recording's trains neither durations nor posterior."""
    model = tiny_model()

    def spoken(batch: UtteranceBatch) -> Loss:
        waves = model(input_ids=batch.tokens[:1, : batch.token_lengths[0]]).waveform
        padded = functional.pad(waves, (0, max(0, SLICE * HOP - waves.shape[1])))[:, : SLICE * HOP]
        distance = functional.l1_loss(log_mel_of(padded, FRAMING), log_mel_of(batch.slices[:1], FRAMING))
        return Loss(distance, 1)

    phase = Phase("note", spoken, model.parameters(), torch.optim.SGD(model.parameters(), lr=0.01))
    loop = Loop([phase], modules={"model": model}, device="cpu", audit_steps=2)
    batches = [utterances(*WHOLE)] * 3
    with pytest.raises(UnusedParameterError, match=r"duration_predictor.*posterior_encoder"), loop.running() as run:
        list(run.epochs(IterableSource(batches), max_epochs=1))


def test_divergence_by_hand() -> None:
    """One frame, one channel, one token: 0.5 log-deviation apart, 1 away from the mean."""
    prior = TokenPrior(torch.tensor([[[2.0]]]), torch.tensor([[[0.5]]]))
    found = prior.divergence(
        torch.ones(1, 1, 1), torch.tensor([[[3.0]]]), torch.tensor([[[0.25]]]), torch.ones(1, 1, 1)
    )
    assert float(found) == pytest.approx(0.5 - 0.25 - 0.5 + 0.5 * math.exp(-1.0))


def test_divergence_is_on_average_that_of_two_normal_distributions() -> None:
    draw = torch.Generator().manual_seed(4)
    mean, deviation, count = 0.7, 0.6, 200_000
    prior = TokenPrior(torch.zeros(1, 1, 1), torch.full((1, 1, 1), math.log(1.5)))
    latents = mean + deviation * torch.randn(1, 1, count, generator=draw)
    logs = torch.full((1, 1, count), math.log(deviation))
    found = prior.divergence(torch.ones(1, count, 1), latents, logs, torch.ones(1, 1, count)) / count
    exact = math.log(1.5 / deviation) + (deviation**2 + mean**2) / (2 * 1.5**2) - 0.5
    assert float(found) == pytest.approx(exact, abs=0.005)


def test_log_likelihood_is_that_of_normal_distributions() -> None:
    draw = torch.Generator().manual_seed(6)
    prior = TokenPrior(torch.randn(2, 3, 4, generator=draw), 0.3 * torch.randn(2, 3, 4, generator=draw))
    latents = torch.randn(2, 4, 5, generator=draw)
    normal = torch.distributions.Normal(prior.means[:, None], prior.log_deviations.exp()[:, None])
    torch.testing.assert_close(prior.log_likelihood(latents), normal.log_prob(latents.mT[:, :, None]).sum(-1))


def test_a_slice_is_decoded_from_the_latents_of_its_own_frames() -> None:
    model = tiny_model().eval()
    batch = utterances([50], [5])._replace(starts=torch.tensor([6]))
    made = VoiceGenerator(model, frames=SLICE, noise=torch.zeros_like)(batch)
    _, mean, _ = model.posterior_encoder(batch.spectra, torch.ones(1, 1, 50))
    torch.testing.assert_close(made.waves, model.decoder(mean[:, :, 6 : 6 + SLICE])[:, 0])


def test_padding_changes_nothing_of_a_clip() -> None:
    model = tiny_model().eval()
    objective = objective_of(model)
    alone = FrameSplitter().cut(utterances(*WHOLE), 3, 4)
    wide = alone._replace(tokens=functional.pad(alone.tokens, (0, 4)), spectra=functional.pad(alone.spectra, (0, 6)))
    terms = [objective.score(batch).terms for batch in (alone, wide)]
    for name in terms[0]:
        torch.testing.assert_close(terms[0][name].mean, terms[1][name].mean)


def test_every_term_weighs_what_the_paper_gives_it() -> None:
    objective, batch = objective_of(tiny_model(), some_discriminators()), utterances([40, 36], [7, 5])
    loss = objective.generator_loss(batch, objective.generator(batch))
    weights = {name: term.weight for name, term in loss.terms.items()}
    assert weights == {"mel": 45, "divergence": 1, "duration": 1, "adversarial": 1, "matching": 2}


def test_the_discriminators_judgement_reaches_the_generator() -> None:
    model = tiny_model()
    objective, batch = objective_of(model, some_discriminators()), utterances([40, 36], [7, 5])
    terms = objective.generator_loss(batch, objective.generator(batch)).terms
    for name in ("adversarial", "matching"):
        model.zero_grad()
        terms[name].mean.backward(retain_graph=True)
        assert model.decoder.conv_pre.weight.grad is not None
        assert model.decoder.conv_pre.weight.grad.any()
