"""Fine-tune a network: python examples/fine_tune.py.

A small network learns a sine. A second training starts from its weights with a new head for two waves. It trains the
head first, then the whole network.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from trainers.loop import (
    Checkpoints,
    EpochReport,
    FrozenModule,
    Loop,
    Loss,
    Phase,
    ResidentSource,
    Validation,
    take_weights,
)

Waves = Callable[[Tensor], Tensor]


def body() -> nn.Module:
    """The part of the network that both trainings share."""
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())


def trained(body: nn.Module | FrozenModule, head: nn.Module, waves: Waves, folder: Path, *, lr: float) -> float:
    """Train the head, and the body unless it is frozen; restore the best weights and return their loss."""
    network = nn.Sequential(body.module if isinstance(body, FrozenModule) else body, head)
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]

    def squared_error(x: Tensor) -> Loss:
        return Loss(mean=(network(x) - waves(x)).square().mean(), count=len(x))

    train, held_out = (ResidentSource.of(6 * torch.rand(samples, 1) - 3, batch_size=64) for samples in (1000, 500))
    phase = Phase("fit", squared_error, learning, torch.optim.Adam(learning, lr=lr))
    loop = Loop([phase], modules={"body": body, "head": head})
    with loop.running(Checkpoints(folder)) as run:
        for report in run.epochs(train, max_epochs=12, validation=Validation(squared_error, held_out)):
            if isinstance(report, EpochReport) and run.stalled(report.monitored, patience=4):
                break
        run.restore_best()
    return run.best.value or 0.0


def main() -> None:
    """Train, take over the weights, and train again."""
    torch.manual_seed(0)
    with TemporaryDirectory() as place:
        loss = trained(body(), nn.Linear(32, 1), torch.sin, Path(place, "sine"), lr=1e-2)
        print(f"a sine, from scratch: {loss:.5f}")

        shared, head = body(), nn.Linear(32, 2)
        weights = Checkpoints(Path(place, "sine")).weights("best")
        print(take_weights({"body": shared, "head": head}, weights, new="head", dropped="head"))

        def waves(x: Tensor) -> Tensor:
            return torch.cat([x.sin(), x.cos()], dim=1)

        loss = trained(FrozenModule(shared), head, waves, Path(place, "head"), lr=1e-2)
        print(f"sine and cosine, head only: {loss:.5f}")
        shared.requires_grad_()  # no longer frozen
        print(f"sine and cosine, whole network: {trained(shared, head, waves, Path(place, 'all'), lr=3e-3):.5f}")


if __name__ == "__main__":
    main()
