"""Conversion of model descriptions and request limits."""

from collections.abc import Iterable, Mapping
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.catalog import CovariateGroup, CovariateInfo, FeatureInfo, ModelInfo
from predictor.errors import MalformedRequestError
from predictor.wire import attributions
from predictor.wire.limits import RequestLimits

_GROUP_NUMBERS: Final[Mapping[CovariateGroup, pb.CovariateGroup]] = {
    CovariateGroup.OBSERVED: pb.COVARIATE_GROUP_OBSERVED,
    CovariateGroup.KNOWN: pb.COVARIATE_GROUP_KNOWN,
    CovariateGroup.STATIC: pb.COVARIATE_GROUP_STATIC,
}
_GROUPS: Final[Mapping[int, CovariateGroup]] = {number: group for group, number in _GROUP_NUMBERS.items()}


def encode(info: ModelInfo) -> pb.ModelInfo:
    """Encode the description of a model version."""
    return pb.ModelInfo(
        name=info.name,
        version=info.version,
        aliases=info.aliases,
        is_default=info.is_default,
        kind=info.kind,
        observed_features=map(_encode_feature, info.observed_features),
        known_features=map(_encode_feature, info.known_features),
        static_features=map(_encode_feature, info.static_features),
        covariates=[
            pb.CovariateInfo(name=item.name, group=_GROUP_NUMBERS[item.group], categories=item.categories)
            for item in info.covariates
        ],
        schema_hash=info.schema_hash,
        encoder_length=info.encoder_length,
        lookback=info.lookback,
        bars_needed=info.bars_needed,
        future_length=info.future_length,
        horizons=info.horizons,
        is_scaled_per_horizon=info.is_scaled_per_horizon,
        quantiles=info.quantiles,
        lag=info.lag,
        target_kind=info.target_kind,
        calendar=info.calendar,
        calendar_ends=info.calendar_ends,
        is_panel_model=info.is_panel_model,
        explain_methods=map(attributions.encode_method, info.explain_methods),
        weights_hash=info.weights_hash,
        card_json=info.card_json,
    )


def decode(message: pb.ModelInfo) -> ModelInfo:
    """Decode the description of a model version.

    Raises:
        ExplainUnsupportedError: an explanation method is unknown.
        MalformedRequestError: the group of a covariate is unknown.
    """
    return ModelInfo(
        name=message.name,
        version=message.version,
        aliases=tuple(message.aliases),
        is_default=message.is_default,
        kind=message.kind,
        observed_features=_decode_features(message.observed_features),
        known_features=_decode_features(message.known_features),
        static_features=_decode_features(message.static_features),
        covariates=tuple(map(_decode_covariate, message.covariates)),
        schema_hash=message.schema_hash,
        encoder_length=message.encoder_length,
        lookback=message.lookback,
        bars_needed=message.bars_needed,
        future_length=message.future_length,
        horizons=tuple(message.horizons),
        is_scaled_per_horizon=message.is_scaled_per_horizon,
        quantiles=tuple(message.quantiles),
        lag=message.lag,
        target_kind=message.target_kind,
        calendar=message.calendar,
        calendar_ends=message.calendar_ends,
        is_panel_model=message.is_panel_model,
        explain_methods=tuple(map(attributions.decode_method, message.explain_methods)),
        weights_hash=message.weights_hash,
        card_json=message.card_json,
    )


def encode_limits(limits: RequestLimits) -> pb.RequestLimits:
    """Encode the limits of a request."""
    return pb.RequestLimits(
        bytes=limits.size,
        instances=limits.instances,
        rows=limits.rows,
        symbols=limits.symbols,
        cells=limits.cells,
    )


def decode_limits(message: pb.RequestLimits) -> RequestLimits:
    """Decode the limits of a request; unset fields get their defaults."""
    usual = RequestLimits()
    return RequestLimits(
        size=message.bytes if message.bytes > 0 else usual.size,
        instances=message.instances if message.instances > 0 else usual.instances,
        rows=message.rows if message.rows > 0 else usual.rows,
        symbols=message.symbols if message.symbols > 0 else usual.symbols,
        cells=message.cells if message.cells > 0 else usual.cells,
    )


def _encode_feature(info: FeatureInfo) -> pb.FeatureInfo:
    return pb.FeatureInfo(name=info.name, expression=info.expression, meaning=info.meaning, unit=info.unit)


def _decode_features(messages: Iterable[pb.FeatureInfo]) -> tuple[FeatureInfo, ...]:
    return tuple(
        FeatureInfo(name=message.name, expression=message.expression, meaning=message.meaning, unit=message.unit)
        for message in messages
    )


def _decode_covariate(message: pb.CovariateInfo) -> CovariateInfo:
    if message.group not in _GROUPS:
        raise MalformedRequestError(
            f"covariates: group {message.group} is unknown; the server is newer than this client"
        )
    return CovariateInfo(name=message.name, group=_GROUPS[message.group], categories=tuple(message.categories))
