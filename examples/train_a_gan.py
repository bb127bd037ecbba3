"""Train two networks against each other with the loop: python examples/train_a_gan.py.

Two phases with an optimizer each share the generator's forward pass, which runs once per batch. The discriminator
trains first, on detached samples; the generator's loss receives the same samples with their graph.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from trainers.loop import EpochReport, Loop, Loss, Phase, ResidentSource, adamw, seed_everything

NOISE = 4


def real_samples(samples: int) -> Tensor:
    """Samples of two clusters, around -2 and 1: [N, 1]."""
    return 3.0 * torch.randint(2, (samples, 1)) - 2.0 + 0.3 * torch.randn(samples, 1)


def distance(one: Tensor, other: Tensor) -> float:
    """The Wasserstein-1 distance between two sets of equal size."""
    return float((one.flatten().sort().values - other.flatten().sort().values).abs().mean())


def main() -> None:
    """Train the generator, and print the distance of its samples from real ones."""
    seed_everything(0)
    generator = nn.Sequential(nn.Linear(NOISE, 32), nn.Tanh(), nn.Linear(32, 1))
    discriminator = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def generate(real: Tensor) -> Tensor:
        return generator(torch.randn(len(real), NOISE, device=real.device))

    def discriminator_loss(real: Tensor, samples: Tensor) -> Loss:
        mean = softplus(-discriminator(real)).mean() + softplus(discriminator(samples)).mean()
        return Loss(mean, count=len(real))

    def generator_loss(real: Tensor, samples: Tensor) -> Loss:
        return Loss(softplus(-discriminator(samples)).mean(), count=len(real))

    discriminator_optimizer = adamw(discriminator.parameters(), lr=5e-3, betas=(0.5, 0.9))
    generator_optimizer = adamw(generator.parameters(), lr=5e-3, betas=(0.5, 0.9))
    phases = [
        Phase(
            "discriminator",
            discriminator_loss,
            discriminator.parameters(),
            discriminator_optimizer,
            uses="generator",
        ),
        Phase("generator", generator_loss, generator.parameters(), generator_optimizer, forward=generate),
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
            samples = generate(held_out.to(loop.device.device)).cpu()
    print(f"distance {distance(samples, held_out):.2f}; of zeros {distance(torch.zeros(2000), held_out):.2f}")


if __name__ == "__main__":
    main()
