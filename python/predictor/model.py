"""A loaded model: an immutable handle that turns instances into forecasts and queries into attributions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from predictor import canonical
from predictor.artifact import Artifact, Manifest
from predictor.artifact.manifest import write_manifest
from predictor.bars import BarPanel
from predictor.bars.checks import check_symbols
from predictor.catalog import FeatureInfo, ModelInfo
from predictor.deadline import Deadline
from predictor.errors import (
    BarIncompleteError,
    BarsError,
    ExplainUnsupportedError,
    FeatureMismatchError,
    InvalidInputError,
    NoUsableSymbolError,
    SessionGapError,
    WindowShapeError,
)
from predictor.explain import Baseline, Contributions, Explainer, attribution_view
from predictor.features import FeatureDefinition
from predictor.forecast import Attribution, Detail, Forecast, RowKind, TargetPoint
from predictor.inference import Engine, freeze
from predictor.instance import INTEGRATED_GRADIENTS, FeatureWindow, GapPolicy, Instance, Query
from predictor.networks import Inputs, OutputMap, TargetKind, anchor_index
from predictor.windows import Pipeline, latest_window

ScalarT = TypeVar("ScalarT", bound=np.generic)
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WINDOW_TYPES: Mapping[str, type[np.generic]] = {
    "observed": np.float32,
    "known": np.float32,
    "static": np.float32,
    "mask": np.bool_,
    "location": np.float64,
    "scale": np.float64,
}
"""Groups of a feature window, in the order of `Inputs`."""

LARGEST_SCALE = 10.0
"""Daily volatility, a log return: a factor of 22 000 a day. Beyond it a price fan would overflow."""

LARGEST: Mapping[str, float] = {
    "observed": 1e6,
    "known": 1e6,
    "static": 1e6,
    "location": 100.0,
    "scale": LARGEST_SCALE,
}
"""In windows of callers: far beyond what features come to, and far below what overflows on the way to prices."""

UNITS = {TargetKind.LOG_RETURN: "log return", TargetKind.LOG_VOLATILITY: "log daily volatility"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """An instance that was checked and encoded: one row of inputs for each symbol that can be forecast."""

    symbols: tuple[str, ...]
    usable: BoolArray
    """[S] which symbols have a row in `inputs`."""
    inputs: Inputs
    """[N] rows, N = how many are usable."""
    sessions: NDArray[np.int32]
    """[T] of the encoder; empty if unknown."""
    as_of: int
    """yyyymmdd; 0 if unknown."""
    target_sessions: NDArray[np.int32]
    """[H] session that each horizon ends on; empty if `as_of` is 0."""
    anchor: FloatArray | None
    """[S] last raw close."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Identity:
    """Under which name and version a model is served, and which weights it has."""

    name: str
    version: int
    weights_hash: str


class Model:
    """One version of a model, ready to answer. Nothing on it changes, so any thread may use it."""

    def __init__(
        self, identity: Identity, manifest: Manifest, pipeline: Pipeline, engine: Engine, explainer: Explainer
    ) -> None:
        self.identity = identity
        self.manifest = manifest
        self.pipeline = pipeline
        self.engine = engine
        self.explainer = explainer
        self._fingerprint = _fingerprint(identity, manifest, pipeline, engine)

    @classmethod
    def assemble(cls, identity: Identity, artifact: Artifact, *, device: torch.device, max_rows: int) -> Self:
        """Build network, engine and attribution view from an artifact's parts; called outside inference mode."""
        manifest = artifact.manifest
        network = freeze(artifact.network().to(device))
        output = output_map(manifest)
        baseline = Baseline(
            name=manifest.baseline.name,
            known=np.array(manifest.baseline.known, np.float32),
            static=np.zeros(0, np.float32),
            location=manifest.baseline.location,
            scale=manifest.baseline.scale,
        )
        return cls(
            identity,
            manifest,
            artifact.pipeline,
            Engine(network, output, device=device, max_rows=max_rows),
            Explainer(attribution_view(network), output, baseline, max_rows=max_rows),
        )

    # --- asking

    def prepare(self, instance: Instance, now: datetime) -> Prepared:
        """Check an instance and compute its inputs.

        Args:
            instance: bars or windows.
            now: the present, with a time zone; decides whether the last bar's session has closed.

        Raises:
            QuantraError: the instance cannot be forecast; see predictor.errors.
        """
        if isinstance(instance.input, BarPanel):
            return self._prepare_bars(instance, instance.input, now)
        return self._prepare_window(instance.input)

    def forecast(self, prepared: Sequence[Prepared]) -> list[Forecast]:
        """Forecasts of several instances from one pass of the network."""
        groups = zip(*(p.inputs for p in prepared), strict=True)
        values = self.engine.values(Inputs(*(torch.cat(group) for group in groups))).numpy()
        counts = np.cumsum([len(p.inputs.observed) for p in prepared])[:-1]
        return [self._assemble(p, rows) for p, rows in zip(prepared, np.split(values, counts), strict=True)]

    def explain(self, query: Query, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        """Attributions of one query, one a target.

        Raises:
            ExplainUnsupportedError: the method is not one of the model's.
            UnknownHorizonError, UnknownQuantileError: a target that the model does not forecast.
            QuantraError: as `prepare`, or the deadline passed.
        """
        if query.method != INTEGRATED_GRADIENTS:
            raise ExplainUnsupportedError(
                f"there is no method {query.method!r}; the model has [{INTEGRATED_GRADIENTS!r}]"
            )
        if not 0 < query.tolerance < 1:
            raise InvalidInputError(f"tolerance is {query.tolerance:g}, but must be between 0 and 1")
        targets = query.targets or self.default_targets()
        points = [t.index_in(self.manifest.target.horizons, self.manifest.quantiles) for t in targets]
        prepared = self.prepare(query.instance, now)
        found = self.explainer.explain(prepared.inputs, points, tolerance=query.tolerance, deadline=deadline)
        return tuple(self._attribution(prepared, t, c, query.detail) for t, c in zip(targets, found, strict=True))

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """Every horizon at the quantile nearest to the median."""
        level = self.manifest.quantiles[anchor_index(self.manifest.quantiles)]
        return tuple(TargetPoint(h, level) for h in self.manifest.target.horizons)

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """What the model is, for people and programs."""
        m, features = self.manifest, self.pipeline.features.features
        return ModelInfo(
            name=self.identity.name,
            version=self.identity.version,
            aliases=aliases,
            is_default=is_default,
            kind=m.kind.name,
            observed_features=_feature_infos(features.observed),
            known_features=_feature_infos(features.known),
            static_features=(),
            schema_hash=self.pipeline.features.schema_hash,
            encoder_length=self.pipeline.encoder_length,
            lookback=self.pipeline.lookback,
            bars_needed=self.pipeline.bars_needed,
            future_length=m.target.reach,
            horizons=m.target.horizons,
            quantiles=m.quantiles,
            lag=m.target.lag,
            target_kind=m.target.kind.value,
            calendar=self.pipeline.calendar.name,
            calendar_ends=self.pipeline.calendar.last,
            is_panel_model=m.kind.is_panel_model,
            explain_methods=(INTEGRATED_GRADIENTS,),
            weights_hash=self.identity.weights_hash,
            card_json=canonical.to_bytes(m.card).decode(),
        )

    # --- bars

    def _prepare_bars(self, instance: Instance, bars: BarPanel, now: datetime) -> Prepared:
        bars = self._on_calendar(bars, instance, now)
        encoded = self.pipeline.encode_latest(bars)
        length = self.pipeline.encoder_length
        rows = latest_window(encoded, length)
        has_last = bars.present[:, -1]
        scale = encoded.scale[:, -1]
        usable = has_last & encoded.mask[:, -length:].any(axis=(1, 2)) & (scale <= LARGEST_SCALE)
        warnings = [*_unusable_warnings(bars, usable, scale), *map(str, bars.suspicious_jumps())]
        if not usable.any():
            raise NoUsableSymbolError("; ".join(warnings))
        keep = torch.from_numpy(usable)
        return Prepared(
            symbols=bars.symbols,
            usable=usable,
            inputs=rows if usable.all() else Inputs(*(group[keep] for group in rows)),
            sessions=bars.sessions[-length:],
            as_of=int(bars.sessions[-1]),
            target_sessions=self.pipeline.target_sessions(int(bars.sessions[-1])),
            anchor=bars.close[:, -1],
            warnings=tuple(warnings),
        )

    def _on_calendar(self, bars: BarPanel, instance: Instance, now: datetime) -> BarPanel:
        """The bars that the forecast depends on, checked against the exchange's sessions where those are known."""
        calendar = self.pipeline.calendar
        if not calendar.is_exchange:
            return bars
        if bars.calendar and bars.calendar != calendar.name:
            raise BarsError(
                f"the bars are of calendar {bars.calendar!r}, but the model's calendar is {calendar.name!r}"
            )
        recent = bars.last(self.pipeline.bars_needed)
        strangers = calendar.unexpected(recent.sessions)
        if len(strangers):
            raise BarsError(f"{calendar.name} held no session on {_days(strangers)}; remove these bars")
        last = int(bars.sessions[-1])
        if not instance.allow_incomplete_last_bar and not calendar.is_complete(last, now):
            raise BarIncompleteError(
                f"the session of {_days([last])} has not closed yet, so its bar has no close; "
                "leave it out, or say allow_incomplete_last_bar",
                metadata={"date": _days([last])},
            )
        missing = calendar.missing(recent.sessions)
        if len(missing) == 0 or instance.gap_policy is GapPolicy.IGNORE:
            return recent
        if instance.gap_policy is GapPolicy.REFUSE:
            raise SessionGapError(
                f"{calendar.name} held sessions on {_days(missing)} that the bars lack; send them, or choose the gap "
                "policy mask or ignore",
                metadata={"missing": _days(missing), "count": str(len(missing))},
            )
        return bars.on_sessions(np.union1d(bars.sessions, missing).astype(np.int32)).last(self.pipeline.bars_needed)

    # --- windows

    def _prepare_window(self, window: FeatureWindow) -> Prepared:
        self._check_window(window)
        as_of, unknown = window.as_of_session, np.zeros(0, np.int32)
        return Prepared(
            symbols=window.symbols,
            usable=np.ones(len(window.symbols), np.bool_),
            inputs=Inputs(*(torch.from_numpy(np.array(getattr(window, name))) for name in WINDOW_TYPES)),
            sessions=unknown,
            as_of=as_of,
            target_sessions=self.pipeline.target_sessions(as_of) if as_of else unknown,
            anchor=window.anchor_price,
            warnings=(),
        )

    def _check_window(self, window: FeatureWindow) -> None:
        ours = self.pipeline.features.schema_hash
        if window.schema_hash != ours:
            names = [f.name for f in self.pipeline.features.features.observed]
            raise FeatureMismatchError(
                f"the windows were made with schema {window.schema_hash[:80]!r}, the model's is {ours!r} with "
                f"features {names}; ask GetModel for the expressions",
                metadata={"expected": ours},
            )
        check_symbols(window.symbols)
        for name, want in self._window_shapes(len(window.symbols)).items():
            _check_group(name, getattr(window, name), want)
        if window.observed[~window.mask].any():
            raise InvalidInputError("observed holds a value where mask says that the cell is unknown; it must be 0")
        if not (window.scale > 0).all():
            raise InvalidInputError("scale holds a value that is not positive")
        if window.anchor_price is not None:
            _check_anchor(window.anchor_price, len(window.symbols))
        if window.as_of_session and not self.pipeline.calendar.is_session(window.as_of_session):
            raise InvalidInputError(
                f"as_of_session {window.as_of_session} is no session of {self.pipeline.calendar.name}; "
                "send the session of the last row, yyyymmdd, or 0 if it is unknown"
            )

    def _window_shapes(self, symbols: int) -> dict[str, tuple[int, ...]]:
        sizes = self.pipeline.sizes
        rows = (symbols, sizes.encoder_length)
        return {
            "observed": (*rows, sizes.observed),
            "known": (symbols, sizes.encoder_length + sizes.future_length, sizes.known),
            "static": (symbols, sizes.static),
            "mask": (*rows, sizes.observed),
            "location": (symbols,),
            "scale": (symbols,),
        }

    # --- answers

    def _assemble(self, prepared: Prepared, rows: FloatArray) -> Forecast:
        m = self.manifest
        values = _on_symbols(rows, prepared.usable)
        returns = values if m.target.kind is TargetKind.LOG_RETURN else None
        anchor = prepared.anchor
        # With a lag the returns count from a close that is not known yet: no price today can anchor them.
        prices = None if returns is None or anchor is None or m.target.lag else anchor[:, None, None] * np.exp(returns)
        return Forecast(
            symbols=prepared.symbols,
            as_of_session=prepared.as_of,
            target_sessions=prepared.target_sessions,
            lag=m.target.lag,
            horizons=m.target.horizons,
            quantiles=m.quantiles,
            target_kind=m.target.kind.value,
            values=values,
            returns=returns,
            prices=prices,
            anchor_price=anchor,
            model=self.identity.name,
            version=self.identity.version,
            weights_hash=self.identity.weights_hash,
            warnings=prepared.warnings,
            forecast_id=self._forecast_id(prepared),
        )

    def _forecast_id(self, prepared: Prepared) -> str:
        """Sixteen hex digits of a SHA-256 over everything that the forecast follows from."""
        digest = hashlib.sha256(f"{self._fingerprint}|{prepared.as_of}|".encode())
        for symbol in prepared.symbols:
            digest.update(symbol.encode() + b"\0")
        groups = [group.numpy() for group in prepared.inputs]
        for group in (prepared.usable, *groups, *(() if prepared.anchor is None else (prepared.anchor,))):
            digest.update(np.ascontiguousarray(group).data)
        return digest.hexdigest()[:16]

    def _attribution(
        self, prepared: Prepared, target: TargetPoint, found: Contributions, detail: Detail
    ) -> Attribution:
        m, features = self.manifest, self.pipeline.features.features
        names = (*(f.name for f in features.observed), *(f.name for f in features.known))
        kinds = (*(RowKind.OBSERVED for _ in features.observed), *(RowKind.KNOWN for _ in features.known))
        alone = (RowKind.LOCATION, RowKind.SCALE, RowKind.CONFORMAL)
        usable, length = prepared.usable, self.pipeline.encoder_length
        per_row = np.concatenate(
            [
                found.observed.sum(axis=1),
                found.known.sum(axis=1),
                np.stack([found.location, found.scale, found.conformal], axis=-1),
            ],
            axis=-1,
        )
        per_time = found.observed.sum(axis=2) + found.known[:, :length].sum(axis=2)
        return Attribution(
            symbols=prepared.symbols,
            as_of_session=prepared.as_of,
            horizon=target.horizon,
            quantile=target.quantile,
            method=INTEGRATED_GRADIENTS,
            baseline=m.baseline.name,
            unit=UNITS[m.target.kind],
            row_names=(*names, *(kind.value for kind in alone)),
            row_kinds=(*kinds, *alone),
            per_row=_on_symbols(per_row, usable),
            sessions=prepared.sessions,
            per_time=None if detail is Detail.FEATURES else _on_symbols(per_time, usable),
            cells=_on_symbols(found.observed, usable) if detail is Detail.CELLS else None,
            prediction=_on_symbols(found.prediction, usable),
            baseline_prediction=_on_symbols(found.baseline_prediction, usable),
            relative_gap=_on_symbols(found.relative_gap, usable),
            converged=_placed(found.converged, usable, fill=False),
            nodes=_placed(found.nodes.astype(np.int32), usable, fill=0),
            model=self.identity.name,
            version=self.identity.version,
            weights_hash=self.identity.weights_hash,
            warnings=prepared.warnings,
        )


def output_map(manifest: Manifest) -> OutputMap:
    """The last steps of a forecast, from the manifest's numbers."""
    return OutputMap(
        spread=torch.from_numpy(manifest.target.spread),
        offsets=torch.tensor(manifest.conformal.offsets, dtype=torch.float64),
        levels=manifest.quantiles,
    )


def _fingerprint(identity: Identity, manifest: Manifest, pipeline: Pipeline, engine: Engine) -> str:
    """What the model's forecasts depend on, its card left out."""
    numbers = canonical.to_bytes(write_manifest(replace(manifest, card={})))
    parts = f"{identity.weights_hash}|{pipeline.features.schema_hash}|{engine.name}|".encode()
    return hashlib.sha256(parts + numbers).hexdigest()


def _check_group(name: str, group: NDArray[np.generic], shape: tuple[int, ...]) -> None:
    """One group of a caller's window: its shape, its type, and numbers that a network can take."""
    want = np.dtype(WINDOW_TYPES[name])
    if group.shape != shape or group.dtype != want:
        raise WindowShapeError(
            f"{name} is {group.dtype} of shape {list(group.shape)}, the model reads {want} of shape {list(shape)}"
        )
    if name in LARGEST and not (np.abs(group) <= LARGEST[name]).all():
        raise InvalidInputError(f"{name} holds a value that is not finite, or beyond {LARGEST[name]:g}")


def _check_anchor(prices: FloatArray, symbols: int) -> None:
    if prices.shape != (symbols,):
        raise WindowShapeError(f"anchor_price must hold one price for each of {symbols} symbols")
    if not ((prices > 0) & np.isfinite(prices)).all():
        raise InvalidInputError("anchor_price holds a value that is not a positive finite price")


def _feature_infos(definitions: Sequence[FeatureDefinition]) -> tuple[FeatureInfo, ...]:
    return tuple(
        FeatureInfo(name=d.name, expression=str(d.expression), meaning=d.meaning, unit=d.unit) for d in definitions
    )


def _unusable_warnings(bars: BarPanel, usable: BoolArray, scale: FloatArray) -> list[str]:
    return [
        f"{symbol}: no forecast, because {_why_unusable(bars, s, float(scale[s]))}"
        for s, symbol in enumerate(bars.symbols)
        if not usable[s]
    ]


def _why_unusable(bars: BarPanel, symbol: int, scale: float) -> str:
    if not bars.present[symbol, -1]:
        return f"it has no bar on the panel's last session {_days([int(bars.sessions[-1])])}"
    if scale > LARGEST_SCALE:
        return f"its volatility is {scale:.3g} a day, which no market has; check its prices"
    return "none of its last sessions has a known feature"


def _on_symbols(rows: FloatArray, usable: BoolArray) -> FloatArray:
    return _placed(rows, usable, fill=np.nan)


def _placed(rows: NDArray[ScalarT], usable: BoolArray, *, fill: float) -> NDArray[ScalarT]:
    """[S, …] with the usable symbols' rows in their places."""
    if usable.all():
        return rows
    placed = np.full((len(usable), *rows.shape[1:]), fill, dtype=rows.dtype)
    placed[usable] = rows
    return placed


def _days(sessions: Sequence[int] | NDArray[np.int32]) -> str:
    """Up to five dates in ISO form."""
    shown = [f"{s // 10000:04d}-{s // 100 % 100:02d}-{s % 100:02d}" for s in map(int, sessions[:5])]
    return ", ".join(shown) + (f" and {len(sessions) - 5} more" if len(sessions) > 5 else "")  # noqa: PLR2004
