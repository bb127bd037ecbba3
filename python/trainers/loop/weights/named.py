"""The weights of modules by name: who trains them, what belongs to a state, and their digest."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from trainers.loop.errors import UncoveredParameterError, listed


def check_coverage(
    phases: Mapping[str, tuple[Sequence[Parameter], Optimizer]],
    modules: Mapping[str, nn.Module],
) -> None:
    """Check that phases, optimizers and modules have the same parameters [...].

    Raises:
        UncoveredParameterError: A phase's parameters are not its optimizer's; one of them is frozen or in no module; a
            parameter is trained by two phases; a trainable parameter of a module is in no phase.
    """
    names = parameter_names(modules.items())
    owners: dict[Parameter, str] = {}
    for phase, (parameters, optimizer) in phases.items():
        held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        _refuse(held ^ set(parameters), names, f"phase {phase!r}: its parameters and its optimizer's differ in")
        frozen = [parameter for parameter in parameters if not parameter.requires_grad]
        _refuse(frozen, names, f"phase {phase!r}: the optimizer holds frozen parameters (requires_grad is False):")
        strange = [parameter for parameter in parameters if parameter not in names]
        _refuse(strange, names, f"phase {phase!r}: the optimizer holds parameters of no module given in `modules`:")
        shared = [parameter for parameter in parameters if parameter in owners]
        _refuse(shared, names, f"phase {phase!r}: another phase trains the same parameters:")
        owners.update(dict.fromkeys(parameters, phase))
    left = [parameter for parameter in names if parameter.requires_grad and parameter not in owners]
    _refuse(
        left,
        names,
        "no optimizer holds these trainable parameters; give them to one, freeze them or use Frozen(module):",
    )


def parameter_names(modules: Iterable[tuple[str, nn.Module]]) -> dict[Parameter, str]:
    """Every parameter [...] with its name, such as `net.head.weight`."""
    return {
        parameter: f"{module_name}.{name}"
        for module_name, module in modules
        for name, parameter in module.named_parameters()
    }


def named_tensors(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Every parameter and buffer of any shape that belongs to the modules' state, by name; caches do not.

    Of what stands at several places, the first.
    """
    named: dict[str, Tensor] = {}
    for module_name, module in modules.items():
        state = module.state_dict(keep_vars=True)
        buffers = [(name, buffer) for name, buffer in module.named_buffers() if name in state]
        named |= {f"{module_name}.{name}": tensor for name, tensor in (*module.named_parameters(), *buffers)}
    return named


def kept_buffers(modules: Mapping[str, nn.Module]) -> list[Tensor]:
    """The buffers among them, of any shape, such as BatchNorm's statistics."""
    return [tensor for tensor in named_tensors(modules).values() if not isinstance(tensor, Parameter)]


def _refuse(parameters: Iterable[Parameter], names: Mapping[Parameter, str], problem: str) -> None:
    refused = [names.get(parameter, f"an unnamed {list(parameter.shape)}") for parameter in parameters]
    if refused:
        raise UncoveredParameterError(f"{problem} {listed(sorted(refused))}")


def digest(module: nn.Module) -> str:
    """SHA-256 over the names, shapes and bits of all parameters and buffers; the same on every device."""
    return digest_of((*module.named_parameters(), *module.named_buffers()))


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The same over tensors of any shape by name, in their order."""
    sha = hashlib.sha256()
    for name, tensor in tensors:
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content = tensor.detach().cpu().contiguous().flatten()
        sha.update(content.view(torch.uint8).numpy().data)
    return sha.hexdigest()
