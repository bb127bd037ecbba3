"""Chronos models (Ansari et al. 2024, 2025) with adopted weights, run by classes of the package chronos-forecasting.

A model reads the logarithms of a window's closes relative to the last one, and forecasts quantiles of the same series
on the following sessions, which are those of the log returns. It normalises each window itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import ceil, inf
from typing import Final

import torch
from torch import Tensor, nn

from predictor.errors import ConfigurationError, MissingPackageError, format_names
from predictor.flags import parse_numbers
from predictor.networks.inputs import Inputs, InputSizes
from predictor.networks.layers import check_whole
from predictor.networks.network_kind import AdoptedForecaster, NetworkKind
from predictor.networks.target import Target

CHRONOS_ARITHMETIC: Final[Mapping[str, str | float]] = {
    "input": "the observed feature minus its value on the last session; unknown cells are NaN",
    "output": "(quantile - location) / (scale * spread of the target), after sorting all quantiles of the model",
}
"""Conventions that another implementation needs besides the settings and the classes of the package."""

MAX_LAYERS: Final = 100
MAX_WIDTH: Final = 2**15
MAX_SESSIONS: Final = 2**16
_MIN_BUCKETS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChronosConfig:
    """Sizes of every Chronos model, named as in its config.json."""

    d_model: int = 256
    d_kv: int = 64
    d_ff: int = 1024
    num_layers: int = 4
    num_heads: int = 4
    layer_norm_epsilon: float = 1e-6
    context_length: int = 2048
    input_patch_size: int = 16
    input_patch_stride: int = 16
    use_reg_token: bool = False
    quantiles: str = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9"
    """Comma-separated levels that the model was trained for."""

    def __post_init__(self) -> None:
        for name in ("d_model", "d_kv", "d_ff", "num_heads"):
            check_whole(name, getattr(self, name), MAX_WIDTH)
        check_whole("num_layers", self.num_layers, MAX_LAYERS)
        for name in ("context_length", "input_patch_size", "input_patch_stride"):
            check_whole(name, getattr(self, name), MAX_SESSIONS)
        if not 0 < self.layer_norm_epsilon < 1:
            raise ConfigurationError(f"layer_norm_epsilon is {self.layer_norm_epsilon:g}, but must be between 0 and 1")
        levels = self.levels
        if not all(0 < level < 1 for level in levels) or any(a >= b for a, b in pairwise(levels)):
            raise ConfigurationError(
                f"quantiles are {format_names(self.quantiles.split(','))}, but must rise between 0 and 1"
            )

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels that the model was trained for."""
        return parse_numbers("quantiles", self.quantiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChronosBoltConfig(ChronosConfig):
    """Sizes of a Chronos-Bolt model."""

    num_decoder_layers: int = 4
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    prediction_length: int = 64

    def __post_init__(self) -> None:
        super(ChronosBoltConfig, self).__post_init__()
        check_whole("num_decoder_layers", self.num_decoder_layers, MAX_LAYERS)
        buckets, farthest = self.relative_attention_num_buckets, self.relative_attention_max_distance
        check_whole("relative_attention_num_buckets", buckets, MAX_WIDTH)
        check_whole("relative_attention_max_distance", farthest, MAX_SESSIONS)
        # Half of the buckets are for one distance each, and the others are spaced by logarithms up to the farthest.
        if buckets < _MIN_BUCKETS or farthest <= buckets // 2:
            raise ConfigurationError(
                f"relative_attention_num_buckets is {buckets} and relative_attention_max_distance is {farthest}, but "
                f"there must be at least {_MIN_BUCKETS} buckets, and the distance must be more than half of them"
            )
        check_whole("prediction_length", self.prediction_length, MAX_SESSIONS)

    @property
    def reach(self) -> int:
        """Sessions that the model can forecast."""
        return self.prediction_length

    def options(self, longest: int) -> Mapping[str, int]:  # noqa: ARG002 - it always forecasts all sessions
        """Arguments of the model's forward pass, besides the series, for `longest` sessions."""
        return {}

    def build_model(self) -> nn.Module:
        """The package's model, with random weights."""
        require_chronos()
        from chronos.chronos_bolt import ChronosBoltModelForForecasting
        from transformers import T5Config

        return ChronosBoltModelForForecasting(
            T5Config(
                d_model=self.d_model,
                d_kv=self.d_kv,
                d_ff=self.d_ff,
                num_layers=self.num_layers,
                num_decoder_layers=self.num_decoder_layers,
                num_heads=self.num_heads,
                relative_attention_num_buckets=self.relative_attention_num_buckets,
                relative_attention_max_distance=self.relative_attention_max_distance,
                layer_norm_epsilon=self.layer_norm_epsilon,
                feed_forward_proj="relu",
                dropout_rate=0.0,
                is_encoder_decoder=True,
                pad_token_id=0,
                eos_token_id=1,
                decoder_start_token_id=0,  # pyright: ignore[reportCallIssue] - kept as an attribute, as the next
                chronos_config={  # pyright: ignore[reportCallIssue]
                    "context_length": self.context_length,
                    "prediction_length": self.prediction_length,
                    "input_patch_size": self.input_patch_size,
                    "input_patch_stride": self.input_patch_stride,
                    "quantiles": list(self.levels),
                    "use_reg_token": self.use_reg_token,
                },
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chronos2Config(ChronosConfig):
    """Sizes of a Chronos-2 model."""

    rope_theta: float = 10_000.0
    max_output_patches: int = 64
    time_encoding_scale: int = 8192
    use_arcsinh: bool = True

    def __post_init__(self) -> None:
        super(Chronos2Config, self).__post_init__()
        if not 1 <= self.rope_theta < inf:
            raise ConfigurationError(f"rope_theta is {self.rope_theta:g}, but must be finite and at least 1")
        for name in ("max_output_patches", "time_encoding_scale"):
            check_whole(name, getattr(self, name), MAX_SESSIONS)

    @property
    def reach(self) -> int:
        """Sessions that the model can forecast."""
        return self.max_output_patches * self.input_patch_size

    def options(self, longest: int) -> Mapping[str, int]:
        """Arguments of the model's forward pass, besides the series, for `longest` sessions."""
        return {"num_output_patches": ceil(longest / self.input_patch_size)}

    def build_model(self) -> nn.Module:
        """The package's model, with random weights. Without ids of groups, its rows do not attend to each other."""
        require_chronos()
        from chronos.chronos2.config import Chronos2CoreConfig
        from chronos.chronos2.model import Chronos2Model

        return Chronos2Model(
            Chronos2CoreConfig(
                d_model=self.d_model,
                d_kv=self.d_kv,
                d_ff=self.d_ff,
                num_layers=self.num_layers,
                num_heads=self.num_heads,
                layer_norm_epsilon=self.layer_norm_epsilon,
                rope_theta=self.rope_theta,
                feed_forward_proj="relu",
                dropout_rate=0.0,
                chronos_config={
                    "context_length": self.context_length,
                    "input_patch_size": self.input_patch_size,
                    "input_patch_stride": self.input_patch_stride,
                    "output_patch_size": self.input_patch_size,
                    "max_output_patches": self.max_output_patches,
                    "time_encoding_scale": self.time_encoding_scale,
                    "use_arcsinh": self.use_arcsinh,
                    "quantiles": list(self.levels),
                    "use_reg_token": self.use_reg_token,
                },
            )
        )


def require_chronos() -> None:
    """Raise MissingPackageError, naming the extra, unless chronos-forecasting is installed."""
    if find_spec("chronos") is None:
        raise MissingPackageError.of("chronos-forecasting", "adopt", "a Chronos model")


class ChronosForecaster(AdoptedForecaster):
    """A Chronos model over log closes. Its quantiles are sorted, because those of the model may cross.

    Raises:
        MissingPackageError: chronos-forecasting is not installed.
        ConfigurationError: the model cannot forecast the target or its quantiles, or reads fewer sessions.
    """

    def __init__(
        self,
        config: ChronosBoltConfig | Chronos2Config,
        *,
        sizes: InputSizes,
        target: Target,
        levels: tuple[float, ...],
    ) -> None:
        super().__init__(target, sizes, longest=config.context_length, reach=config.reach)
        if unknown := [level for level in levels if level not in config.levels]:
            raise ConfigurationError(
                f"quantiles {', '.join(map(str, unknown))} are not among those that the model was trained for: "
                f"{config.quantiles}"
            )
        self.model = config.build_model()
        self.options: Final = config.options(target.horizons[-1])
        self.columns: Final = [config.levels.index(level) for level in levels]

    def quantiles(self, inputs: Inputs) -> Tensor:
        """Rising quantiles [N, H, Q] float64 of the log returns."""
        closes, known = inputs.observed[..., 0], inputs.mask[..., 0]
        path = torch.where(known, closes - closes[:, -1:], torch.nan)
        predicted: Tensor = self.model(context=path, **self.options).quantile_preds
        rising = predicted[..., self.days].sort(dim=1).values
        return rising[:, self.columns].transpose(1, 2).double()


CHRONOS_BOLT: Final = NetworkKind(
    "chronos-bolt", 1, ChronosBoltConfig, ChronosForecaster, CHRONOS_ARITHMETIC, is_trainable=False, is_adopted=True
)
CHRONOS_2: Final = NetworkKind(
    "chronos-2", 1, Chronos2Config, ChronosForecaster, CHRONOS_ARITHMETIC, is_trainable=False, is_adopted=True
)
