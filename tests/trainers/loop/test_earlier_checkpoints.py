"""A checkpoint that an earlier version wrote: the training goes on from it, and ends as it did there.

The fixture holds the checkpoint after the fifth window, in mid-epoch, and what that version came to at the end.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from shown_commands import ROOT
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR

from trainers.loop import Checkpoints, EpochReport, IterableSource, Loop, Loss, Phase, TrainingNotice, seed_everything

FIXTURE = ROOT / "tests" / "fixtures" / "earlier_training"


def trained(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Two phases, a schedule, an average, dropout, parts of the loss: everything that a checkpoint then held."""
    seed_everything(3)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Tanh(), nn.Linear(4, 1)).double()
    critic = nn.Linear(1, 1).double()

    def squares(x: Tensor) -> Loss:
        errors = (net(x)[:, 0] - x.sum(1)).square()
        return Loss(errors.mean(), len(x), {"largest": errors.max().detach()})

    def judged(x: Tensor) -> Loss:
        with torch.no_grad():
            made = net(x)
        return Loss((critic(made) - 1).square().mean(), len(x))

    adam = torch.optim.AdamW(net.parameters(), lr=0.05)
    momentum = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9)
    phases = [
        Phase("fit", squares, net.parameters(), adam, ExponentialLR(adam, 0.9)),
        Phase("judge", judged, critic.parameters(), momentum, every=2),
    ]
    generator = torch.Generator().manual_seed(7)
    batches = [torch.randn(size, 3, generator=generator, dtype=torch.float64) for size in (4, 2, 5, 3, 4)]
    loop = Loop(phases, modules={"net": net, "critic": critic}, device="cpu", accumulate=2, ema=0.9)
    notices: list[str] = []
    with loop.running(Checkpoints(folder, keep=1, every_windows=5, every_seconds=None)) as run:
        for report in run.epochs(IterableSource(batches), max_epochs=4):
            if isinstance(report, EpochReport):
                run.stalled(report.loss, patience=9)
            if isinstance(report, TrainingNotice):
                notices.append(report.message)
    weights = [tensor.flatten().tolist() for tensor in (*net.parameters(), *critic.parameters())]
    return {"weights": weights, "losses": [report.loss for report in run.history], "best": run.best.value}, notices


@pytest.mark.parametrize("resumed", [False, True], ids=["from the start", "from the checkpoint"])
def test_a_training_ends_as_it_did_in_an_earlier_version(tmp_path: Path, *, resumed: bool) -> None:
    if resumed:
        shutil.copytree(FIXTURE / "window-000000005", tmp_path / "window-000000005")
    expected = json.loads((FIXTURE / "end.json").read_text(encoding="utf-8"))
    found, notices = trained(tmp_path)
    assert [notice for notice in notices if "goes on after window 2 of epoch 2" in notice] == notices[: int(resumed)]
    assert found["best"] == pytest.approx(expected["best"], rel=1e-9)  # other processors round otherwise
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-9)
    for one, other in zip(found["weights"], expected["weights"], strict=True):
        assert one == pytest.approx(other, rel=1e-9)
