"""The device of a training: hardware, precision, memory, compilation and random state."""

from trainers.loop.device.compilation import compact_parameters, compile_modules
from trainers.loop.device.hardware import DeviceChoice, Hardware, check_device, choose_device, use_device
from trainers.loop.device.memory import (
    describe_cause,
    describe_usage,
    is_out_of_memory,
    keep_freed_memory,
    measure_free_bytes,
    measure_peak_bytes,
    measure_total_bytes,
    release,
)
from trainers.loop.device.precision import Precision, PrecisionName, choose_precision, full_precision
from trainers.loop.device.random_state import (
    HostGenerators,
    PythonGenerators,
    TorchGenerator,
    capture_generators,
    derive_seed,
    deterministic,
    find_device_generator,
    restore_generators,
    seed_everything,
    seed_host,
)

__all__ = [
    "DeviceChoice",
    "Hardware",
    "HostGenerators",
    "Precision",
    "PrecisionName",
    "PythonGenerators",
    "TorchGenerator",
    "capture_generators",
    "check_device",
    "choose_device",
    "choose_precision",
    "compact_parameters",
    "compile_modules",
    "derive_seed",
    "describe_cause",
    "describe_usage",
    "deterministic",
    "find_device_generator",
    "full_precision",
    "is_out_of_memory",
    "keep_freed_memory",
    "measure_free_bytes",
    "measure_peak_bytes",
    "measure_total_bytes",
    "release",
    "restore_generators",
    "seed_everything",
    "seed_host",
    "use_device",
]
