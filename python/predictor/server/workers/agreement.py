"""Synchronization of a new worker's models with those of the others."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from predictor._pb import prediction_pb2 as pb
from predictor.catalog import ModelInfo
from predictor.errors import QuantraError


class WorkerModels(Protocol):
    """The models that a worker serves; see predictor.service.ServedModels."""

    def infos(self) -> tuple[ModelInfo, ...]:
        """Every served version."""
        ...

    def load(self, reference: str) -> None:
        """Start serving a model; raises QuantraError if nothing changed."""
        ...

    def unload(self, reference: str) -> None:
        """Stop serving a model; raises as `load`."""
        ...


def told(models: WorkerModels) -> bytes:
    """What a worker serves, for another one."""
    return pb.ListModelsResponse(
        models=[
            pb.ModelInfo(name=one.name, version=one.version, is_default=one.is_default, weights_hash=one.weights_hash)
            for one in models.infos()
        ]
    ).SerializeToString()


def agree(models: WorkerModels, others: bytes) -> list[str]:
    """Serve what another worker has told, and nothing else, as far as the folder of models has it.

    Returns:
        What is not as there, a sentence each.
    """
    wanted = _by_reference(others)
    missing = wanted.keys() - _by_reference(told(models)).keys()
    problems = [*_tried(models.load, missing, "served by the others and not here")]
    surplus = _surplus(_by_reference(told(models)), wanted)
    problems += _tried(models.unload, surplus, "served here and not by the others")
    return [*problems, *_differences(_by_reference(told(models)), wanted)]


def _by_reference(served: bytes) -> Mapping[str, pb.ModelInfo]:
    return {f"{one.name}@{one.version}": one for one in pb.ListModelsResponse.FromString(served).models}


def _surplus(own: Mapping[str, pb.ModelInfo], wanted: Mapping[str, pb.ModelInfo]) -> set[str]:
    """What to unload: a model as a whole where no version of it is wanted, for its champion cannot be by itself."""
    names = {one.name for one in wanted.values()}
    return {reference if one.name in names else one.name for reference, one in own.items() if reference not in wanted}


def _tried(change: Callable[[str], None], references: set[str], what: str) -> Iterator[str]:
    """Do it to each; of those that cannot be done, why."""
    for reference in sorted(references):
        try:
            change(reference)
        except QuantraError as error:
            yield f"{reference} is {what}: {error.message}"


def _differences(own: Mapping[str, pb.ModelInfo], wanted: Mapping[str, pb.ModelInfo]) -> Iterator[str]:
    for reference in sorted(own.keys() & wanted.keys()):
        here, there = own[reference], wanted[reference]
        if here.weights_hash != there.weights_hash:
            yield f"{reference} has changed in the folder since the others read it; reload {here.name}"
        if there.is_default and not here.is_default:
            yield f"{here.name} means {reference} to the others and not here; load {here.name}, which reads its aliases"
