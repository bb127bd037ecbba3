"""Models to serve and requests to send, written once for all faults by a process of their own, which needs torch.

Run as `python -m benchmarks.faults.models FOLDER`. Networks are the shipped LSTM with its own dropout and seeded random
weights: what they forecast does not matter here.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from predictor._pb import prediction_pb2 as pb

SMALL_HIDDEN, HEAVY_HIDDEN, HEAVY_LAYERS = 32, 192, 4
MANY: Final = 8
"""Models of the folder that takes long to load."""
NOTE_BYTES: Final = 500_000
"""What each of those tells in its card: a list of them all is a large answer."""
WEIGHTS: Final = "weights.safetensors"
"""The file of an artifact that holds its network's."""
NAME: Final = "stock"
"""Of the model in every folder; beside it, the many have others with a number behind it."""


@final
@dataclass(frozen=True, slots=True)
class Material:
    """A folder of what faults are made from.

    Attributes:
        folder: Where it all stands.
    """

    folder: Path

    @property
    def small(self) -> Path:
        """One model, of the usual size: a folder that a server takes, as the next ones."""
        return self.folder / "small"

    @property
    def heavy(self) -> Path:
        """One model whose forward takes far longer than reading the request for it."""
        return self.folder / "heavy"

    @property
    def many(self) -> Path:
        """Many models of the usual size, with long cards."""
        return self.folder / "many"

    def version(self, seed: int) -> Path:
        """An artifact of the small model with these weights: seed 1 or 2."""
        return self.folder / "versions" / str(seed)

    def bars(self) -> pb.Instance:
        """Two stocks' bars, as many as a forecast needs."""
        return pb.Instance.FromString((self.folder / "bars.bin").read_bytes())

    def window(self) -> pb.Instance:
        """One stock's feature window."""
        return pb.Instance.FromString((self.folder / "window.bin").read_bytes())

    def one_stock(self) -> pb.Instance:
        """One stock's bars."""
        return pb.Instance.FromString((self.folder / "one.bin").read_bytes())

    def pickled_weights(self) -> Path:
        """The small model's weights as torch.save writes them."""
        return self.folder / "weights.pt"

    @property
    def checkpoints(self) -> Path:
        """The folder of a small training: two checkpoints, after window 1 and window 2."""
        return self.folder / "checkpoints"

    @property
    def certificates(self) -> Path:
        """The folder of a server's certificates and tokens, as `target.Secured` reads them."""
        return self.folder / "certificates"

    def networks(self) -> str:
        """What the small model's network consists of, in words."""
        return (self.folder / "networks.txt").read_text(encoding="utf-8")


def write(folder: Path) -> None:
    """Fill a new folder."""
    import torch
    from safetensors.torch import load_file

    from benchmarks.faults.artifacts import Parts
    from benchmarks.faults.target import Secured

    material, parts = Material(folder), Parts.fitted()
    parts.save(material.small / NAME / "1", hidden=SMALL_HIDDEN, layers=2, seed=0)
    torch.save(load_file(material.small / NAME / "1" / WEIGHTS), material.pickled_weights())
    for seed in (1, 2):
        parts.save(material.version(seed), hidden=SMALL_HIDDEN, layers=2, seed=seed)
    parts.save(material.heavy / NAME / "1", hidden=HEAVY_HIDDEN, layers=HEAVY_LAYERS, seed=0)
    first = material.many / NAME / "1"
    parts.save(first, hidden=SMALL_HIDDEN, layers=2, seed=0, note="x" * NOTE_BYTES)
    for number in range(1, MANY):
        shutil.copytree(first, material.many / f"{NAME}{number}" / "1")
    for name, instance in parts.instances().items():
        (folder / f"{name}.bin").write_bytes(instance.SerializeToString())
    (folder / "networks.txt").write_text(parts.networks(), encoding="utf-8")
    write_checkpoints(material.checkpoints)
    Secured(material.certificates).write()


def write_checkpoints(folder: Path) -> None:
    """Two checkpoints, as a training writes them."""
    import torch

    from trainers.loop.checkpoint.snapshot import Snapshot
    from trainers.loop.checkpoint.store import Checkpoints

    checkpoints = Checkpoints(folder)
    with checkpoints.open():
        for windows in (1, 2):
            numbers = torch.arange(1000.0) + windows
            tensors, state = {"modules": {"weight": numbers}}, {"moments": numbers / 2}
            checkpoints.save(
                Snapshot(tensors=tensors, state=state, epoch=0, window=windows, windows=windows, best=False)
            )


def flat_panel(sessions: np.ndarray[tuple[int], np.dtype[np.int32]], symbols: int) -> pb.BarPanel:
    """As many symbols as asked for, whose price never moves, on the sessions [T]."""
    prices = np.full((symbols, len(sessions)), 10.0).tobytes()
    return pb.BarPanel(
        symbols=[f"S{row}" for row in range(symbols)],
        session_yyyymmdd=sessions.tolist(),
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=prices,
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
