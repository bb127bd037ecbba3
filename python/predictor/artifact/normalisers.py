"""Normalisers as JSON: their kind, and every number that levels are computed with."""

from typing import assert_never

from predictor.canonical import Json, Record
from predictor.errors import ConfigurationError
from predictor.networks import (
    FittedLevel,
    FittedNormaliser,
    FittedScale,
    Garch,
    Har,
    Normaliser,
    Target,
    TargetKind,
    WindowNormaliser,
)


def write_normaliser(normaliser: Normaliser) -> dict[str, Json]:
    """A normaliser as JSON."""
    match normaliser:
        case WindowNormaliser(window=window, decay=decay, centred=centred, floor=floor):
            rest: dict[str, Json] = {"window": window, "decay": decay, "centred": centred, "floor": floor}
        case FittedScale():
            rest = _write_scale(normaliser)
        case FittedLevel(har=har, residuals=residuals, window=window, floor=floor):
            rest = {"window": window, "floor": floor, "har": _write_har(har), "residuals": list(residuals)}
        case _:
            raise ConfigurationError(f"a {type(normaliser).__name__} cannot be kept in an artifact")
    return {"kind": normaliser.kind, **rest}


def read_normaliser(record: Record, target: Target, version: int) -> Normaliser:
    """A normaliser from JSON; format 1 knows the kind `window` alone, and does not name it.

    Raises:
        ArtifactError: a key is missing, unknown or of another type, or the kind is unknown.
        ConfigurationError: the numbers contradict each other or the target.
    """
    kind = "window" if version == 1 else record.text("kind")
    if kind == "window":
        normaliser: Normaliser = _read_window(record)
    elif kind == "fitted":
        normaliser = _read_fitted(record, target)
    else:
        raise record.refusal("kind", f"is {kind!r}, but must be 'window' or 'fitted'")
    record.end()
    return normaliser


def _read_window(record: Record) -> WindowNormaliser:
    return WindowNormaliser(
        window=record.integer("window"),
        decay=record.number("decay"),
        centred=record.flag("centred"),
        floor=record.number("floor"),
    )


def _read_fitted(record: Record, target: Target) -> FittedNormaliser:
    horizons = len(target.horizons)
    match target.kind:
        case TargetKind.LOG_RETURN:
            return _read_scale(record, horizons)
        case TargetKind.LOG_VOLATILITY:
            return FittedLevel(
                har=_read_har(record.record("har"), horizons),
                residuals=record.numbers("residuals"),
                window=record.integer("window"),
                floor=record.number("floor"),
            )
        case _:
            assert_never(target.kind)


def _write_scale(scale: FittedScale) -> dict[str, Json]:
    parts: dict[str, Json] = {}
    if scale.har is not None:
        parts["har"] = _write_har(scale.har)
    if scale.garch is not None:
        garch = scale.garch
        parts["garch"] = {"alpha": garch.alpha, "beta": garch.beta, "reversion": list(garch.reversion)}
    return {"window": scale.window, "floor": scale.floor, "har_share": scale.har_share, **parts}


def _read_scale(record: Record, horizons: int) -> FittedScale:
    return FittedScale(
        har=_read_har(record.record("har"), horizons) if record.has("har") else None,
        garch=_read_garch(record.record("garch"), horizons) if record.has("garch") else None,
        har_share=record.number("har_share"),
        window=record.integer("window"),
        floor=record.number("floor"),
    )


def _write_har(har: Har) -> dict[str, Json]:
    return {
        "sessions": list(har.sessions),
        "intercepts": list(har.intercepts),
        "weights": [list(row) for row in har.weights],
    }


def _read_har(record: Record, horizons: int) -> Har:
    har = Har(
        sessions=record.integers("sessions"), intercepts=record.numbers("intercepts"), weights=record.rows("weights")
    )
    record.end()
    if len(har.intercepts) != horizons:
        raise record.refusal("intercepts", f"must be {horizons} numbers, one per horizon")
    return har


def _read_garch(record: Record, horizons: int) -> Garch:
    garch = Garch(alpha=record.number("alpha"), beta=record.number("beta"), reversion=record.numbers("reversion"))
    record.end()
    if len(garch.reversion) != horizons:
        raise record.refusal("reversion", f"must be {horizons} numbers, one per horizon")
    return garch
