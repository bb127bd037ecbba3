"""Synchronization of a new worker's models with those of the others."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from predictor._pb import prediction_pb2 as pb
from predictor.errors import QuantraError

if TYPE_CHECKING:
    from predictor.service import ServedModels


def encode_served(models: "ServedModels") -> bytes:
    """Encode the served models for another worker."""
    return pb.ListModelsResponse(
        models=[
            pb.ModelInfo(
                name=info.name, version=info.version, is_default=info.is_default, weights_hash=info.weights_hash
            )
            for info in models.infos()
        ]
    ).SerializeToString()


def match_models(models: "ServedModels", others: bytes) -> list[str]:
    """Serve the same models as another worker, as far as the models folder has them.

    Returns:
        The remaining differences, one sentence each.
    """
    wanted = _by_reference(others)
    missing = wanted.keys() - _by_reference(encode_served(models)).keys()
    problems = [*_apply(models.load, missing, "served by the other workers but not here")]
    champions = {reference for reference, info in wanted.items() if info.is_default}
    problems += _apply(models.adopt_champion, champions, "the champion of the other workers but not here")
    surplus = _unwanted_models(_by_reference(encode_served(models)), wanted)
    problems += _apply(models.unload, surplus, "served here but not by the other workers")
    return [*problems, *_differences(_by_reference(encode_served(models)), wanted)]


def _by_reference(served: bytes) -> Mapping[str, pb.ModelInfo]:
    return {f"{info.name}@{info.version}": info for info in pb.ListModelsResponse.FromString(served).models}


def _unwanted_models(own: Mapping[str, pb.ModelInfo], wanted: Mapping[str, pb.ModelInfo]) -> set[str]:
    """List what to unload. A model without wanted versions is unloaded as a whole, because its champion cannot be."""
    names = {info.name for info in wanted.values()}
    return {
        reference if info.name in names else info.name for reference, info in own.items() if reference not in wanted
    }


def _apply(change: Callable[[str], None], references: set[str], what: str) -> Iterator[str]:
    """Apply the change to each reference and yield the failures."""
    for reference in sorted(references):
        try:
            change(reference)
        except QuantraError as error:
            yield f"{reference} is {what}: {error.message}"


def _differences(own: Mapping[str, pb.ModelInfo], wanted: Mapping[str, pb.ModelInfo]) -> Iterator[str]:
    for reference in sorted(own.keys() & wanted.keys()):
        here, there = own[reference], wanted[reference]
        if here.weights_hash != there.weights_hash:
            yield f"{reference} has changed in the folder since the other workers read it; reload {here.name}"
        if there.is_default and not here.is_default:
            yield (
                f"{here.name} refers to {reference} in the other workers but not here; load {here.name} to read its "
                "aliases"
            )
