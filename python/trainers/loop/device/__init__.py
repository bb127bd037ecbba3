"""The device of a training: hardware, precision, memory, compilation and random state."""

from trainers.loop.device.compilation import compact, compiled
from trainers.loop.device.hardware import DeviceChoice, Hardware, check_device, choose_device, made_current
from trainers.loop.device.memory import (
    cause_of,
    free_bytes,
    is_out_of_memory,
    keep_freed_memory,
    peak_bytes,
    release,
    total_bytes,
    usage,
)
from trainers.loop.device.precision import LossScaler, Precision, PrecisionName, choose_precision, full_precision
from trainers.loop.device.random_state import (
    HostGenerators,
    LighterGenerators,
    TorchGenerator,
    captured,
    deterministic,
    device_generator,
    mixed,
    restore,
    seed_everything,
    seed_host,
)

__all__ = [
    "DeviceChoice",
    "Hardware",
    "HostGenerators",
    "LighterGenerators",
    "LossScaler",
    "Precision",
    "PrecisionName",
    "TorchGenerator",
    "captured",
    "cause_of",
    "check_device",
    "choose_device",
    "choose_precision",
    "compact",
    "compiled",
    "deterministic",
    "device_generator",
    "free_bytes",
    "full_precision",
    "is_out_of_memory",
    "keep_freed_memory",
    "made_current",
    "mixed",
    "peak_bytes",
    "release",
    "restore",
    "seed_everything",
    "seed_host",
    "total_bytes",
    "usage",
]
