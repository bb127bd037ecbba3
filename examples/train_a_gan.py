"""Train two networks against each other with the loop: python examples/train_a_gan.py.

Two phases, each with an optimizer of its own, share the generator's forward: it runs once per batch. The discriminator
works first and is given what was made, detached; the generator's own loss is given the same with its graph.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from trainers.loop import EpochReport, Loop, Loss, Phase, ResidentSource, adamw, seed_everything

NOISE = 4


def real_samples(samples: int) -> Tensor:
    """Two heaps, around -2 and 1: [N, 1]."""
    return 3.0 * torch.randint(2, (samples, 1)) - 2.0 + 0.3 * torch.randn(samples, 1)


def distance(one: Tensor, other: Tensor) -> float:
    """The Wasserstein-1 distance of as many samples of each."""
    return float((one.flatten().sort().values - other.flatten().sort().values).abs().mean())


def main() -> None:
    """Learn to draw samples, and show how far they are from real ones."""
    seed_everything(0)
    generator = nn.Sequential(nn.Linear(NOISE, 32), nn.Tanh(), nn.Linear(32, 1))
    discriminator = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def made(real: Tensor) -> Tensor:
        return generator(torch.randn(len(real), NOISE, device=real.device))

    def told_apart(real: Tensor, samples: Tensor) -> Loss:
        mean = softplus(-discriminator(real)).mean() + softplus(discriminator(samples)).mean()
        return Loss(mean, count=len(real))

    def taken_for_real(real: Tensor, samples: Tensor) -> Loss:
        return Loss(softplus(-discriminator(samples)).mean(), count=len(real))

    judged, drawn = (adamw(module.parameters(), lr=5e-3, betas=(0.5, 0.9)) for module in (discriminator, generator))
    phases = [
        Phase("discriminator", told_apart, discriminator.parameters(), judged, uses="generator"),
        Phase("generator", taken_for_real, generator.parameters(), drawn, forward=made),
    ]
    modules = {"generator": generator, "discriminator": discriminator}
    loop = Loop(phases, modules=modules, ema={"generator": 0.99})
    held_out = real_samples(2000)
    with loop.running() as run:
        for report in run.epochs(ResidentSource.of(real_samples(4000), batch_size=64), max_epochs=15):
            if isinstance(report, EpochReport):
                losses = ", ".join(f"{name} {totals.loss:.3f}" for name, totals in report.phases.items())
                print(f"epoch {report.epoch + 1}: {losses}")
        run.use_average()
        with torch.inference_mode():
            samples = made(held_out.to(loop.device.device)).cpu()
    print(f"distance {distance(samples, held_out):.2f}; of zeros {distance(torch.zeros(2000), held_out):.2f}")


if __name__ == "__main__":
    main()
