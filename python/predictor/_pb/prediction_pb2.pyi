from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CovariateGroup(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COVARIATE_GROUP_UNSPECIFIED: _ClassVar[CovariateGroup]
    COVARIATE_GROUP_OBSERVED: _ClassVar[CovariateGroup]
    COVARIATE_GROUP_KNOWN: _ClassVar[CovariateGroup]
    COVARIATE_GROUP_STATIC: _ClassVar[CovariateGroup]

class BarInterval(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BAR_INTERVAL_UNSPECIFIED: _ClassVar[BarInterval]
    BAR_INTERVAL_DAY: _ClassVar[BarInterval]

class GapPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAP_POLICY_UNSPECIFIED: _ClassVar[GapPolicy]
    GAP_POLICY_REFUSE: _ClassVar[GapPolicy]
    GAP_POLICY_MASK: _ClassVar[GapPolicy]
    GAP_POLICY_IGNORE: _ClassVar[GapPolicy]

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNSPECIFIED: _ClassVar[DataType]
    DATA_TYPE_FLOAT32: _ClassVar[DataType]
    DATA_TYPE_FLOAT64: _ClassVar[DataType]
    DATA_TYPE_BOOL: _ClassVar[DataType]

class SkillVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SKILL_VERDICT_UNSPECIFIED: _ClassVar[SkillVerdict]
    SKILL_VERDICT_BETTER: _ClassVar[SkillVerdict]
    SKILL_VERDICT_UNDECIDED: _ClassVar[SkillVerdict]
    SKILL_VERDICT_WORSE: _ClassVar[SkillVerdict]

class ExplainMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPLAIN_METHOD_UNSPECIFIED: _ClassVar[ExplainMethod]
    EXPLAIN_METHOD_INTEGRATED_GRADIENTS: _ClassVar[ExplainMethod]
    EXPLAIN_METHOD_TREE_SHAP: _ClassVar[ExplainMethod]
    EXPLAIN_METHOD_OCCLUSION: _ClassVar[ExplainMethod]
    EXPLAIN_METHOD_SHAPLEY: _ClassVar[ExplainMethod]

class ExplainDetail(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPLAIN_DETAIL_UNSPECIFIED: _ClassVar[ExplainDetail]
    EXPLAIN_DETAIL_FEATURES: _ClassVar[ExplainDetail]
    EXPLAIN_DETAIL_TIMES: _ClassVar[ExplainDetail]
    EXPLAIN_DETAIL_CELLS: _ClassVar[ExplainDetail]

class RowKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_KIND_UNSPECIFIED: _ClassVar[RowKind]
    ROW_KIND_OBSERVED: _ClassVar[RowKind]
    ROW_KIND_KNOWN: _ClassVar[RowKind]
    ROW_KIND_STATIC: _ClassVar[RowKind]
    ROW_KIND_LOCATION: _ClassVar[RowKind]
    ROW_KIND_SCALE: _ClassVar[RowKind]
    ROW_KIND_CONFORMAL: _ClassVar[RowKind]
    ROW_KIND_NEIGHBOURS: _ClassVar[RowKind]

class InternalAxis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INTERNAL_AXIS_UNSPECIFIED: _ClassVar[InternalAxis]
    INTERNAL_AXIS_INPUTS: _ClassVar[InternalAxis]
    INTERNAL_AXIS_SESSIONS: _ClassVar[InternalAxis]
COVARIATE_GROUP_UNSPECIFIED: CovariateGroup
COVARIATE_GROUP_OBSERVED: CovariateGroup
COVARIATE_GROUP_KNOWN: CovariateGroup
COVARIATE_GROUP_STATIC: CovariateGroup
BAR_INTERVAL_UNSPECIFIED: BarInterval
BAR_INTERVAL_DAY: BarInterval
GAP_POLICY_UNSPECIFIED: GapPolicy
GAP_POLICY_REFUSE: GapPolicy
GAP_POLICY_MASK: GapPolicy
GAP_POLICY_IGNORE: GapPolicy
DATA_TYPE_UNSPECIFIED: DataType
DATA_TYPE_FLOAT32: DataType
DATA_TYPE_FLOAT64: DataType
DATA_TYPE_BOOL: DataType
SKILL_VERDICT_UNSPECIFIED: SkillVerdict
SKILL_VERDICT_BETTER: SkillVerdict
SKILL_VERDICT_UNDECIDED: SkillVerdict
SKILL_VERDICT_WORSE: SkillVerdict
EXPLAIN_METHOD_UNSPECIFIED: ExplainMethod
EXPLAIN_METHOD_INTEGRATED_GRADIENTS: ExplainMethod
EXPLAIN_METHOD_TREE_SHAP: ExplainMethod
EXPLAIN_METHOD_OCCLUSION: ExplainMethod
EXPLAIN_METHOD_SHAPLEY: ExplainMethod
EXPLAIN_DETAIL_UNSPECIFIED: ExplainDetail
EXPLAIN_DETAIL_FEATURES: ExplainDetail
EXPLAIN_DETAIL_TIMES: ExplainDetail
EXPLAIN_DETAIL_CELLS: ExplainDetail
ROW_KIND_UNSPECIFIED: RowKind
ROW_KIND_OBSERVED: RowKind
ROW_KIND_KNOWN: RowKind
ROW_KIND_STATIC: RowKind
ROW_KIND_LOCATION: RowKind
ROW_KIND_SCALE: RowKind
ROW_KIND_CONFORMAL: RowKind
ROW_KIND_NEIGHBOURS: RowKind
INTERNAL_AXIS_UNSPECIFIED: InternalAxis
INTERNAL_AXIS_INPUTS: InternalAxis
INTERNAL_AXIS_SESSIONS: InternalAxis

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model", "limits")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    model: ModelInfo
    limits: RequestLimits
    def __init__(self, model: _Optional[_Union[ModelInfo, _Mapping]] = ..., limits: _Optional[_Union[RequestLimits, _Mapping]] = ...) -> None: ...

class RequestLimits(_message.Message):
    __slots__ = ("bytes", "instances", "rows", "symbols", "cells")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    instances: int
    rows: int
    symbols: int
    cells: int
    def __init__(self, bytes: _Optional[int] = ..., instances: _Optional[int] = ..., rows: _Optional[int] = ..., symbols: _Optional[int] = ..., cells: _Optional[int] = ...) -> None: ...

class FeatureInfo(_message.Message):
    __slots__ = ("name", "expression", "meaning", "unit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    expression: str
    meaning: str
    unit: str
    def __init__(self, name: _Optional[str] = ..., expression: _Optional[str] = ..., meaning: _Optional[str] = ..., unit: _Optional[str] = ...) -> None: ...

class CovariateInfo(_message.Message):
    __slots__ = ("name", "group", "categories")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    group: CovariateGroup
    categories: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., group: _Optional[_Union[CovariateGroup, str]] = ..., categories: _Optional[_Iterable[str]] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("name", "version", "aliases", "is_default", "kind", "observed_features", "known_features", "static_features", "schema_hash", "encoder_length", "lookback", "bars_needed", "future_length", "horizons", "quantiles", "lag", "target_kind", "calendar", "calendar_ends", "is_panel_model", "explain_methods", "weights_hash", "card_json", "covariates", "is_scaled_per_horizon")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FEATURES_FIELD_NUMBER: _ClassVar[int]
    STATIC_FEATURES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_HASH_FIELD_NUMBER: _ClassVar[int]
    ENCODER_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LOOKBACK_FIELD_NUMBER: _ClassVar[int]
    BARS_NEEDED_FIELD_NUMBER: _ClassVar[int]
    FUTURE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HORIZONS_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    TARGET_KIND_FIELD_NUMBER: _ClassVar[int]
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    CALENDAR_ENDS_FIELD_NUMBER: _ClassVar[int]
    IS_PANEL_MODEL_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_METHODS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_HASH_FIELD_NUMBER: _ClassVar[int]
    CARD_JSON_FIELD_NUMBER: _ClassVar[int]
    COVARIATES_FIELD_NUMBER: _ClassVar[int]
    IS_SCALED_PER_HORIZON_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    aliases: _containers.RepeatedScalarFieldContainer[str]
    is_default: bool
    kind: str
    observed_features: _containers.RepeatedCompositeFieldContainer[FeatureInfo]
    known_features: _containers.RepeatedCompositeFieldContainer[FeatureInfo]
    static_features: _containers.RepeatedCompositeFieldContainer[FeatureInfo]
    schema_hash: str
    encoder_length: int
    lookback: int
    bars_needed: int
    future_length: int
    horizons: _containers.RepeatedScalarFieldContainer[int]
    quantiles: _containers.RepeatedScalarFieldContainer[float]
    lag: int
    target_kind: str
    calendar: str
    calendar_ends: int
    is_panel_model: bool
    explain_methods: _containers.RepeatedScalarFieldContainer[ExplainMethod]
    weights_hash: str
    card_json: str
    covariates: _containers.RepeatedCompositeFieldContainer[CovariateInfo]
    is_scaled_per_horizon: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., aliases: _Optional[_Iterable[str]] = ..., is_default: bool = ..., kind: _Optional[str] = ..., observed_features: _Optional[_Iterable[_Union[FeatureInfo, _Mapping]]] = ..., known_features: _Optional[_Iterable[_Union[FeatureInfo, _Mapping]]] = ..., static_features: _Optional[_Iterable[_Union[FeatureInfo, _Mapping]]] = ..., schema_hash: _Optional[str] = ..., encoder_length: _Optional[int] = ..., lookback: _Optional[int] = ..., bars_needed: _Optional[int] = ..., future_length: _Optional[int] = ..., horizons: _Optional[_Iterable[int]] = ..., quantiles: _Optional[_Iterable[float]] = ..., lag: _Optional[int] = ..., target_kind: _Optional[str] = ..., calendar: _Optional[str] = ..., calendar_ends: _Optional[int] = ..., is_panel_model: bool = ..., explain_methods: _Optional[_Iterable[_Union[ExplainMethod, str]]] = ..., weights_hash: _Optional[str] = ..., card_json: _Optional[str] = ..., covariates: _Optional[_Iterable[_Union[CovariateInfo, _Mapping]]] = ..., is_scaled_per_horizon: bool = ...) -> None: ...

class BarPanel(_message.Message):
    __slots__ = ("symbols", "session_yyyymmdd", "open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend", "calendar", "currency", "interval", "allow_incomplete_last_bar", "gap_policy", "accept_suspect_bars")
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    SESSION_YYYYMMDD_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    ADJ_CLOSE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_RATIO_FIELD_NUMBER: _ClassVar[int]
    CASH_DIVIDEND_FIELD_NUMBER: _ClassVar[int]
    CALENDAR_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_INCOMPLETE_LAST_BAR_FIELD_NUMBER: _ClassVar[int]
    GAP_POLICY_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_SUSPECT_BARS_FIELD_NUMBER: _ClassVar[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    session_yyyymmdd: _containers.RepeatedScalarFieldContainer[int]
    open: bytes
    high: bytes
    low: bytes
    close: bytes
    volume: bytes
    adj_close: bytes
    split_ratio: bytes
    cash_dividend: bytes
    calendar: str
    currency: str
    interval: BarInterval
    allow_incomplete_last_bar: bool
    gap_policy: GapPolicy
    accept_suspect_bars: bool
    def __init__(self, symbols: _Optional[_Iterable[str]] = ..., session_yyyymmdd: _Optional[_Iterable[int]] = ..., open: _Optional[bytes] = ..., high: _Optional[bytes] = ..., low: _Optional[bytes] = ..., close: _Optional[bytes] = ..., volume: _Optional[bytes] = ..., adj_close: _Optional[bytes] = ..., split_ratio: _Optional[bytes] = ..., cash_dividend: _Optional[bytes] = ..., calendar: _Optional[str] = ..., currency: _Optional[str] = ..., interval: _Optional[_Union[BarInterval, str]] = ..., allow_incomplete_last_bar: bool = ..., gap_policy: _Optional[_Union[GapPolicy, str]] = ..., accept_suspect_bars: bool = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("type", "shape", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, type: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class FeatureWindow(_message.Message):
    __slots__ = ("symbols", "observed", "known", "static", "mask", "location", "scale", "schema_hash", "anchor_price", "as_of_session", "features")
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    STATIC_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_HASH_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_PRICE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SESSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    observed: Tensor
    known: Tensor
    static: Tensor
    mask: Tensor
    location: Tensor
    scale: Tensor
    schema_hash: str
    anchor_price: _containers.RepeatedScalarFieldContainer[float]
    as_of_session: int
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, symbols: _Optional[_Iterable[str]] = ..., observed: _Optional[_Union[Tensor, _Mapping]] = ..., known: _Optional[_Union[Tensor, _Mapping]] = ..., static: _Optional[_Union[Tensor, _Mapping]] = ..., mask: _Optional[_Union[Tensor, _Mapping]] = ..., location: _Optional[_Union[Tensor, _Mapping]] = ..., scale: _Optional[_Union[Tensor, _Mapping]] = ..., schema_hash: _Optional[str] = ..., anchor_price: _Optional[_Iterable[float]] = ..., as_of_session: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class CovariateValues(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: bytes
    def __init__(self, name: _Optional[str] = ..., values: _Optional[bytes] = ...) -> None: ...

class CovariateTexts(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class Covariates(_message.Message):
    __slots__ = ("observed", "known", "future_yyyymmdd", "numbers", "categories")
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    FUTURE_YYYYMMDD_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    observed: _containers.RepeatedCompositeFieldContainer[CovariateValues]
    known: _containers.RepeatedCompositeFieldContainer[CovariateValues]
    future_yyyymmdd: _containers.RepeatedScalarFieldContainer[int]
    numbers: _containers.RepeatedCompositeFieldContainer[CovariateValues]
    categories: _containers.RepeatedCompositeFieldContainer[CovariateTexts]
    def __init__(self, observed: _Optional[_Iterable[_Union[CovariateValues, _Mapping]]] = ..., known: _Optional[_Iterable[_Union[CovariateValues, _Mapping]]] = ..., future_yyyymmdd: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[_Union[CovariateValues, _Mapping]]] = ..., categories: _Optional[_Iterable[_Union[CovariateTexts, _Mapping]]] = ...) -> None: ...

class Instance(_message.Message):
    __slots__ = ("request_id", "bars", "window", "covariates", "max_age_sessions")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BARS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    COVARIATES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    bars: BarPanel
    window: FeatureWindow
    covariates: Covariates
    max_age_sessions: int
    def __init__(self, request_id: _Optional[str] = ..., bars: _Optional[_Union[BarPanel, _Mapping]] = ..., window: _Optional[_Union[FeatureWindow, _Mapping]] = ..., covariates: _Optional[_Union[Covariates, _Mapping]] = ..., max_age_sessions: _Optional[int] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("model", "instances")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    model: str
    instances: _containers.RepeatedCompositeFieldContainer[Instance]
    def __init__(self, model: _Optional[str] = ..., instances: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...

class PredictStreamRequest(_message.Message):
    __slots__ = ("request_id", "timeout_s", "predict", "open", "push", "close", "cancel")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    PREDICT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    timeout_s: float
    predict: StreamPredict
    open: OpenSession
    push: PushBars
    close: CloseSession
    cancel: CancelRequest
    def __init__(self, request_id: _Optional[str] = ..., timeout_s: _Optional[float] = ..., predict: _Optional[_Union[StreamPredict, _Mapping]] = ..., open: _Optional[_Union[OpenSession, _Mapping]] = ..., push: _Optional[_Union[PushBars, _Mapping]] = ..., close: _Optional[_Union[CloseSession, _Mapping]] = ..., cancel: _Optional[_Union[CancelRequest, _Mapping]] = ...) -> None: ...

class StreamPredict(_message.Message):
    __slots__ = ("model", "instance")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    instance: Instance
    def __init__(self, model: _Optional[str] = ..., instance: _Optional[_Union[Instance, _Mapping]] = ...) -> None: ...

class OpenSession(_message.Message):
    __slots__ = ("session_id", "model", "instance")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    model: str
    instance: Instance
    def __init__(self, session_id: _Optional[str] = ..., model: _Optional[str] = ..., instance: _Optional[_Union[Instance, _Mapping]] = ...) -> None: ...

class PushBars(_message.Message):
    __slots__ = ("session_id", "bars", "covariates", "flush")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    BARS_FIELD_NUMBER: _ClassVar[int]
    COVARIATES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    bars: BarPanel
    covariates: Covariates
    flush: bool
    def __init__(self, session_id: _Optional[str] = ..., bars: _Optional[_Union[BarPanel, _Mapping]] = ..., covariates: _Optional[_Union[Covariates, _Mapping]] = ..., flush: bool = ...) -> None: ...

class CloseSession(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class PredictStreamResponse(_message.Message):
    __slots__ = ("request_id", "session_id", "forecast", "error", "ack")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    session_id: str
    forecast: Forecast
    error: Error
    ack: Ack
    def __init__(self, request_id: _Optional[str] = ..., session_id: _Optional[str] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("waiting_for",)
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, waiting_for: _Optional[_Iterable[str]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("request_id", "forecast", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    forecast: Forecast
    error: Error
    def __init__(self, request_id: _Optional[str] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "reason", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    reason: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Forecast(_message.Message):
    __slots__ = ("symbols", "as_of_session", "target_sessions", "lag", "horizons", "quantiles", "target_kind", "values", "returns", "prices", "anchor_price", "model", "version", "weights_hash", "warnings", "forecast_id", "scores", "ranks", "universe_hash", "refusals", "skill", "base_session")
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SESSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    HORIZONS_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    TARGET_KIND_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_PRICE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_HASH_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    FORECAST_ID_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    UNIVERSE_HASH_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    BASE_SESSION_FIELD_NUMBER: _ClassVar[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    as_of_session: int
    target_sessions: _containers.RepeatedScalarFieldContainer[int]
    lag: int
    horizons: _containers.RepeatedScalarFieldContainer[int]
    quantiles: _containers.RepeatedScalarFieldContainer[float]
    target_kind: str
    values: bytes
    returns: bytes
    prices: bytes
    anchor_price: bytes
    model: str
    version: int
    weights_hash: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    forecast_id: str
    scores: bytes
    ranks: _containers.RepeatedScalarFieldContainer[int]
    universe_hash: str
    refusals: _containers.RepeatedCompositeFieldContainer[SymbolError]
    skill: Skill
    base_session: int
    def __init__(self, symbols: _Optional[_Iterable[str]] = ..., as_of_session: _Optional[int] = ..., target_sessions: _Optional[_Iterable[int]] = ..., lag: _Optional[int] = ..., horizons: _Optional[_Iterable[int]] = ..., quantiles: _Optional[_Iterable[float]] = ..., target_kind: _Optional[str] = ..., values: _Optional[bytes] = ..., returns: _Optional[bytes] = ..., prices: _Optional[bytes] = ..., anchor_price: _Optional[bytes] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., weights_hash: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., forecast_id: _Optional[str] = ..., scores: _Optional[bytes] = ..., ranks: _Optional[_Iterable[int]] = ..., universe_hash: _Optional[str] = ..., refusals: _Optional[_Iterable[_Union[SymbolError, _Mapping]]] = ..., skill: _Optional[_Union[Skill, _Mapping]] = ..., base_session: _Optional[int] = ...) -> None: ...

class SymbolError(_message.Message):
    __slots__ = ("symbol", "error")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    error: Error
    def __init__(self, symbol: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Skill(_message.Message):
    __slots__ = ("rival", "improvement", "lower", "upper", "level", "verdict", "sentence", "days_short", "line")
    RIVAL_FIELD_NUMBER: _ClassVar[int]
    IMPROVEMENT_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    DAYS_SHORT_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    rival: str
    improvement: float
    lower: float
    upper: float
    level: float
    verdict: SkillVerdict
    sentence: str
    days_short: int
    line: str
    def __init__(self, rival: _Optional[str] = ..., improvement: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., level: _Optional[float] = ..., verdict: _Optional[_Union[SkillVerdict, str]] = ..., sentence: _Optional[str] = ..., days_short: _Optional[int] = ..., line: _Optional[str] = ...) -> None: ...

class ExplainTarget(_message.Message):
    __slots__ = ("horizon", "quantile")
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    horizon: int
    quantile: float
    def __init__(self, horizon: _Optional[int] = ..., quantile: _Optional[float] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("model", "instance", "targets", "method", "detail", "tolerance", "symbols")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    model: str
    instance: Instance
    targets: _containers.RepeatedCompositeFieldContainer[ExplainTarget]
    method: ExplainMethod
    detail: ExplainDetail
    tolerance: float
    symbols: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., instance: _Optional[_Union[Instance, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[ExplainTarget, _Mapping]]] = ..., method: _Optional[_Union[ExplainMethod, str]] = ..., detail: _Optional[_Union[ExplainDetail, str]] = ..., tolerance: _Optional[float] = ..., symbols: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("request_id", "attributions", "queue_ms", "compute_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attributions: _containers.RepeatedCompositeFieldContainer[Attribution]
    queue_ms: float
    compute_ms: float
    def __init__(self, request_id: _Optional[str] = ..., attributions: _Optional[_Iterable[_Union[Attribution, _Mapping]]] = ..., queue_ms: _Optional[float] = ..., compute_ms: _Optional[float] = ...) -> None: ...

class Internal(_message.Message):
    __slots__ = ("name", "labels", "values", "axis")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    values: bytes
    axis: InternalAxis
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., values: _Optional[bytes] = ..., axis: _Optional[_Union[InternalAxis, str]] = ...) -> None: ...

class Attribution(_message.Message):
    __slots__ = ("symbols", "as_of_session", "horizon", "quantile", "method", "baseline", "unit", "row_names", "row_kinds", "per_row", "sessions", "per_time", "cells", "prediction", "baseline_prediction", "relative_gap", "converged", "nodes", "model", "version", "weights_hash", "warnings", "internals", "skill", "refusals")
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SESSION_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    ROW_NAMES_FIELD_NUMBER: _ClassVar[int]
    ROW_KINDS_FIELD_NUMBER: _ClassVar[int]
    PER_ROW_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    PER_TIME_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    BASELINE_PREDICTION_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_GAP_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_HASH_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    INTERNALS_FIELD_NUMBER: _ClassVar[int]
    SKILL_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    as_of_session: int
    horizon: int
    quantile: float
    method: ExplainMethod
    baseline: str
    unit: str
    row_names: _containers.RepeatedScalarFieldContainer[str]
    row_kinds: _containers.RepeatedScalarFieldContainer[RowKind]
    per_row: bytes
    sessions: _containers.RepeatedScalarFieldContainer[int]
    per_time: bytes
    cells: bytes
    prediction: bytes
    baseline_prediction: bytes
    relative_gap: bytes
    converged: _containers.RepeatedScalarFieldContainer[bool]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    model: str
    version: int
    weights_hash: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    internals: _containers.RepeatedCompositeFieldContainer[Internal]
    skill: Skill
    refusals: _containers.RepeatedCompositeFieldContainer[SymbolError]
    def __init__(self, symbols: _Optional[_Iterable[str]] = ..., as_of_session: _Optional[int] = ..., horizon: _Optional[int] = ..., quantile: _Optional[float] = ..., method: _Optional[_Union[ExplainMethod, str]] = ..., baseline: _Optional[str] = ..., unit: _Optional[str] = ..., row_names: _Optional[_Iterable[str]] = ..., row_kinds: _Optional[_Iterable[_Union[RowKind, str]]] = ..., per_row: _Optional[bytes] = ..., sessions: _Optional[_Iterable[int]] = ..., per_time: _Optional[bytes] = ..., cells: _Optional[bytes] = ..., prediction: _Optional[bytes] = ..., baseline_prediction: _Optional[bytes] = ..., relative_gap: _Optional[bytes] = ..., converged: _Optional[_Iterable[bool]] = ..., nodes: _Optional[_Iterable[int]] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., weights_hash: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., internals: _Optional[_Iterable[_Union[Internal, _Mapping]]] = ..., skill: _Optional[_Union[Skill, _Mapping]] = ..., refusals: _Optional[_Iterable[_Union[SymbolError, _Mapping]]] = ...) -> None: ...

class ExplainGlobalRequest(_message.Message):
    __slots__ = ("model", "instances", "targets", "method", "tolerance")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    instances: _containers.RepeatedCompositeFieldContainer[Instance]
    targets: _containers.RepeatedCompositeFieldContainer[ExplainTarget]
    method: ExplainMethod
    tolerance: float
    def __init__(self, model: _Optional[str] = ..., instances: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ..., targets: _Optional[_Iterable[_Union[ExplainTarget, _Mapping]]] = ..., method: _Optional[_Union[ExplainMethod, str]] = ..., tolerance: _Optional[float] = ...) -> None: ...

class TargetImportance(_message.Message):
    __slots__ = ("horizon", "quantile", "unit", "row_names", "row_kinds", "mean_size", "standard_error", "windows", "converged")
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    ROW_NAMES_FIELD_NUMBER: _ClassVar[int]
    ROW_KINDS_FIELD_NUMBER: _ClassVar[int]
    MEAN_SIZE_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    horizon: int
    quantile: float
    unit: str
    row_names: _containers.RepeatedScalarFieldContainer[str]
    row_kinds: _containers.RepeatedScalarFieldContainer[RowKind]
    mean_size: bytes
    standard_error: bytes
    windows: int
    converged: float
    def __init__(self, horizon: _Optional[int] = ..., quantile: _Optional[float] = ..., unit: _Optional[str] = ..., row_names: _Optional[_Iterable[str]] = ..., row_kinds: _Optional[_Iterable[_Union[RowKind, str]]] = ..., mean_size: _Optional[bytes] = ..., standard_error: _Optional[bytes] = ..., windows: _Optional[int] = ..., converged: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("place", "symbol", "error")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    place: int
    symbol: str
    error: Error
    def __init__(self, place: _Optional[int] = ..., symbol: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ExplainGlobalProgress(_message.Message):
    __slots__ = ("model", "version", "weights_hash", "targets", "done", "total", "refused", "refused_symbols", "refusals")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_HASH_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    weights_hash: str
    targets: _containers.RepeatedCompositeFieldContainer[TargetImportance]
    done: int
    total: int
    refused: int
    refused_symbols: int
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., weights_hash: _Optional[str] = ..., targets: _Optional[_Iterable[_Union[TargetImportance, _Mapping]]] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., refused: _Optional[int] = ..., refused_symbols: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("symbol", "value")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    value: float
    def __init__(self, symbol: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class PriceLevel(_message.Message):
    __slots__ = ("symbol", "price")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    price: float
    def __init__(self, symbol: _Optional[str] = ..., price: _Optional[float] = ...) -> None: ...

class SimulatePathsRequest(_message.Message):
    __slots__ = ("model", "instance", "paths", "seed", "day", "level", "holdings", "prices", "include_paths")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PATHS_FIELD_NUMBER: _ClassVar[int]
    model: str
    instance: Instance
    paths: int
    seed: int
    day: int
    level: float
    holdings: _containers.RepeatedCompositeFieldContainer[Holding]
    prices: _containers.RepeatedCompositeFieldContainer[PriceLevel]
    include_paths: bool
    def __init__(self, model: _Optional[str] = ..., instance: _Optional[_Union[Instance, _Mapping]] = ..., paths: _Optional[int] = ..., seed: _Optional[int] = ..., day: _Optional[int] = ..., level: _Optional[float] = ..., holdings: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ..., prices: _Optional[_Iterable[_Union[PriceLevel, _Mapping]]] = ..., include_paths: bool = ...) -> None: ...

class Estimate(_message.Message):
    __slots__ = ("value", "lower", "upper")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    value: float
    lower: float
    upper: float
    def __init__(self, value: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ...) -> None: ...

class PriceProbability(_message.Message):
    __slots__ = ("symbol", "price", "above", "touched")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    TOUCHED_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    price: float
    above: Estimate
    touched: Estimate
    def __init__(self, symbol: _Optional[str] = ..., price: _Optional[float] = ..., above: _Optional[_Union[Estimate, _Mapping]] = ..., touched: _Optional[_Union[Estimate, _Mapping]] = ...) -> None: ...

class SimulatePathsResponse(_message.Message):
    __slots__ = ("symbols", "as_of_session", "anchor_price", "days", "paths", "past_days", "forecast_id", "model", "version", "warnings", "refusals", "day", "value_at_risk", "expected_shortfall", "drawdown", "prices", "first_path", "returns")
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SESSION_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_PRICE_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PAST_DAYS_FIELD_NUMBER: _ClassVar[int]
    FORECAST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    VALUE_AT_RISK_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SHORTFALL_FIELD_NUMBER: _ClassVar[int]
    DRAWDOWN_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    FIRST_PATH_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    as_of_session: int
    anchor_price: bytes
    days: int
    paths: int
    past_days: int
    forecast_id: str
    model: str
    version: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    refusals: _containers.RepeatedCompositeFieldContainer[SymbolError]
    day: int
    value_at_risk: Estimate
    expected_shortfall: Estimate
    drawdown: Estimate
    prices: _containers.RepeatedCompositeFieldContainer[PriceProbability]
    first_path: int
    returns: bytes
    def __init__(self, symbols: _Optional[_Iterable[str]] = ..., as_of_session: _Optional[int] = ..., anchor_price: _Optional[bytes] = ..., days: _Optional[int] = ..., paths: _Optional[int] = ..., past_days: _Optional[int] = ..., forecast_id: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., refusals: _Optional[_Iterable[_Union[SymbolError, _Mapping]]] = ..., day: _Optional[int] = ..., value_at_risk: _Optional[_Union[Estimate, _Mapping]] = ..., expected_shortfall: _Optional[_Union[Estimate, _Mapping]] = ..., drawdown: _Optional[_Union[Estimate, _Mapping]] = ..., prices: _Optional[_Iterable[_Union[PriceProbability, _Mapping]]] = ..., first_path: _Optional[int] = ..., returns: _Optional[bytes] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("models", "problems")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class UnloadModelResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ...) -> None: ...

class ReloadModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ReloadModelResponse(_message.Message):
    __slots__ = ("models", "problems")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...
