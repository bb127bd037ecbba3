"""A forecaster that serves one artifact in process, with the methods of a server's client."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from predictor.artifact import name_folder_in_errors
from predictor.call_context import NEVER, CallContext
from predictor.catalog import EngineName, ModelInfo
from predictor.covariates import Covariates
from predictor.errors import UnavailableError
from predictor.forecast import Attribution, Explanation, Forecast, Outcome, require_forecast
from predictor.global_importance import GlobalExplanationQuery, GlobalImportance
from predictor.inference import choose_device
from predictor.instance import ExplanationQuery, InstanceLike, create_importance_query, require_bars, to_instance
from predictor.model import Predictor
from predictor.price_paths import PricePaths, simulate_paths
from predictor.registry import ModelVersions, Registry, Runtime, load_model
from predictor.service import PredictionService


class Forecaster:
    """One model, loaded into this process.

    Example:
        forecaster = Forecaster.load("models/demo/1")
        forecast = forecaster.predict(BarPanel.read("bars.csv").select(["AAPL"]))
    """

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._is_closed = False

    @classmethod
    def load(
        cls, path: str | Path, device: str = "auto", *, max_batch_rows: int = 256, engine: EngineName = "eager"
    ) -> Self:
        """Load one artifact folder, usually `models/NAME/VERSION`.

        Args:
            path: the folder.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            max_batch_rows: most rows of one forward pass.
            engine: `eager`, or `onnxruntime` for the batch sizes at which it is faster; CPU only.

        Raises:
            ArtifactError: the artifact is damaged, incomplete, foreign or too new.
            ConfigurationError: the device does not exist or cannot serve models, or the engine does not run on it.
            MissingPackageError: a package of the engine is not installed.
        """
        folder = Path(path).resolve()
        name, version = folder.parent.name, int(folder.name) if folder.name.isdecimal() else 0
        runtime = Runtime(choose_device(device), max_batch_rows, engine)
        with name_folder_in_errors(Path(path)):
            model = load_model(folder, (name, version), runtime)
        return cls.of(model)

    @classmethod
    def of(cls, model: Predictor) -> Self:
        """Wrap a model that is already in memory, under its name and version."""
        served = ModelVersions.of(model)
        return cls(PredictionService(Registry(models={model.identity.name: served}, problems=())))

    def predict(self, bars: InstanceLike, covariates: Covariates | None = None) -> Forecast:
        """Forecast one panel of bars.

        Args:
            bars: the panel, a DataFrame of bars, or a complete instance.
            covariates: the model's inputs other than bars, such as `CovariateSource.read([...]).for_model(...)`.

        Raises:
            QuantraError: the bars cannot be forecast; see predictor.errors.
        """
        return require_forecast(self.predict_many([to_instance(bars, covariates)])[0])

    def predict_many(self, instances: Sequence[InstanceLike]) -> tuple[Outcome, ...]:
        """Forecast many panels, in order; the outcome of an invalid one is its error."""
        self._check_open()
        return self._service.predict_inline("", [to_instance(item) for item in instances], NEVER)

    def simulate(
        self, bars: InstanceLike, covariates: Covariates | None = None, *, paths: int = 1000, seed: int = 0
    ) -> PricePaths:
        """Draw joint price paths whose distribution at each horizon is the forecast's; see `predictor.price_paths`.

        Args:
            bars: as for `predict`, with more than a year of bars before the last one.
            covariates: as for `predict`.
            paths: number of paths.
            seed: seed of the draw; the same arguments give the same bits.

        Raises:
            QuantraError: as `predict` and `simulate_paths`.
        """
        instance = to_instance(bars, covariates)
        past = require_bars(instance, "paths")
        return simulate_paths(self.predict(instance), past, paths=paths, seed=seed)

    def feature_importance(
        self,
        bars: InstanceLike,
        horizon: int = 5,
        quantile: float = 0.5,
        covariates: Covariates | None = None,
    ) -> Attribution:
        """Attribute the difference of one quantile of one horizon from the baseline's to the inputs.

        Raises:
            QuantraError: the bars cannot be forecast, or the model has no such horizon or quantile.
        """
        return self.explain(create_importance_query(bars, horizon, quantile, covariates)).attributions[0]

    def explain(self, query: ExplanationQuery) -> Explanation:
        """Attribute many targets at once.

        Raises:
            QuantraError: as `feature_importance`.
        """
        self._check_open()
        return self._service.explain("", query, CallContext()).result()

    def explain_global(self, query: GlobalExplanationQuery) -> Iterator[GlobalImportance]:
        """Explain the forecasts of many instances together; yields interim results, and the final one last.

        Raises:
            QuantraError: as `feature_importance`, at any step.
        """
        self._check_open()
        interim: SimpleQueue[GlobalImportance | None] = SimpleQueue()
        context = CallContext()
        final = self._service.explain_global("", query, interim.put, context)
        final.add_done_callback(lambda _: interim.put(None))
        try:
            yield from iter(interim.get, None)
            yield final.result()
        finally:
            context.cancel()  # stops the work if the caller stops iterating

    def model(self) -> ModelInfo:
        """Describe the model: its inputs, targets and origin."""
        return self._service.model("")

    def close(self) -> None:
        """Finish the queued requests; later ones raise UnavailableError."""
        self._is_closed = True
        self._service.close()

    def __repr__(self) -> str:
        info = self.model()
        horizons = ", ".join(map(str, info.horizons))
        return f"Forecaster({info.name}@{info.version}: {info.kind}, {info.target_kind}, {horizons} sessions ahead)"

    def _check_open(self) -> None:
        if self._is_closed:
            raise UnavailableError(
                "this forecaster is closed; use it inside its `with` block, or load the artifact again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
