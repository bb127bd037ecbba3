"""Several trainings as independent jobs: in this process, in other processes, or on a cluster."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from predictor import artifact
from predictor.canonical import Json
from predictor.errors import ConfigurationError, QuantraError
from predictor.jobs import JobRunner, LocalRunner
from predictor.registry import claim_first_champion
from trainers.loop import LoopError
from trainers.progress import ReportConsumer
from trainers.stock.data_warnings import discard
from trainers.stock.recipe import StockRecipe
from trainers.stock.training import TrainingResult, train, train_in_memory
from trainers.stock.training_data import TrainingMaterial

SavedFiles = Mapping[str, bytes]
"""Files of an artifact, by path in its folder."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedTraining:
    """The inputs of a training run."""

    material: TrainingMaterial
    recipe: StockRecipe
    sections: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Further sections of the card."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """The training of a name."""

    name: str
    limit: ReportConsumer
    """Passes the reports on, and may stop the training by an error."""


TrainAndSave = Callable[[PlannedTraining, Path, ReportConsumer], TrainingResult]
"""Trains in this process, and saves the artifact in a folder that does not exist yet."""


def train_quietly(planned: PlannedTraining, folder: Path, limit: ReportConsumer) -> TrainingResult:
    """Train without output and checkpoints."""
    return train(planned.material, planned.recipe, folder, consume=limit, sections=planned.sections)


def find_none(_planned: PlannedTraining, _folder: Path) -> None:
    """Find no artifact of a training run that was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRunner:
    """Runs several trainings, each of which ends as an artifact in a folder.

    In this process they run one after the other. In other processes several run at the same time, without reports and
    checkpoints, and this process saves their artifacts; the artifacts are the same to the byte.
    """

    train: TrainAndSave = train_quietly
    find: Callable[[PlannedTraining, Path], TrainingResult | None] = find_none
    """Finds the artifact of a training run that ended before the command was stopped."""
    jobs: JobRunner = field(default_factory=LocalRunner)
    announce: Callable[[str], None] = discard
    """Receives a line for each training that ends in another process."""

    def run(
        self,
        trainings: Mapping[str, PlannedTraining],
        folders: Mapping[str, Path],
        *,
        begin: Callable[[str], ReportConsumer | None],
        on_failure: Callable[[str, QuantraError], None],
    ) -> Iterator[tuple[str, TrainingResult]]:
        """Run all trainings, and yield each with its name when its artifact is saved. The others go on when one fails.

        `begin` is called with a name when its training can begin, and returns what may stop it; None skips it.
        """
        finished = {name: self.find(planned, folders[name]) for name, planned in trainings.items()}
        yield from ((name, trained) for name, trained in finished.items() if trained is not None)
        missing = [name for name, trained in finished.items() if trained is None]

        def jobs() -> Iterator[TrainingJob]:
            for name in missing:
                limit = begin(name)
                if limit is not None:
                    yield TrainingJob(name, limit)

        def train_here(job: TrainingJob) -> TrainingResult:
            return self.train(trainings[job.name], folders[job.name], job.limit)

        def fail(job: TrainingJob, error: QuantraError) -> None:
            on_failure(job.name, error)

        if not self.jobs.is_parallel:
            results = self.jobs.run(lambda: train_here, jobs(), count=len(missing), on_failure=fail)
            yield from ((job.name, trained) for job, trained in results)
            return
        prepare = PackedTrainings({name: trainings[name] for name in missing}).worker
        for job, files in self.jobs.run(prepare, jobs(), count=len(missing), name=_name_job, on_failure=fail):
            trained = save_trained(files, folders[job.name])
            self.announce(f"{_name_job(job)} is done{self.jobs.remark}")
            yield job.name, trained


def _name_job(job: TrainingJob) -> str:
    return f"the training of {job.name}" if job.name else "the training"


@dataclass(frozen=True, slots=True, eq=False)
class PackedTrainings:
    """Trainings in a process that cannot see the folders of their artifacts."""

    trainings: Mapping[str, PlannedTraining]

    def worker(self) -> Callable[[TrainingJob], SavedFiles]:
        """What trains, and returns the artifact's files."""
        return self._train

    def _train(self, job: TrainingJob) -> SavedFiles:
        planned = self.trainings[job.name]
        try:
            return train_in_memory(planned.material, planned.recipe, consume=job.limit, sections=planned.sections)
        except LoopError as error:
            raise ConfigurationError(str(error)) from error


def save_files(files: SavedFiles, folder: Path) -> None:
    """Write an artifact's folder atomically.

    Raises:
        ConfigurationError: The folder exists or cannot be written.
    """
    artifact.check_new_folder(folder)
    try:
        artifact.write_folder(folder, files)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be saved: {error.strerror}; choose another place") from error
    claim_first_champion(folder)


def save_trained(files: SavedFiles, folder: Path) -> TrainingResult:
    """As `save_files`, of one model."""
    save_files(files, folder)
    return TrainingResult(folder=folder, card=dict(artifact.unpack_artifact(files).artifact.manifest.card))
