"""Layers that mix the samples of a batch."""

from collections.abc import Iterable, Mapping

from torch import nn

from trainers.loop.errors import BatchCoupledError, listed

COUPLED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def coupled_layers(modules: Mapping[str, nn.Module], evaluated: Iterable[nn.Module]) -> list[str]:
    """The names of the layers whose output for a sample depends on the rest of the batch.

    Args:
        modules: Where to look.
        evaluated: Modules that run in evaluation mode, in which layers with running statistics use those.
    """
    steady = {part for module in evaluated for part in module.modules()}
    return [
        f"{module_name}.{name}".removesuffix(".")
        for module_name, module in modules.items()
        for name, layer in module.named_modules()
        if isinstance(layer, COUPLED) and not (layer in steady and layer.track_running_stats)
    ]


def check_uncoupled(modules: Mapping[str, nn.Module], evaluated: Iterable[nn.Module]) -> None:
    """Check that a batch may be cut; the arguments are those of `coupled_layers`.

    Raises:
        BatchCoupledError: A layer mixes its samples.
    """
    found = coupled_layers(modules, evaluated)
    if found:
        raise BatchCoupledError(
            f"{listed(found)} compute with the mean and variance of the batch, so the result would depend on how the "
            "samples of a window are spread over batches, pieces and processes. Use GroupNorm or LayerNorm, train with "
            'one batch a window in one process, or accept it: Loop(batch_coupled="accept")'
        )
