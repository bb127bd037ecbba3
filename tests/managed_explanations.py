"""Writes Python's explanations of requests that the C# package without Python is tested with.

    python tests/managed_explanations.py

Run it after a change of an explanation. The requests and the models are those of `managed_artifacts`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import managed_artifacts
from managed_artifacts import FOLDER, NEVER, Request

from predictor.errors import QuantraError
from predictor.forecast import Attribution, Detail, TargetPoint
from predictor.instance import OCCLUSION, SHAPLEY, ExplanationQuery, Instance
from predictor.model import Predictor

FILE: Final = FOLDER.parent / "Fixtures" / "explanations.json"
ARRAYS: Final = ("per_row", "per_time", "cells", "prediction", "baseline_prediction", "relative_gap")
"""Fields whose last bits depend on the processor."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A request to explain the forecast of another request."""

    request: str
    """Its name."""
    targets: tuple[TargetPoint, ...] = ()
    symbols: tuple[str, ...] = ()
    detail: Detail = Detail.CELLS
    tolerance: float = 0.01
    method: str = ""
    """Empty = the model's default."""

    def describe(self, model: Predictor, request: Request) -> dict[str, object]:
        """The request and Python's result."""
        return {
            "request": self.request,
            "targets": [list(target) for target in self.targets],
            "symbols": list(self.symbols),
            "detail": self.detail.value,
            "tolerance": self.tolerance,
            "method": self.method,
            "expected": _describe_outcome(self._outcome(model, request)),
        }

    def _outcome(self, model: Predictor, request: Request) -> tuple[Attribution, ...] | QuantraError:
        instance = Instance(input=request.bars, covariates=request.covariates)
        query = ExplanationQuery(
            instance=instance,
            targets=self.targets,
            symbols=self.symbols,
            detail=self.detail,
            tolerance=self.tolerance,
            method=self.method,
        )
        try:
            return model.explain(query, request.now, NEVER)
        except QuantraError as error:
            return error


EXPLANATIONS: Final[Mapping[str, Explanation]] = {
    "panel": Explanation(request="panel"),
    "gru": Explanation(request="gru"),
    "delayed": Explanation(request="delayed", targets=(TargetPoint(3, 0.9), TargetPoint(1, 0.1), TargetPoint(3, 0.9))),
    "fitted": Explanation(request="fitted", detail=Detail.TIMES),
    "volatility": Explanation(request="volatility"),
    "covariates": Explanation(request="covariates"),
    "har": Explanation(request="har", detail=Detail.FEATURES),
    "garch": Explanation(request="garch"),
    "tft": Explanation(request="tft"),
    "hybrid": Explanation(request="hybrid", targets=(TargetPoint(5, 0.5), TargetPoint(1, 0.1)), tolerance=1e-4),
    "graph": Explanation(request="a whole universe", targets=(TargetPoint(5, 0.5), TargetPoint(1, 0.1))),
    "a stranger": Explanation(request="a stranger and no bar of a neighbour", symbols=("X", "MSFT", "IBM")),
    "Shapley values of neighbours": Explanation(request="a whole universe", detail=Detail.FEATURES, method=SHAPLEY),
    "occlusion of neighbours": Explanation(request="a whole universe", detail=Detail.FEATURES, method=OCCLUSION),
    "ranked together": Explanation(request="ranked together", detail=Detail.FEATURES),
    "ranked by one member": Explanation(request="ranked by one member", detail=Detail.FEATURES),
    "trees": Explanation(request="trees", targets=(TargetPoint(5, 0.5), TargetPoint(1, 0.9)), detail=Detail.FEATURES),
    "one symbol of two": Explanation(request="panel", symbols=("IBM",)),
    "symbols in another order": Explanation(request="panel", symbols=("IBM", "AAPL"), detail=Detail.FEATURES),
    "one without a forecast": Explanation(request="one did not trade", detail=Detail.FEATURES),
    "only one without a forecast": Explanation(request="one did not trade", symbols=("IBM",)),
    "an unknown symbol": Explanation(request="panel", symbols=("X",)),
    "a symbol twice": Explanation(request="panel", symbols=("IBM", "IBM")),
    "an unknown horizon": Explanation(request="panel", targets=(TargetPoint(3, 0.5),)),
    "an unknown quantile": Explanation(request="panel", targets=(TargetPoint(5, 0.4),)),
    "sessions of trees": Explanation(request="trees", detail=Detail.TIMES),
    "too few bars": Explanation(request="too few bars"),
    "Shapley values": Explanation(
        request="delayed",
        targets=(TargetPoint(3, 0.9), TargetPoint(1, 0.1)),
        detail=Detail.FEATURES,
        method=SHAPLEY,
    ),
    "Shapley values of covariates": Explanation(request="covariates", detail=Detail.FEATURES, method=SHAPLEY),
    "Shapley values of trees": Explanation(request="trees", detail=Detail.FEATURES, method=SHAPLEY),
    "Shapley values of attention": Explanation(request="tft", detail=Detail.FEATURES, method=SHAPLEY),
    "Shapley values of sessions": Explanation(request="gru", detail=Detail.TIMES, method=SHAPLEY),
    "occlusion": Explanation(request="covariates", detail=Detail.FEATURES, method=OCCLUSION),
    "an unknown method": Explanation(request="gru", method="tree-shap"),
    "ensemble": Explanation(
        request="ensemble", targets=(TargetPoint(5, 0.5), TargetPoint(1, 0.9)), detail=Detail.FEATURES
    ),
    "ensemble, occlusion": Explanation(request="ensemble", detail=Detail.FEATURES, method=OCCLUSION),
    "ensemble, an unknown method": Explanation(request="ensemble", method="tree-shap"),
    "ensemble, sessions": Explanation(request="ensemble", detail=Detail.TIMES, method=OCCLUSION),
    "ensemble, one without a forecast": Explanation(
        request="ensemble, too young for a member", symbols=("IBM", "AAPL"), detail=Detail.FEATURES
    ),
    "ensemble, only one without a forecast": Explanation(
        request="ensemble, too young for a member", symbols=("IBM",), detail=Detail.FEATURES
    ),
    "ensemble, no forecast of either": Explanation(
        request="ensemble, no bar of either", symbols=("X",), detail=Detail.FEATURES
    ),
    "weighted": Explanation(request="weighted", targets=(TargetPoint(1, 0.1), TargetPoint(5, 0.9))),
    "weighted, one without a forecast": Explanation(request="weighted, too young for a member"),
    "weighted, an unknown horizon": Explanation(request="weighted", targets=(TargetPoint(3, 0.5),)),
}
"""Requests by name."""


def _describe_outcome(outcome: tuple[Attribution, ...] | QuantraError) -> object:
    if isinstance(outcome, QuantraError):
        return {"error": managed_artifacts.describe_error(outcome)}
    return [_describe(attribution) for attribution in outcome]


def _describe(attribution: Attribution) -> dict[str, object]:
    plain = managed_artifacts.to_plain
    described = {one.name: plain(getattr(attribution, one.name)) for one in fields(attribution) if one.name != "skill"}
    described["skill"] = None if attribution.skill is None else attribution.skill.line
    described["converged"] = attribution.converged.tolist()
    described["nodes"] = attribution.nodes.tolist()
    described["refusals"] = {
        symbol: managed_artifacts.describe_error(error) for symbol, error in attribution.refusals.items()
    }
    described["internals"] = [
        {one.name: plain(getattr(internal, one.name)) for one in fields(internal)} for internal in attribution.internals
    ]
    return described


def describe_all() -> dict[str, dict[str, object]]:
    """All requests with Python's results, by name."""
    models = managed_artifacts.load_models(FOLDER)
    requests = managed_artifacts.list_requests(lambda model: models[model].info((), is_default=True).bars_needed)
    return {
        name: explanation.describe(models[requests[explanation.request].model], requests[explanation.request])
        for name, explanation in EXPLANATIONS.items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(describe_all(), indent=1) + "\n", encoding="utf-8")
