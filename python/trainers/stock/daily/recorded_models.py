"""The versions and baselines of a model whose forecasts are recorded every evening."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from predictor.artifact import find_next_version, is_artifact, name_folder_in_errors
from predictor.bars import BarPanel
from predictor.bars.source import is_address
from predictor.call_context import NEVER
from predictor.covariates import CovariateSource
from predictor.errors import QuantraError
from predictor.features import load_default_features
from predictor.forecast import Forecast
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.inference import choose_device
from predictor.instance import GapPolicy, Instance
from predictor.ledger import ForecastRole, Ledger
from predictor.model_health import ModelVersion
from predictor.networks import Target, TargetKind
from predictor.registry import Runtime, find_version, load_model
from predictor.registry.layout import list_versions
from trainers.stock.backtest.refits import MAX_ROWS
from trainers.stock.data import NO_COVARIATE_FILES
from trainers.stock.evaluation.bound_model import EvaluatedModel, find_calendar, find_last_seen
from trainers.stock.recipe import recipe_of
from trainers.stock.splits import read_splits
from trainers.stock.training import train
from trainers.stock.training_data import TrainingMaterial

BASELINES: Final = ("har", "garch")
"""Kinds without a network, which need no tuning."""
_MAX_LOADED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedModel:
    """A version of a model, or a baseline, in its role."""

    role: ForecastRole
    version: ModelVersion
    model: EvaluatedModel
    folder: Path
    last_seen: int
    """Last session of its training labels, yyyymmdd; it forecasts from this session on."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle where it is loaded from."""
        return load_recorded, (self.folder, self.version, self.role)

    @property
    def reference(self) -> str:
        """Such as mine@3."""
        return self.version.reference

    @property
    def last_session(self) -> int:
        """The last session, yyyymmdd, that it can forecast before its calendar ends."""
        calendar = find_calendar(self.model)
        return int(calendar.sessions(calendar.first, calendar.last)[-1 - self.model.manifest.target.reach])

    def count_sessions_left(self, session: int) -> int:
        """Sessions after this one, yyyymmdd, that it can forecast."""
        last = self.last_session
        return len(find_calendar(self.model).sessions(session, last)) - 1 if session < last else 0

    def can_forecast(self, session: int) -> bool:
        """Whether its calendar covers the targets of this session, yyyymmdd."""
        return session <= self.last_session

    def forecast(
        self, bars: BarPanel, covariates: CovariateSource = NO_COVARIATE_FILES, *, accept_suspect_bars: bool = False
    ) -> Forecast:
        """Forecast all symbols of bars that end with the session.

        Raises:
            QuantraError: no symbol can be forecast, or the model's calendar has ended.
        """
        info = self.model.info((), is_default=False)
        recent = bars.last(info.bars_needed)
        instance = Instance(
            input=recent,
            allow_incomplete_last_bar=True,
            accept_suspect_bars=accept_suspect_bars,
            gap_policy=GapPolicy.IGNORE,
            covariates=covariates.for_model(info, recent),
        )
        (outcome,) = self.model.predict([instance], AFTER_ALL_SESSIONS, NEVER)
        if isinstance(outcome, QuantraError):
            raise outcome
        return outcome


@lru_cache(maxsize=_MAX_LOADED)
def _load(folder: Path, name: str, version: int) -> EvaluatedModel:
    with name_folder_in_errors(folder):
        return load_model(folder, (name, version), Runtime(choose_device("cpu"), MAX_ROWS))


def load_recorded(folder: Path, version: ModelVersion, role: ForecastRole) -> RecordedModel:
    """Load an artifact.

    Raises:
        ArtifactError: it is damaged, or its card lacks the splits.
    """
    folder = folder.resolve()
    model = _load(folder, *version)
    return RecordedModel(role=role, version=version, model=model, folder=folder, last_seen=find_last_seen(model))


def load_champion(model_folder: Path) -> RecordedModel:
    """The champion of a model, or the newest version of a model without one.

    Raises:
        VersionNotFoundError: the folder has no version.
        ArtifactError: it is damaged, or the aliases cannot be read.
    """
    _, number = find_version(model_folder.parent, model_folder.name)
    return load_recorded(model_folder / str(number), ModelVersion(model_folder.name, number), ForecastRole.CHAMPION)


def load_challengers(model_folder: Path, champion: RecordedModel, failed: dict[str, str]) -> Iterator[RecordedModel]:
    """The newer versions with the champion's target and quantiles; `failed` receives why others are left out."""
    for number in sorted(list_versions(model_folder)):
        if number <= champion.version.number or not is_artifact(model_folder / str(number)):
            continue
        version = ModelVersion(model_folder.name, number)
        try:
            challenger = load_recorded(model_folder / str(number), version, ForecastRole.CHALLENGER)
        except QuantraError as error:
            failed[f"{model_folder.name}@{number}"] = error.message
            continue
        ours, theirs = (recorded.model.manifest for recorded in (challenger, champion))
        if (ours.target, ours.quantiles) == (theirs.target, theirs.quantiles):
            yield challenger
        else:
            failed[challenger.reference] = f"its target or quantiles are not those of {champion.reference}"


def list_baselines(target: Target) -> tuple[str, ...]:
    """The kinds of baselines for a target."""
    return tuple(kind for kind in BASELINES if kind != "garch" or target.kind is TargetKind.LOG_RETURN)


@dataclass(frozen=True, slots=True)
class BaselineFolder:
    """The baselines of a ledger's models, which are small artifacts."""

    path: Path

    @classmethod
    def of(cls, ledger: Ledger, models: Path) -> "BaselineFolder":
        """The folder next to the ledger's file, or for a ledger in a database next to the folder of the models."""
        if is_address(ledger.address):
            return cls(Path(f"{models.resolve()}.baselines") / ledger.id)
        return cls(Path(f"{ledger.address}.baselines"))

    def load(self, champion: RecordedModel, bars: BarPanel, failed: dict[str, str]) -> Iterator[RecordedModel]:
        """The baselines of a model, fitted on its champion's training days, and again after their calendar ends.

        `failed` receives why others are left out. A ledger cannot tell a baseline from a model of the same name.
        """
        for kind in list_baselines(champion.model.manifest.target):
            name = f"{champion.version.model}-{kind}"
            namesake = champion.folder.parent.with_name(name)
            if namesake.is_dir():
                failed[name] = f"the baseline has the name of the model in {namesake}; rename that model"
                continue
            try:
                yield self._load_newest(kind, name, champion, bars)
            except QuantraError as error:
                failed[name] = error.message

    def _load_newest(self, kind: str, name: str, champion: RecordedModel, bars: BarPanel) -> RecordedModel:
        out = find_next_version(self.path / name)
        newest = int(out.name) - 1
        if newest:
            version = ModelVersion(name, newest)
            recorded = load_recorded(out.with_name(str(newest)), version, ForecastRole.BASELINE)
            ours, theirs = recorded.model.manifest, champion.model.manifest
            forecasts_the_same = (ours.target, ours.quantiles) == (theirs.target, theirs.quantiles)
            if forecasts_the_same and recorded.can_forecast(int(bars.sessions[-1])):
                return recorded
        self._fit(kind, champion, bars, out)
        return load_recorded(out, ModelVersion(name, newest + 1), ForecastRole.BASELINE)

    def find(self, version: ModelVersion) -> Path:
        """The folder of a baseline; it may be missing."""
        return self.path / version.model / str(version.number)

    @staticmethod
    def _fit(kind: str, champion: RecordedModel, bars: BarPanel, out: Path) -> None:
        manifest = champion.model.manifest
        recipe = replace(
            recipe_of(kind),
            target=manifest.target,
            quantiles=manifest.quantiles,
            calendar=find_calendar(champion.model).name,
            parts=replace(read_splits(manifest.card), test=None),
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        train(TrainingMaterial(bars, load_default_features()), recipe, out, consume=iter)
