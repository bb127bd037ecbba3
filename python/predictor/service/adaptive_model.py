"""A model whose bands have the adaptive widths of a ledger."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, final

import numpy as np

from predictor.adaptive_widths import AdaptiveWidths, RecordedWidths
from predictor.arrays import FloatArray
from predictor.call_context import NEVER, Deadline
from predictor.catalog import ModelInfo
from predictor.errors import LedgerError, format_date
from predictor.forecast import Attribution, Forecast, RowKind, TargetPoint, require_forecast
from predictor.instance import ExplanationQuery, Instance
from predictor.model import Ensemble, Model, TwoStagePredictor


@final
class AdaptiveModel(TwoStagePredictor[Any]):
    """Scales a model's bands by the ledger's adaptive widths for the session of the last bar. Thread-safe.

    Without recorded widths, forecasts stay as calibrated; a warning on each forecast says which.
    """

    def __init__(self, model: Model | Ensemble, widths: RecordedWidths) -> None:
        self.identity = model.identity
        self._model = model
        self._widths = widths

    def prepare_each(self, instances: Sequence[Instance], now: datetime, deadline: Deadline) -> list[Any]:
        """See `TwoStagePredictor.prepare_each`."""
        return self._model.prepare_each(instances, now, deadline)

    def forecast(self, prepared: Sequence[Any], deadline: Deadline = NEVER) -> list[Forecast]:
        """See `TwoStagePredictor.forecast`."""
        return [self._adapt(forecast) for forecast in self._model.forecast(prepared, deadline)]

    def explain(self, query: ExplanationQuery, now: datetime, deadline: Deadline) -> tuple[Attribution, ...]:
        """See `Predictor.explain`.

        An adaptive quantile is the median plus a factor times its distance from the median, so its contributions are
        the same sum of those of the median and of the calibrated quantile.
        """
        forecast = require_forecast(self._model.predict([query.instance], now, deadline)[0])
        try:
            widths = self._widths.find(forecast)
            adapted = widths.apply(forecast)
        except LedgerError as error:
            note = describe_calibrated(error)
            return tuple(
                replace(item, warnings=(*item.warnings, note)) for item in self._model.explain(query, now, deadline)
            )
        complete = self._with_medians(query)
        explained = dict(zip(complete.targets, self._model.explain(complete, now, deadline), strict=True))
        note = describe_widths(widths, adapted)
        rows = [adapted.symbols.index(symbol) for symbol in next(iter(explained.values())).symbols]
        attributions: list[Attribution] = []
        for target in query.targets or self.default_targets():
            point = target.index_in(adapted.horizons, adapted.quantiles)
            scaled = scale_around_median(
                explained[target],
                explained[self._median_of(target)],
                float(widths.factors[point]),
                adapted.values[rows, *point],
            )
            attributions.append(replace(scaled, warnings=(*scaled.warnings, note)))
        return tuple(attributions)

    def explain_cost(self, query: ExplanationQuery) -> int:
        """See `Predictor.explain_cost`."""
        return self._model.explain_cost(self._with_medians(query))

    def default_targets(self) -> tuple[TargetPoint, ...]:
        """See `Predictor.default_targets`."""
        return self._model.default_targets()

    def info(self, aliases: tuple[str, ...], *, is_default: bool) -> ModelInfo:
        """See `Predictor.info`."""
        return self._model.info(aliases, is_default=is_default)

    def _adapt(self, forecast: Forecast) -> Forecast:
        """The forecast with its widths and a warning that says so."""
        try:
            widths = self._widths.find(forecast)
            adapted = widths.apply(forecast)
        except LedgerError as error:
            return replace(forecast, warnings=(*forecast.warnings, describe_calibrated(error)))
        return replace(adapted, warnings=(*adapted.warnings, describe_widths(widths, adapted)))

    def _with_medians(self, query: ExplanationQuery) -> ExplanationQuery:
        """The query for its targets and the median of each of their horizons."""
        targets = query.targets or self.default_targets()
        return replace(query, targets=tuple(dict.fromkeys([*targets, *map(self._median_of, targets)])))

    def _median_of(self, target: TargetPoint) -> TargetPoint:
        return TargetPoint(target.horizon, self.default_targets()[0].quantile)


def describe_widths(widths: AdaptiveWidths, forecast: Forecast) -> str:
    """The warning of an adaptive forecast."""
    day = format_date(widths.session)
    is_older = day != str(forecast.as_of_session)
    older = f", before the last bar of {forecast.as_of_session}; run quantra daily --adaptive" if is_older else ""
    return f"the band is adaptive, with the widths that quantra daily recorded for {day}{older}"


def describe_calibrated(error: LedgerError) -> str:
    """The warning of a forecast without adaptive widths."""
    return f"the band is not adaptive but as calibrated: {error.message}"


def scale_around_median(quantile: Attribution, median: Attribution, factor: float, values: FloatArray) -> Attribution:
    """The attribution of median + factor x (quantile - median); the served forecast is `values` [S].

    If scaling would make quantiles cross, the served forecast differs from the formula; the conformal row carries the
    difference.
    """

    def scaled(quantile: FloatArray, median: FloatArray) -> FloatArray:
        return factor * quantile + (1 - factor) * median

    def scaled_if_known(quantile: FloatArray | None, median: FloatArray | None) -> FloatArray | None:
        return None if quantile is None or median is None else scaled(quantile, median)

    per_row = scaled(quantile.per_row, median.per_row)
    offsets = [row for row, kind in enumerate(quantile.row_kinds) if kind is RowKind.CONFORMAL]
    per_row[:, offsets] += (values - scaled(quantile.prediction, median.prediction))[:, None]
    return replace(
        quantile,
        per_row=per_row,
        per_time=scaled_if_known(quantile.per_time, median.per_time),
        cells=scaled_if_known(quantile.cells, median.cells),
        prediction=values,
        baseline_prediction=scaled(quantile.baseline_prediction, median.baseline_prediction),
        relative_gap=np.maximum(quantile.relative_gap, median.relative_gap),
        converged=quantile.converged & median.converged,
        nodes=np.maximum(quantile.nodes, median.nodes),
    )
