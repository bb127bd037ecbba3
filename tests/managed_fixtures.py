"""Fixtures for the C# package that computes forecasts without Python: networks with inputs and expected outputs.

Run `python tests/managed_fixtures.py` after a change of a network or an operator; a test compares the committed files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from predictor import canonical
from predictor.artifact.artifact import write_tensors
from predictor.networks import (
    GRUConfig,
    Inputs,
    InputSizes,
    LSTMConfig,
    NetworkConfig,
    Target,
    UnconditionalConfig,
    build_network,
    kind_named,
    settings_from_config,
)

FOLDER: Final = Path(__file__).resolve().parents[1] / "dotnet" / "Quantra.Client.Managed.Tests" / "Fixtures"
ROWS: Final = 5
LEVELS: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
TARGET: Final = Target(lag=1, horizons=(1, 3, 6))
SIZES: Final = InputSizes(
    encoder_length=23, future_length=TARGET.reach, observed=5, known=3, static=5, static_widths=(2, 3)
)
PLAIN_SIZES: Final = replace(SIZES, known=0, static=0, static_widths=())


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCase:
    """A network whose outputs are recorded."""

    kind: str
    config: NetworkConfig
    sizes: InputSizes = SIZES


NETWORKS: Final[Mapping[str, NetworkCase]] = {
    "lstm": NetworkCase(kind="lstm", config=LSTMConfig(hidden=20, layers=2)),
    "lstm-plain": NetworkCase(kind="lstm", config=LSTMConfig(hidden=33, layers=1), sizes=PLAIN_SIZES),
    "gru": NetworkCase(kind="gru", config=GRUConfig(hidden=16, layers=2)),
    "gru-plain": NetworkCase(kind="gru", config=GRUConfig(hidden=7, layers=1), sizes=PLAIN_SIZES),
    "har": NetworkCase(kind="har", config=UnconditionalConfig()),
}
"""Widths below, at and above multiples of a vector's length, with and without known and static features."""


def random_inputs(sizes: InputSizes, generator: torch.Generator) -> Inputs:
    """Windows with some unknown cells."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    mask = torch.rand((ROWS, sizes.encoder_length, sizes.observed), generator=generator) < 0.9
    levels = (ROWS, len(TARGET.horizons))
    return Inputs(
        observed=normal(*mask.shape) * mask,
        known=normal(ROWS, sizes.encoder_length + sizes.future_length, sizes.known),
        static=normal(ROWS, sizes.static),
        mask=mask,
        location=normal(*levels).double() / 100,
        scale=normal(*levels).double().exp() / 100,
    )


def write_network(name: str, case: NetworkCase) -> dict[str, bytes]:
    """Files of one case: its settings, and its weights, inputs and outputs in float32 and float64."""
    kind, target = kind_named(case.kind), TARGET
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        network = build_network(kind, case.config, sizes=case.sizes, target=target, levels=LEVELS).eval()
        for parameter in network.parameters():
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    inputs = random_inputs(case.sizes, torch.Generator().manual_seed(8))
    wide = Inputs(*(group if group.dtype == torch.bool else group.double() for group in inputs))
    with torch.inference_mode():
        units, exact = network(inputs), network.double()(wide)
        network.float()
    weights = {f"weights.{key}": tensor for key, tensor in network.state_dict().items()}
    arrays = {f"inputs.{key}": tensor for key, tensor in inputs._asdict().items()}
    return {
        f"networks/{name}.json": canonical.to_bytes(
            {
                "network": {
                    "kind": kind.name,
                    "kind_version": kind.version,
                    "config": settings_from_config(case.config),
                    "arithmetic": dict(kind.arithmetic),
                },
                "target": {"kind": target.kind.value, "lag": target.lag, "horizons": list(target.horizons)},
                "quantiles": list(LEVELS),
                "sizes": {
                    "encoder_length": case.sizes.encoder_length,
                    "future_length": case.sizes.future_length,
                    "observed": case.sizes.observed,
                    "known": case.sizes.known,
                    "static": case.sizes.static,
                    "static_widths": list(case.sizes.static_widths),
                },
            }
        ),
        f"networks/{name}.safetensors": write_tensors(
            {**weights, **arrays, "units": units, "units_float64": exact.double()}
        ),
    }


def write_all() -> dict[str, bytes]:
    """All files by their path in `FOLDER`."""
    return {path: data for name, case in NETWORKS.items() for path, data in write_network(name, case).items()}


if __name__ == "__main__":
    for path, data in write_all().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_bytes(data)
