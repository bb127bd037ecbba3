"""The device of a training: hardware, precision, memory, compilation and random state."""

from trainers.loop.device.compilation import compact, compile_modules
from trainers.loop.device.hardware import DeviceChoice, Hardware, check_device, choose_device, use_device
from trainers.loop.device.memory import (
    cause_of,
    describe_usage,
    free_bytes,
    is_out_of_memory,
    keep_freed_memory,
    peak_bytes,
    release,
    total_bytes,
)
from trainers.loop.device.precision import LossScaler, Precision, PrecisionName, choose_precision, full_precision
from trainers.loop.device.random_state import (
    HostGenerators,
    PythonGenerators,
    TorchGenerator,
    capture_generators,
    derive_seed,
    deterministic,
    device_generator,
    restore_generators,
    seed_everything,
    seed_host,
)

__all__ = [
    "DeviceChoice",
    "Hardware",
    "HostGenerators",
    "LossScaler",
    "Precision",
    "PrecisionName",
    "PythonGenerators",
    "TorchGenerator",
    "capture_generators",
    "cause_of",
    "check_device",
    "choose_device",
    "choose_precision",
    "compact",
    "compile_modules",
    "derive_seed",
    "describe_usage",
    "deterministic",
    "device_generator",
    "free_bytes",
    "full_precision",
    "is_out_of_memory",
    "keep_freed_memory",
    "peak_bytes",
    "release",
    "restore_generators",
    "seed_everything",
    "seed_host",
    "total_bytes",
    "use_device",
]
