from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ForecastRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORECAST_ROLE_UNSPECIFIED: _ClassVar[ForecastRole]
    FORECAST_ROLE_CHAMPION: _ClassVar[ForecastRole]
    FORECAST_ROLE_CHALLENGER: _ClassVar[ForecastRole]
    FORECAST_ROLE_BASELINE: _ClassVar[ForecastRole]
    FORECAST_ROLE_CLIENT: _ClassVar[ForecastRole]

class OutcomeStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_STATUS_UNSPECIFIED: _ClassVar[OutcomeStatus]
    OUTCOME_STATUS_SCORED: _ClassVar[OutcomeStatus]
    OUTCOME_STATUS_UNSCORABLE: _ClassVar[OutcomeStatus]

class Lamp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAMP_UNSPECIFIED: _ClassVar[Lamp]
    LAMP_LEARNING: _ClassVar[Lamp]
    LAMP_GREEN: _ClassVar[Lamp]
    LAMP_AMBER: _ClassVar[Lamp]
    LAMP_RED: _ClassVar[Lamp]

class ComparisonDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPARISON_DECISION_UNSPECIFIED: _ClassVar[ComparisonDecision]
    COMPARISON_DECISION_FOR: _ClassVar[ComparisonDecision]
    COMPARISON_DECISION_AGAINST: _ClassVar[ComparisonDecision]
    COMPARISON_DECISION_UNDECIDED: _ClassVar[ComparisonDecision]
FORECAST_ROLE_UNSPECIFIED: ForecastRole
FORECAST_ROLE_CHAMPION: ForecastRole
FORECAST_ROLE_CHALLENGER: ForecastRole
FORECAST_ROLE_BASELINE: ForecastRole
FORECAST_ROLE_CLIENT: ForecastRole
OUTCOME_STATUS_UNSPECIFIED: OutcomeStatus
OUTCOME_STATUS_SCORED: OutcomeStatus
OUTCOME_STATUS_UNSCORABLE: OutcomeStatus
LAMP_UNSPECIFIED: Lamp
LAMP_LEARNING: Lamp
LAMP_GREEN: Lamp
LAMP_AMBER: Lamp
LAMP_RED: Lamp
COMPARISON_DECISION_UNSPECIFIED: ComparisonDecision
COMPARISON_DECISION_FOR: ComparisonDecision
COMPARISON_DECISION_AGAINST: ComparisonDecision
COMPARISON_DECISION_UNDECIDED: ComparisonDecision

class RecordedOutcome(_message.Message):
    __slots__ = ("horizon", "session", "revision", "status", "value", "reason", "pinball", "is_inside", "level")
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PINBALL_FIELD_NUMBER: _ClassVar[int]
    IS_INSIDE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    horizon: int
    session: int
    revision: int
    status: OutcomeStatus
    value: float
    reason: str
    pinball: float
    is_inside: bool
    level: float
    def __init__(self, horizon: _Optional[int] = ..., session: _Optional[int] = ..., revision: _Optional[int] = ..., status: _Optional[_Union[OutcomeStatus, str]] = ..., value: _Optional[float] = ..., reason: _Optional[str] = ..., pinball: _Optional[float] = ..., is_inside: bool = ..., level: _Optional[float] = ...) -> None: ...

class RecordedForecast(_message.Message):
    __slots__ = ("forecast_id", "symbol", "role", "model", "version", "weights_hash", "as_of_session", "base_session", "target_kind", "horizons", "target_sessions", "quantiles", "values", "anchor_price", "is_prospective", "made_at_ns", "outcomes")
    FORECAST_ID_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_HASH_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SESSION_FIELD_NUMBER: _ClassVar[int]
    BASE_SESSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_KIND_FIELD_NUMBER: _ClassVar[int]
    HORIZONS_FIELD_NUMBER: _ClassVar[int]
    TARGET_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_PRICE_FIELD_NUMBER: _ClassVar[int]
    IS_PROSPECTIVE_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_NS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    forecast_id: str
    symbol: str
    role: ForecastRole
    model: str
    version: int
    weights_hash: str
    as_of_session: int
    base_session: int
    target_kind: str
    horizons: _containers.RepeatedScalarFieldContainer[int]
    target_sessions: _containers.RepeatedScalarFieldContainer[int]
    quantiles: _containers.RepeatedScalarFieldContainer[float]
    values: bytes
    anchor_price: float
    is_prospective: bool
    made_at_ns: int
    outcomes: _containers.RepeatedCompositeFieldContainer[RecordedOutcome]
    def __init__(self, forecast_id: _Optional[str] = ..., symbol: _Optional[str] = ..., role: _Optional[_Union[ForecastRole, str]] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., weights_hash: _Optional[str] = ..., as_of_session: _Optional[int] = ..., base_session: _Optional[int] = ..., target_kind: _Optional[str] = ..., horizons: _Optional[_Iterable[int]] = ..., target_sessions: _Optional[_Iterable[int]] = ..., quantiles: _Optional[_Iterable[float]] = ..., values: _Optional[bytes] = ..., anchor_price: _Optional[float] = ..., is_prospective: bool = ..., made_at_ns: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[RecordedOutcome, _Mapping]]] = ...) -> None: ...

class GetForecastRequest(_message.Message):
    __slots__ = ("forecast_id", "symbol")
    FORECAST_ID_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    forecast_id: str
    symbol: str
    def __init__(self, forecast_id: _Optional[str] = ..., symbol: _Optional[str] = ...) -> None: ...

class GetForecastResponse(_message.Message):
    __slots__ = ("forecasts",)
    FORECASTS_FIELD_NUMBER: _ClassVar[int]
    forecasts: _containers.RepeatedCompositeFieldContainer[RecordedForecast]
    def __init__(self, forecasts: _Optional[_Iterable[_Union[RecordedForecast, _Mapping]]] = ...) -> None: ...

class ListForecastsRequest(_message.Message):
    __slots__ = ("model", "symbol", "first_session", "last_session", "roles", "newest")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    FIRST_SESSION_FIELD_NUMBER: _ClassVar[int]
    LAST_SESSION_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    model: str
    symbol: str
    first_session: int
    last_session: int
    roles: _containers.RepeatedScalarFieldContainer[ForecastRole]
    newest: int
    def __init__(self, model: _Optional[str] = ..., symbol: _Optional[str] = ..., first_session: _Optional[int] = ..., last_session: _Optional[int] = ..., roles: _Optional[_Iterable[_Union[ForecastRole, str]]] = ..., newest: _Optional[int] = ...) -> None: ...

class ListForecastsResponse(_message.Message):
    __slots__ = ("forecasts",)
    FORECASTS_FIELD_NUMBER: _ClassVar[int]
    forecasts: _containers.RepeatedCompositeFieldContainer[RecordedForecast]
    def __init__(self, forecasts: _Optional[_Iterable[_Union[RecordedForecast, _Mapping]]] = ...) -> None: ...

class TestHealth(_message.Message):
    __slots__ = ("monitor", "horizon", "lamp", "session", "state_json", "days", "share", "promised")
    MONITOR_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    LAMP_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STATE_JSON_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    monitor: str
    horizon: int
    lamp: Lamp
    session: int
    state_json: str
    days: int
    share: float
    promised: float
    def __init__(self, monitor: _Optional[str] = ..., horizon: _Optional[int] = ..., lamp: _Optional[_Union[Lamp, str]] = ..., session: _Optional[int] = ..., state_json: _Optional[str] = ..., days: _Optional[int] = ..., share: _Optional[float] = ..., promised: _Optional[float] = ...) -> None: ...

class ModelHealth(_message.Message):
    __slots__ = ("model", "version", "is_champion", "lamp", "tests")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_CHAMPION_FIELD_NUMBER: _ClassVar[int]
    LAMP_FIELD_NUMBER: _ClassVar[int]
    TESTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    is_champion: bool
    lamp: Lamp
    tests: _containers.RepeatedCompositeFieldContainer[TestHealth]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., is_champion: bool = ..., lamp: _Optional[_Union[Lamp, str]] = ..., tests: _Optional[_Iterable[_Union[TestHealth, _Mapping]]] = ...) -> None: ...

class GetHealthRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class GetHealthResponse(_message.Message):
    __slots__ = ("models", "last_session")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LAST_SESSION_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelHealth]
    last_session: int
    def __init__(self, models: _Optional[_Iterable[_Union[ModelHealth, _Mapping]]] = ..., last_session: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("model", "after")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    model: str
    after: int
    def __init__(self, model: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("number", "made_at_ns", "kind", "model", "version", "session", "reason", "detail_json")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_NS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_JSON_FIELD_NUMBER: _ClassVar[int]
    number: int
    made_at_ns: int
    kind: str
    model: str
    version: int
    session: int
    reason: str
    detail_json: str
    def __init__(self, number: _Optional[int] = ..., made_at_ns: _Optional[int] = ..., kind: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[int] = ..., session: _Optional[int] = ..., reason: _Optional[str] = ..., detail_json: _Optional[str] = ...) -> None: ...

class CompareVersionsRequest(_message.Message):
    __slots__ = ("champion", "challenger", "first_session")
    CHAMPION_FIELD_NUMBER: _ClassVar[int]
    CHALLENGER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SESSION_FIELD_NUMBER: _ClassVar[int]
    champion: str
    challenger: str
    first_session: int
    def __init__(self, champion: _Optional[str] = ..., challenger: _Optional[str] = ..., first_session: _Optional[int] = ...) -> None: ...

class CompareVersionsResponse(_message.Message):
    __slots__ = ("champion", "challenger", "decision", "need", "sentence", "first_session", "last_session", "days", "symbols", "improvement", "lower", "upper", "result_json")
    CHAMPION_FIELD_NUMBER: _ClassVar[int]
    CHALLENGER_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SESSION_FIELD_NUMBER: _ClassVar[int]
    LAST_SESSION_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    IMPROVEMENT_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    champion: str
    challenger: str
    decision: ComparisonDecision
    need: str
    sentence: str
    first_session: int
    last_session: int
    days: int
    symbols: _containers.RepeatedScalarFieldContainer[str]
    improvement: float
    lower: float
    upper: float
    result_json: str
    def __init__(self, champion: _Optional[str] = ..., challenger: _Optional[str] = ..., decision: _Optional[_Union[ComparisonDecision, str]] = ..., need: _Optional[str] = ..., sentence: _Optional[str] = ..., first_session: _Optional[int] = ..., last_session: _Optional[int] = ..., days: _Optional[int] = ..., symbols: _Optional[_Iterable[str]] = ..., improvement: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., result_json: _Optional[str] = ...) -> None: ...

class PromoteVersionRequest(_message.Message):
    __slots__ = ("version", "reason", "override_gates")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_GATES_FIELD_NUMBER: _ClassVar[int]
    version: str
    reason: str
    override_gates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., reason: _Optional[str] = ..., override_gates: _Optional[_Iterable[str]] = ...) -> None: ...

class GateResult(_message.Message):
    __slots__ = ("name", "passed", "overridden", "need", "have")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    OVERRIDDEN_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    passed: bool
    overridden: bool
    need: str
    have: str
    def __init__(self, name: _Optional[str] = ..., passed: bool = ..., overridden: bool = ..., need: _Optional[str] = ..., have: _Optional[str] = ...) -> None: ...

class PromoteVersionResponse(_message.Message):
    __slots__ = ("promoted", "gates", "champion")
    PROMOTED_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    CHAMPION_FIELD_NUMBER: _ClassVar[int]
    promoted: bool
    gates: _containers.RepeatedCompositeFieldContainer[GateResult]
    champion: int
    def __init__(self, promoted: bool = ..., gates: _Optional[_Iterable[_Union[GateResult, _Mapping]]] = ..., champion: _Optional[int] = ...) -> None: ...

class RollBackChampionRequest(_message.Message):
    __slots__ = ("model", "reason", "champion")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHAMPION_FIELD_NUMBER: _ClassVar[int]
    model: str
    reason: str
    champion: int
    def __init__(self, model: _Optional[str] = ..., reason: _Optional[str] = ..., champion: _Optional[int] = ...) -> None: ...

class RollBackChampionResponse(_message.Message):
    __slots__ = ("champion", "previous")
    CHAMPION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    champion: int
    previous: int
    def __init__(self, champion: _Optional[int] = ..., previous: _Optional[int] = ...) -> None: ...
