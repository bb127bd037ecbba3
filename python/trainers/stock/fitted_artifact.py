"""An artifact that is fitted but not saved: one model, or an ensemble of several kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from predictor import artifact, canonical
from predictor.artifact import StoredEnsemble
from predictor.bars import BarPanel
from predictor.card import Card
from predictor.covariates import CovariateSource
from predictor.errors import ConfigurationError
from predictor.inference import choose_device
from predictor.jobs import JobRunner
from predictor.registry import Runtime
from predictor.registry.model_loader import StoredVersion, build, read_version
from trainers.loop import LoopError
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.stock.data_warnings import without_repeats
from trainers.stock.ensembles.member_training import BEST, BestPlan, train_best
from trainers.stock.evaluation.bound_model import EvaluatedModel
from trainers.stock.feature_cache import FeatureCache
from trainers.stock.progress_output import ProgressOutput
from trainers.stock.training import TrainingResult, train_in_memory
from trainers.stock.training_jobs import PlannedTraining, TrainingRunner, save_trained
from trainers.stock.training_plan import TrainingPlan, set_calendar


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedArtifact:
    """An artifact that is not saved yet."""

    files: Mapping[str, bytes]
    """By path in the artifact's folder."""
    stored: StoredVersion
    """The same files, parsed."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Self:
        """Parse the files of a new artifact."""
        return cls(files=files, stored=artifact.unpack_artifact(files))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the folder of an artifact or an ensemble."""
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        return cls(files=files, stored=read_version(folder))

    @property
    def card(self) -> Card:
        """Its training record and scores."""
        manifest = self.stored.manifest if isinstance(self.stored, StoredEnsemble) else self.stored.artifact.manifest
        return Card.from_json(canonical.to_bytes(dict(manifest.card)).decode())

    @property
    def sentence(self) -> str:
        """Its skill against the best baseline, as text."""
        skill = self.card.skill
        return "the model has no scores" if skill is None else skill.sentence

    def build_model(self, device: str, *, max_rows: int) -> EvaluatedModel:
        """Build the model, verified with its golden instance as after loading; it is named after its kind.

        Raises:
            ConfigurationError: the device is not available.
        """
        name = BEST if isinstance(self.stored, StoredEnsemble) else self.stored.artifact.manifest.kind.name
        return build(self.stored, (name, 1), Runtime(choose_device(device), max_rows))


def fit_one(
    plan: TrainingPlan, panel: BarPanel, covariates: CovariateSource, cache: FeatureCache | None, output: ProgressOutput
) -> FittedArtifact:
    """Train one kind of model."""
    material = replace(plan.material(panel, covariates), cache=cache)
    files = train_in_memory(material, plan.recipe, consume=output.consume, announce=output.announce, warn=output.warn)
    return FittedArtifact.of(files)


def fit_best(
    plan: BestPlan,
    panel: BarPanel,
    covariates: CovariateSource,
    cache: FeatureCache | None,
    output: ProgressOutput,
    jobs: JobRunner,
) -> FittedArtifact:
    """Train and combine several kinds, by way of a temporary folder."""
    warn = without_repeats(output.warn)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def train_member(planned: PlannedTraining, member_folder: Path, deadline: ReportConsumer) -> TrainingResult:
            try:
                files = train_in_memory(
                    planned.material,
                    planned.recipe,
                    consume=ConsumerChain([output.consume, deadline]),
                    announce=output.announce,
                    warn=warn,
                )
            except LoopError as error:
                raise ConfigurationError(str(error)) from error
            return save_trained(files, member_folder)

        ensemble, _ = train_best(
            plan,
            panel,
            folder / BEST,
            TrainingRunner(train=train_member, jobs=jobs, announce=output.announce),
            folder,
            covariates=covariates,
            cache=cache,
            set_calendar=lambda recipe: set_calendar(recipe, panel, output.tell, setting="calendar=NAME"),
            announce=output.announce,
            warn=warn,
        )
        return FittedArtifact.load(ensemble.folder)
