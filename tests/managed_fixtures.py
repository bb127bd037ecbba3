"""Fixtures for the C# package that computes forecasts without Python: networks with inputs and expected outputs.

Run `python tests/managed_fixtures.py` after a change of a network or an operator; a test compares the committed files.
"""

import gzip
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from artifacts import fitted_normaliser, random_trees, small_pipeline
from numpy.typing import NDArray
from torch import Tensor, nn

from predictor import canonical
from predictor.artifact.artifact import write_arrays, write_tensors
from predictor.bars import AdjustedBars
from predictor.call_context import NEVER
from predictor.errors import ExpressionError
from predictor.explain import Baseline, Explainer, TreeExplainer, build_attribution_view
from predictor.features import (
    KNOWN,
    OBSERVED,
    CovariateFields,
    FeatureSet,
    FittedFeatures,
    Scaling,
    StaticCategory,
    StaticFeatures,
    StaticNumber,
    load_alpha158_features,
    load_default_features,
    parse,
)
from predictor.features.evaluator import EvaluationPlan
from predictor.features.operators import OPERATORS, Operator
from predictor.golden.bars import make_synthetic_bars
from predictor.model.runner import find_members
from predictor.networks import (
    GraphConfig,
    GraphForecaster,
    GRUConfig,
    HybridConfig,
    Inputs,
    InputSizes,
    LSTMConfig,
    NetworkConfig,
    Normaliser,
    OutputMap,
    Target,
    TargetKind,
    TFTConfig,
    TreesConfig,
    TreesForecaster,
    UnconditionalConfig,
    WindowNormaliser,
    build_network,
    get_kind,
    list_config_settings,
    write_normaliser,
)

FOLDER: Final = Path(__file__).resolve().parents[1] / "dotnet" / "Quantra.Client.Managed.Tests" / "Fixtures"
ROWS: Final = 5
LEVELS: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
TARGET: Final = Target(lag=1, horizons=(1, 3, 6))
EXPLAINED: Final = 2
"""Rows with an explanation."""
POINTS: Final = ((0, 2), (1, 0), (2, 3))
"""Indices of the horizons and quantiles that are explained."""
NODE_COUNTS: Final = (3, 6, 12, 24)
OFFSETS: Final = ((-0.1, 0.0, 0.0, 0.0, 0.1), (-0.2, -0.1, 0.0, 0.1, 0.3), (0.0, 0.0, 0.0, -2.0, 0.0))
"""Conformal offsets; the last quantile that is explained crosses the median somewhere between baseline and window."""
SIZES: Final = InputSizes(
    encoder_length=23, future_length=TARGET.reach, observed=5, known=3, static=5, static_widths=(2, 3)
)
PLAIN_SIZES: Final = replace(SIZES, known=0, static=0, static_widths=())
GRAPH_SIZES: Final = replace(SIZES, nodes=6)
NODES: Final = (4, 0, -1, 5, 2)
"""Nodes of the rows: one is unknown, and two of the graph are missing."""
ABSENT: Final = 3
"""A row whose last session is wholly unknown."""
EDGES: Final = ((2, 4, 1), (0, 3, -1), (4, 5, 0), (1, -1, -1), (3, 5, 0), (-1, -1, -1))
"""Neighbours of each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCase:
    """A network whose outputs are recorded."""

    kind: str
    config: NetworkConfig
    sizes: InputSizes = SIZES
    columns: int = 1000
    """Most columns that trees compare; with few, a path to a leaf compares a column twice."""


NETWORKS: Final[Mapping[str, NetworkCase]] = {
    "lstm": NetworkCase(kind="lstm", config=LSTMConfig(hidden=20, layers=2)),
    "lstm-plain": NetworkCase(kind="lstm", config=LSTMConfig(hidden=33, layers=1), sizes=PLAIN_SIZES),
    "gru": NetworkCase(kind="gru", config=GRUConfig(hidden=16, layers=2)),
    "gru-plain": NetworkCase(kind="gru", config=GRUConfig(hidden=7, layers=1), sizes=PLAIN_SIZES),
    "hybrid": NetworkCase(kind="hybrid", config=HybridConfig(hidden=12, heads=3, blocks=2)),
    "hybrid-plain": NetworkCase(kind="hybrid", config=HybridConfig(hidden=16, heads=1, layers=2), sizes=PLAIN_SIZES),
    "tft": NetworkCase(kind="tft", config=TFTConfig(hidden=12, heads=3)),
    "tft-plain": NetworkCase(kind="tft", config=TFTConfig(hidden=18, heads=2, highway=False), sizes=PLAIN_SIZES),
    "graph": NetworkCase(kind="graph", config=GraphConfig(hidden=12, heads=3, neighbours=3), sizes=GRAPH_SIZES),
    "graph-plain": NetworkCase(
        kind="graph",
        config=GraphConfig(hidden=16, heads=1, neighbours=3, patch=1, frequencies=0),
        sizes=replace(PLAIN_SIZES, nodes=GRAPH_SIZES.nodes),
    ),
    "trees": NetworkCase(kind="trees", config=TreesConfig(trees=7, leaves=4)),
    "trees-plain": NetworkCase(kind="trees", config=TreesConfig(trees=3, leaves=4), sizes=PLAIN_SIZES, columns=2),
    "har": NetworkCase(kind="har", config=UnconditionalConfig()),
}
"""Widths below, at and above multiples of a vector's length, with and without known and static features."""


def random_inputs(sizes: InputSizes, generator: torch.Generator) -> Inputs:
    """Windows with some unknown cells."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    mask = torch.rand((ROWS, sizes.encoder_length, sizes.observed), generator=generator) < 0.9
    mask[0, :, 0] = False
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
    kind, target = get_kind(case.kind), TARGET
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        network = build_network(kind, case.config, sizes=case.sizes, target=target, levels=LEVELS).eval()
        for parameter in network.parameters():
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
        if isinstance(network, TreesForecaster):
            trees = random_trees(network.state_dict())
            trees["columns"] %= min(case.columns, sum(network.summaries.widths))
            network.load_state_dict(trees)
        if isinstance(network, GraphForecaster):
            network.neighbours.copy_(torch.tensor(EDGES))
            network.weights.normal_()
    inputs = random_inputs(case.sizes, torch.Generator().manual_seed(8))
    nodes = torch.tensor(NODES)
    if case.sizes.nodes:  # a row that others do not attend to
        inputs.mask[ABSENT, -1] = False
        inputs.observed[ABSENT, -1] = 0
    explanation = explain(network, case.sizes, inputs, nodes)
    wide = Inputs(*(group if group.dtype == torch.bool else group.double() for group in inputs))
    weights = {f"weights.{key}": tensor for key, tensor in network.state_dict().items()}
    arrays = {f"inputs.{key}": tensor for key, tensor in inputs._asdict().items()}
    with torch.inference_mode():
        if isinstance(network, GraphForecaster):
            (units, scores), exact = network(inputs, nodes), network.double()(wide, nodes).quantiles
            arrays |= {"scores": scores, "inputs.nodes": nodes}
        else:
            units, exact = network(inputs), network.double()(wide)
    return {
        f"networks/{name}.json": canonical.to_bytes(
            {
                "network": {
                    "kind": kind.name,
                    "kind_version": kind.version,
                    "config": list_config_settings(case.config),
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
                    **({"nodes": case.sizes.nodes} if case.sizes.nodes else {}),
                },
            }
        ),
        f"networks/{name}.safetensors": write_tensors(
            {**weights, **arrays, **explanation, "units": units, "units_float64": exact.double()}
        ),
    }


def explain(network: nn.Module, sizes: InputSizes, inputs: Inputs, nodes: Tensor) -> dict[str, Tensor]:
    """The baseline, the offsets and the contributions to all `POINTS` of the first rows."""
    random, horizons = np.random.default_rng(9), len(TARGET.horizons)
    baseline = Baseline(
        name="train_mean",
        known=random.normal(size=sizes.known).astype(np.float32),
        static=random.normal(size=sizes.static).astype(np.float32),
        location=random.normal(size=horizons) / 100,
        scale=np.exp(random.normal(size=horizons)) / 100,
    )
    output = OutputMap(spread=torch.from_numpy(TARGET.spread), offsets=torch.tensor(OFFSETS).double(), levels=LEVELS)
    windows, of_windows, members = inputs.rows(0, EXPLAINED), None, None
    if isinstance(network, GraphForecaster):
        rows, members = find_members(nodes, network.neighbours)[:EXPLAINED], 1 + network.neighbours.shape[1]
        windows = Inputs(*(group[rows.clamp(min=0)] for group in inputs))
        windows = windows._replace(mask=windows.mask & (rows >= 0)[..., None, None])
        of_windows = torch.where(rows >= 0, nodes[rows.clamp(min=0)], -1)
    explainer = (
        TreeExplainer(network, output, baseline)
        if isinstance(network, TreesForecaster)
        else Explainer(build_attribution_view(network), output, baseline, max_rows=64, members=members)
    )
    points = explainer.explain(windows, POINTS, deadline=NEVER, node_counts=NODE_COUNTS, nodes=of_windows)
    arrays: dict[str, NDArray[np.generic]] = {
        "known_baseline": baseline.known,
        "static_baseline": baseline.static,
        "location_baseline": baseline.location,
        "scale_baseline": baseline.scale,
        "ends": np.array([[one.baseline_prediction, one.prediction] for one in points]),
        "alone": np.array([[one.location, one.scale, one.conformal, one.relative_gap] for one in points]),
        "nodes": np.array([one.nodes for one in points], np.int32),
        **{name: np.array([getattr(one, name) for one in points]) for name in ("observed", "known", "static")},
    }
    if members is not None:
        arrays["neighbours"] = np.array([one.neighbours.sum(axis=1) for one in points])
    return {
        "explanation.offsets": output.offsets,
        **{f"explanation.{name}": torch.from_numpy(values) for name, values in arrays.items()},
    }


LAST: Final = 6
"""Sessions whose features are recorded."""
BAR_COLUMNS: Final = ("open", "high", "low", "close", "volume", "money")


def adjusted_bars() -> AdjustedBars:
    """Bars with a missing one, flat prices, a halt, a split, a dividend and a day without volume."""
    return make_synthetic_bars([small_pipeline(Target())]).adjusted()


def bar_arrays(bars: AdjustedBars) -> dict[str, NDArray[np.generic]]:
    """The columns of bars, [S, T] each."""
    return {f"bars.{name}": getattr(bars, name) for name in BAR_COLUMNS}


def feature_sets() -> Mapping[str, FittedFeatures]:
    """Features with arbitrary scalings."""
    covariates = CovariateFields(observed=("news", "rates"), known=("meetings",))
    statics = StaticFeatures(
        numbers=(StaticNumber(name="size", center=0.5, scale=2.0),),
        categories=(StaticCategory(name="sector", categories=("banks", "energy")),),
    )
    return {
        "default": _fitted(load_default_features()),
        "alpha158": _fitted(load_alpha158_features()),
        "covariates": _fitted(load_default_features().with_covariates(covariates), statics),
    }


def _fitted(features: FeatureSet, statics: StaticFeatures | None = None) -> FittedFeatures:
    generator, known = np.random.default_rng(11), sum(features.of_covariates)
    count = len(features.observed)
    return FittedFeatures(
        features=features,
        scaling=Scaling(center=generator.normal(size=count) / 10, scale=np.exp(generator.normal(size=count) - 2)),
        known_scaling=Scaling(center=generator.normal(size=known) / 10, scale=np.exp(generator.normal(size=known))),
        statics=statics or StaticFeatures(),
    )


def write_features(name: str, fitted: FittedFeatures) -> dict[str, bytes]:
    """Files of one feature set: features.json, and its values for the synthetic bars."""
    bars, generator = adjusted_bars(), np.random.default_rng(12)
    shape = bars.close.shape
    sessions = np.asarray(small_pipeline(Target()).calendar.sessions(20100104, 20100330), np.int32)
    fields_of_days = small_pipeline(Target()).calendar.fields(sessions)
    calendar = {one: values for one, values in fields_of_days.items() if one in KNOWN.formulas}
    fields = fitted.features.covariates
    observed = {
        one: np.where(generator.random(shape) < 0.1, np.nan, generator.normal(size=shape)) for one in fields.observed
    }
    known = {one: generator.normal(size=(shape[0], len(sessions))) for one in fields.known}
    for values in known.values():
        values[0, 3] = np.nan
    numbers = {one.name: np.r_[np.nan, 40.0, generator.normal(size=shape[0] - 2)] for one in fitted.statics.numbers}
    categories = {one.name: ("", "stranger", *one.categories, "banks")[: shape[0]] for one in fitted.statics.categories}
    scaled, mask = fitted.observed(bars, observed, last=LAST)
    arrays = {
        **bar_arrays(bars),
        **{f"observed.{one}": values for one, values in observed.items()},
        **{f"known.{one}": values for one, values in known.items()},
        **{f"calendar.{one}": values for one, values in calendar.items()},
        **{f"numbers.{one}": values for one, values in numbers.items()},
        "features": fitted.features.evaluate(bars, observed)[:, -LAST:],
        "scaled": scaled,
        "mask": mask,
        "known": fitted.known(calendar, known),
        "static": fitted.statics.encode(shape[0], numbers, categories),
    }
    return {
        f"features/{name}.json": fitted.to_json(),
        f"features/{name}.safetensors": write_arrays(arrays),
        f"features/{name}.categories.json": canonical.to_bytes({one: list(texts) for one, texts in categories.items()}),
    }


def normalisers() -> Mapping[str, tuple[Target, Normaliser]]:
    """Normalisers of both kinds and targets."""
    returns, volatility = Target(horizons=(1, 5)), Target(kind=TargetKind.LOG_VOLATILITY, horizons=(1, 5))
    return {
        "window": (returns, WindowNormaliser()),
        "centred": (volatility, WindowNormaliser(centred=True, decay=1.0)),
        "long": (returns, WindowNormaliser(window=200, centred=True)),
        "har": (returns, fitted_normaliser(returns, "har")),
        "garch": (returns, fitted_normaliser(returns, "garch")),
        "mixed": (returns, fitted_normaliser(returns)),
        "level": (volatility, fitted_normaliser(volatility)),
    }


def write_normalisers() -> dict[str, bytes]:
    """Files with the settings of all normalisers and their levels for the synthetic bars."""
    bars, arrays, settings = adjusted_bars(), bar_arrays(adjusted_bars()), {}
    for name, (target, normaliser) in normalisers().items():
        pipeline = replace(small_pipeline(target), normaliser=normaliser)
        series = normaliser.series(target, bars)
        location, scale = pipeline.compute_latest_levels(series)
        stages = normaliser.stages(tuple(one[:, -normaliser.window :] for one in series))
        arrays |= {f"{name}.location": location, f"{name}.scale": scale}
        arrays |= {f"{name}.stage.{stage}": values for stage, values in stages.items()}
        settings[name] = {
            "target": {"kind": target.kind.value, "lag": target.lag, "horizons": list(target.horizons)},
            "normaliser": write_normaliser(normaliser),
        }
    return {
        "features/normalisers/settings.json": canonical.to_bytes(settings),
        "features/normalisers/levels.safetensors": write_arrays(arrays),
    }


EXPRESSIONS: Final = 1000
FUZZ_SESSIONS, FUZZ_LAST = 70, 20
DEEPEST: Final = 4


class ExpressionGenerator:
    """Random expressions with windows of up to 15 bars."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def expression(self, depth: int = DEEPEST) -> str:
        """The text of an expression, which the parser may reject."""
        kind = self._random.random()
        if depth == 0 or kind < 0.1:
            return f"${self._random.choice(BAR_COLUMNS)}"
        if kind < 0.15:
            return self._random.choice(("1", "2.50", "1e-9", "0.1", "100", "3e0", ".5"))
        if kind < 0.2:
            return f"-{self.expression(depth - 1)}"
        if kind < 0.5:
            return f"({self.expression(depth - 1)} {self._random.choice('+-*/<>')} {self.expression(depth - 1)})"
        return self._call(self._random.choice(list(OPERATORS.values())), depth)

    def _call(self, operator: Operator, depth: int) -> str:
        series = [self.expression(depth - 1) for _ in operator.series]
        windows = [str(self._random.randint(window.smallest, 15)) for window in operator.windows]
        numbers = [
            self._random.choice(("0", "0.25", "0.9", "1")) if one.smallest == 0 else "1e-3" for one in operator.numbers
        ]
        return f"{operator.name}({','.join((*series, *windows, *numbers))})"


def special_columns() -> dict[str, NDArray[np.float64]]:
    """Columns [1, T] with NaN, 0, -1, infinities, equal neighbours and ordinary values."""
    generator = np.random.default_rng(13)
    columns: dict[str, NDArray[np.float64]] = {}
    for name in BAR_COLUMNS:
        values: NDArray[np.float64] = np.exp(generator.normal(3, 0.3, FUZZ_SESSIONS)).round(2)
        for special, share in ((np.nan, 0.015), (0.0, 0.03), (-1.0, 0.03), (np.inf, 0.01), (-np.inf, 0.005)):
            values[generator.random(FUZZ_SESSIONS) < share] = special
        repeated = 1 + np.flatnonzero(generator.random(FUZZ_SESSIONS - 1) < 0.2)
        values[repeated] = values[repeated - 1]
        columns[name] = values[None]
    return columns


def write_expressions() -> dict[str, bytes]:
    """Compressed files with the text and the canonical text of random expressions, and their values [E, T] for bars."""
    generator, columns = ExpressionGenerator(14), special_columns()
    lines: list[str] = []
    values: list[NDArray[np.float64]] = []
    while len(lines) < EXPRESSIONS:
        text = generator.expression()
        try:
            expression = parse(text, OBSERVED)
        except ExpressionError:
            continue
        plan = EvaluationPlan([expression])
        lines.append(f"{text}\t{expression}\t{plan.lookback}\n")
        values.append(plan.evaluate(columns)[0, -FUZZ_LAST:, 0])
    arrays = {**{f"bars.{name}": column for name, column in columns.items()}, "values": np.stack(values)}
    return {
        "expressions.txt.gz": gzip.compress("".join(lines).encode(), mtime=0),
        "expressions.safetensors.gz": gzip.compress(write_arrays(arrays), mtime=0),
    }


def write_all() -> dict[str, bytes]:
    """All files by their path in `FOLDER`."""
    files = {path: data for name, case in NETWORKS.items() for path, data in write_network(name, case).items()}
    for name, fitted in feature_sets().items():
        files |= write_features(name, fitted)
    return files | write_normalisers() | write_expressions()


if __name__ == "__main__":
    for path, data in write_all().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_bytes(data)
