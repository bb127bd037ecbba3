"""Train your own module with the loop: python examples/train_your_own_module.py.

The loop works for any task. It needs a function from a batch to a `Loss`, the parameters to train, and an optimizer.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainers.loop import EpochReport, Loop, Loss, Phase, ResidentSource, Validation, seed_everything


class Points(NamedTuple):
    """A batch: x and y, each [N, 1]."""

    x: Tensor
    y: Tensor


def noisy_sine(samples: int) -> Points:
    """Points of a sine with noise of 0.1."""
    x = 6 * torch.rand(samples, 1) - 3
    return Points(x, x.sin() + 0.1 * torch.randn(samples, 1))


def main() -> None:
    """Fit a sine, stop early, and keep the best weights."""
    seed_everything(0)
    network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def squared_error(batch: Points) -> Loss:
        return Loss(mean=(network(batch.x) - batch.y).square().mean(), count=len(batch.x))

    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    loop = Loop([Phase("sine", squared_error, network.parameters(), optimizer)], modules={"network": network})
    print(f"device {loop.device.device} ({loop.device.reason}), precision {loop.precision.name}")
    train = ResidentSource.of(noisy_sine(2000), batch_size=64)
    held_out = Validation(squared_error, ResidentSource.of(noisy_sine(500), batch_size=500, shuffle=False))
    with loop.running() as run:  # running(Checkpoints(Path("sine.run"))) can resume
        for report in run.epochs(train, max_epochs=40, validation=held_out):
            if isinstance(report, EpochReport):
                print(f"epoch {report.epoch + 1}: train {report.loss:.4f}, held out {report.monitored:.4f}")
                if run.stalled(report.monitored, patience=5):
                    break
        run.restore_best()
        print(f"best {run.best.value:.4f}; the noise is 0.0100")


if __name__ == "__main__":
    main()
