"""Artifacts of the shipped networks with random weights, and instances that they can answer."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self, final

import torch
from torch import nn

from predictor import artifact, golden
from predictor._pb import prediction_pb2 as pb
from predictor.artifact import Artifact, BaselineSpec, Conformal, Manifest
from predictor.bars import BarPanel
from predictor.features import FittedFeatures, default_features
from predictor.instance import FeatureWindow, Instance
from predictor.model import Identity, Model
from predictor.networks import (
    KINDS,
    LSTMConfig,
    NetworkConfig,
    NetworkKind,
    Target,
    WindowNormaliser,
    build_network,
    kind_named,
)
from predictor.sessions import SessionCalendar
from predictor.windows import Pipeline
from predictor.wire import instances
from trainers.demo.market import CALENDAR, real_bars

QUANTILES: Final = (0.1, 0.5, 0.9)
STOCKS: Final = ("AAPL", "IBM")
STATISTICS: Final = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""Names of torch's buffers that a pass in training mode changes."""


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """What all artifacts share: features that were fitted on real bars.

    Attributes:
        bars: Of `STOCKS`.
        pipeline: From bars to windows.
    """

    bars: BarPanel
    pipeline: Pipeline

    @classmethod
    def fitted(cls) -> Self:
        """Default features, fitted on the bars up to 2008."""
        bars, features = real_bars(STOCKS), default_features()
        pipeline = Pipeline(
            features=FittedFeatures.fit(features, features.columns(bars.until(20081231).adjusted())),
            target=Target(),
            normaliser=WindowNormaliser(),
            calendar=SessionCalendar.from_exchange(CALENDAR, 20000103, 20180301),
            encoder_length=60,
        )
        return cls(bars, pipeline)

    def save(self, folder: Path, *, hidden: int, layers: int, seed: int, note: str = "") -> None:
        """Write one artifact: an LSTM with its own dropout, in which the seed chose the weights."""
        made = self._artifact(LSTMConfig(hidden=hidden, layers=layers), seed, note)
        identity = Identity(name=folder.parent.name, version=1, weights_hash="0" * 64)
        model = Model.assemble(identity, made, device=torch.device("cpu"), max_rows=256)
        artifact.save(folder, made, golden.record(model))

    def _artifact(self, config: LSTMConfig, seed: int, note: str) -> Artifact:
        horizons = len(self.pipeline.target.horizons)
        manifest = Manifest(
            kind=kind_named("lstm"),
            config=config,
            target=self.pipeline.target,
            quantiles=QUANTILES,
            normaliser=self.pipeline.normaliser,
            encoder_length=self.pipeline.encoder_length,
            conformal=Conformal(offsets=((0.0,) * len(QUANTILES),) * horizons, effective_samples=(100.0,) * horizons),
            baseline=BaselineSpec(
                name="train_mean",
                known=(0.0,) * self.pipeline.sizes.known,
                location=(0.0,) * horizons,
                scale=(0.02,) * horizons,
            ),
            universe=(),
            card={"note": note},
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            weights = self._network(manifest.kind, config).state_dict()
        return Artifact(manifest=manifest, pipeline=self.pipeline, weights=weights)

    def _network(self, kind: NetworkKind, config: NetworkConfig) -> nn.Module:
        sizes, target = replace(self.pipeline.sizes, nodes=len(STOCKS)), self.pipeline.target
        return build_network(kind, config, sizes=sizes, target=target, levels=QUANTILES)

    def instances(self) -> dict[str, pb.Instance]:
        """What can be asked: the bars of both stocks, those of one, and a window of one."""
        latest = self.bars.last(self.pipeline.bars_needed)
        one = real_bars(STOCKS[:1]).last(self.pipeline.bars_needed)
        asked = {
            "bars": Instance(input=latest),
            "one": Instance(input=one),
            "window": Instance(input=self._window(one)),
        }
        return {name: instances.encode(instance) for name, instance in asked.items()}

    def _window(self, bars: BarPanel) -> FeatureWindow:
        inputs = self.pipeline.latest_window(self.pipeline.encode_latest(bars))
        return FeatureWindow(
            symbols=bars.symbols,
            observed=inputs.observed.numpy(),
            known=inputs.known.numpy(),
            static=inputs.static.numpy(),
            mask=inputs.mask.numpy(),
            location=inputs.location[:, 0].numpy(),  # the normaliser's levels are the same for every horizon
            scale=inputs.scale[:, 0].numpy(),
            schema_hash=self.pipeline.features.schema_hash,
            anchor_price=bars.close[:, -1],
            as_of_session=int(bars.sessions[-1]),
        )

    def networks(self) -> str:
        """The LSTM's dropout, and which shipped kinds have statistics that a pass in training mode would move."""
        moving = [name for name, kind in KINDS.items() if has_statistics(self._network(kind, kind.config()))]
        return (
            f"the model is an LSTM with dropout {LSTMConfig().dropout:g}; BatchNorm, or another buffer that training "
            f"moves, is in {', '.join(moving) or 'none'} of the kinds {', '.join(KINDS)}"
        )


def has_statistics(network: nn.Module) -> bool:
    """Whether any buffer is of a batch norm's kind; others (places, edges) stay what the artifact says."""
    return any(name.rpartition(".")[2] in STATISTICS for name, _ in network.named_buffers())
