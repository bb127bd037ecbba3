"""Changes to a folder of models: damage, forgery, replacement, and the lock file."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
from artifacts import save_small_artifact

from predictor.artifact import DIGEST, MANIFEST
from predictor.registry import Runtime

WEIGHTS = "weights.safetensors"
RUNTIME = Runtime(torch.device("cpu"), 256)


def save_seeds(folder: Path, *seeds: int) -> Path:
    """Write artifacts of different weights, in folders named by their seeds."""
    for seed in seeds:
        save_small_artifact(folder / f"{seed}", seed=seed)
    return folder


def break_weights(version: Path) -> None:
    """Flip one bit of the weights."""
    path = version / WEIGHTS
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def forge_weights(version: Path, other: Path) -> None:
    """Give a version another version's weights and correct all digests: only the golden instance can detect it."""
    shutil.copy(other / WEIGHTS, version / WEIGHTS)
    manifest = json.loads((version / MANIFEST).read_bytes())
    for name, entry in manifest["files"].items():
        data = (version / name).read_bytes()
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    text = json.dumps(manifest).encode()
    (version / MANIFEST).write_bytes(text)
    (version / DIGEST).write_text(f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n")


def replace_version(version: Path, other: Path) -> None:
    """Replace a version by another artifact."""
    shutil.rmtree(version)
    shutil.copytree(other, version)


def lock_lines(models: Path) -> str:
    """Output of `sha256sum */*/manifest.json` in a folder of models."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(models).as_posix()}\n"
        for path in sorted(models.glob(f"*/*/{MANIFEST}"))
    )
