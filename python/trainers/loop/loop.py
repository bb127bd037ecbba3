"""The training loop: what it needs to know, checked before anything runs."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar, final

from torch import nn
from torch.nn import Parameter

from trainers.loop.errors import SettingsError
from trainers.loop.machine.hardware import Hardware, choose_device
from trainers.loop.machine.precision import Precision, choose_precision
from trainers.loop.phase import Frozen, Phase
from trainers.loop.run import PhaseRun, Run
from trainers.loop.weights.coverage import check_coverage, parameter_names
from trainers.loop.window.accumulation import Accumulator
from trainers.loop.window.guards import GradientGuard, Nonfinite
from trainers.loop.window.update import Update

Batch = TypeVar("Batch")


@final
class Loop(Generic[Batch]):
    """Trains modules by phases, on one device.

    Args:
        phases: Worked in this order in every window.
        modules: Everything that the loss functions use, by name; `Frozen(module)` for what is not trained.
        device: `auto`, `cpu`, `cuda[:N]`, `xpu[:N]` or `mps`.
        precision: `auto`, `fp32`, `bf16` or `fp16`; or a `Precision` of one's own.
        accumulate: Batches in an accumulation window, that is in one optimizer step.
        nonfinite: What to do with a loss or gradient that is not finite: skip the step, or raise. A gradient that
            overflows in float16 is skipped either way, and the scale lowered.
        skip_limit: So many skipped steps in a row raise.
        audit_windows: A parameter that gets no gradient in so many windows, or in the first epoch, counts as unused.

    Attributes:
        device: The device, and why it is this one.
        precision: The precision, and why it is this one.

    Raises:
        SettingsError: A setting is out of its range.
        DeviceUnavailableError: The device is not there.
        PrecisionError: The device cannot compute in the precision.
        UncoveredParameterError: Phases, optimizers and modules do not speak of the same parameters.
    """

    def __init__(
        self,
        phases: Sequence[Phase[Batch]],
        *,
        modules: Mapping[str, nn.Module | Frozen],
        device: str = "auto",
        precision: str | Precision = "auto",
        accumulate: int = 1,
        nonfinite: Nonfinite = "skip",
        skip_limit: int = 20,
        audit_windows: int = 16,
    ) -> None:
        _check_settings(
            phases, {"accumulate": accumulate, "skip_limit": skip_limit, "audit_windows": audit_windows}, nonfinite
        )
        hardware = Hardware.detect()
        self.device = choose_device(device, hardware)
        self.precision = (
            precision if isinstance(precision, Precision) else choose_precision(precision, self.device.device, hardware)
        )
        self._phases = tuple(phases)
        self._trained = {name: module for name, module in modules.items() if isinstance(module, nn.Module)}
        self._frozen = {name: frozen.module for name, frozen in modules.items() if isinstance(frozen, Frozen)}
        self._accumulate = accumulate
        self._nonfinite: Nonfinite = nonfinite
        self._skip_limit = skip_limit
        self._audit_windows = audit_windows
        check_coverage(
            {phase.name: (tuple(phase.parameters), phase.optimizer) for phase in phases}, self._trained | self._frozen
        )

    @contextmanager
    def running(self) -> Generator[Run[Batch]]:
        """Move the modules to the device and train inside; gradients are dropped at the end."""
        for module in (*self._trained.values(), *self._frozen.values()):
            module.to(self.device.device)
        names = parameter_names(self._trained.items())
        run = Run(
            [self._phase_run(phase, names) for phase in self._phases],
            trained=self._trained,
            frozen=tuple(self._frozen.values()),
            device=self.device.device,
            precision=self.precision,
            accumulate=self._accumulate,
        )
        try:
            yield run
        finally:
            for parameter in names:
                parameter.grad = None

    def _phase_run(self, phase: Phase[Batch], names: Mapping[Parameter, str]) -> PhaseRun[Batch]:
        scaler = None if self.precision.scaler is None else self.precision.scaler()
        foreign = [parameter for other in self._phases if other is not phase for parameter in other.parameters]
        guard = GradientGuard(
            {parameter: names[parameter] for parameter in phase.parameters},
            audit_windows=self._audit_windows,
            nonfinite=self._nonfinite,
            skip_limit=self._skip_limit,
        )
        return PhaseRun(
            phase=phase,
            accumulator=Accumulator(phase, foreign, self.device.device, self.precision, scaler),
            update=Update(phase, scaler, guard),
            guard=guard,
        )


def _check_settings(phases: Sequence[Phase[Batch]], counts: Mapping[str, int], nonfinite: str) -> None:
    names = [phase.name for phase in phases]
    if not names or len(set(names)) < len(names):
        raise SettingsError(f"the phases are {names}; there must be one or more, each with a name of its own")
    for name, count in counts.items():
        if count < 1:
            raise SettingsError(f"{name} is {count}; it must be 1 or more")
    if nonfinite not in ("skip", "raise"):
        raise SettingsError(f"nonfinite is {nonfinite!r}; it must be 'skip' or 'raise'")
