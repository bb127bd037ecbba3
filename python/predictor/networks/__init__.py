"""Networks and what stands around them: inputs, target, normaliser, quantile head, and the kinds there are."""

from predictor.networks.econometric import FittedLevel, FittedNormaliser, FittedScale, Garch, Har
from predictor.networks.graph import GraphConfig, GraphForecaster
from predictor.networks.inputs import Edges, Inputs, InputSizes
from predictor.networks.kind import (
    Forecasting,
    Internals,
    Introspective,
    NetworkConfig,
    NetworkKind,
    PanelConfig,
    PanelForecasting,
    Setting,
    TrainingDefaults,
    build_network,
    configured,
    read_config,
    write_config,
)
from predictor.networks.kinds import KINDS, NORMALISERS, kind_named, read_normaliser, write_normaliser
from predictor.networks.layers import Highway
from predictor.networks.normaliser import DailySeries, Levels, Normaliser, NormaliserKind, WindowNormaliser
from predictor.networks.output import (
    OutputMap,
    PanelOutput,
    QuantileHead,
    anchor_index,
    check_quantiles,
    normalise,
    pinball_loss,
    restore,
    uncrossed,
)
from predictor.networks.recurrent import (
    GRUConfig,
    GRUForecaster,
    HybridConfig,
    HybridForecaster,
    LSTMConfig,
    LSTMForecaster,
)
from predictor.networks.target import Target, TargetKind
from predictor.networks.tft import TFTConfig, TFTForecaster
from predictor.networks.unconditional import UnconditionalConfig, UnconditionalForecaster

__all__ = [
    "KINDS",
    "NORMALISERS",
    "DailySeries",
    "Edges",
    "FittedLevel",
    "FittedNormaliser",
    "FittedScale",
    "Forecasting",
    "GRUConfig",
    "GRUForecaster",
    "Garch",
    "GraphConfig",
    "GraphForecaster",
    "Har",
    "Highway",
    "HybridConfig",
    "HybridForecaster",
    "InputSizes",
    "Inputs",
    "Internals",
    "Introspective",
    "LSTMConfig",
    "LSTMForecaster",
    "Levels",
    "NetworkConfig",
    "NetworkKind",
    "Normaliser",
    "NormaliserKind",
    "OutputMap",
    "PanelConfig",
    "PanelForecasting",
    "PanelOutput",
    "QuantileHead",
    "Setting",
    "TFTConfig",
    "TFTForecaster",
    "Target",
    "TargetKind",
    "TrainingDefaults",
    "UnconditionalConfig",
    "UnconditionalForecaster",
    "WindowNormaliser",
    "anchor_index",
    "build_network",
    "check_quantiles",
    "configured",
    "kind_named",
    "normalise",
    "pinball_loss",
    "read_config",
    "read_normaliser",
    "restore",
    "uncrossed",
    "write_config",
    "write_normaliser",
]
