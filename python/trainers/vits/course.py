"""A training of a voice on the disk: what it can go on from, and what is left of it when its version is there.

VOICE/3.run  of the training of version 3; its log stays beside the version, its checkpoints do not
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from trainers.loop import Checkpoints, launched_rank
from trainers.loop.checkpoint.compatibility import differences, plain
from trainers.media.course import CHECKPOINTS, checkpoints_in, run_folder
from trainers.options import RunOptions
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.errors import VoiceError
from trainers.vits.versions import TRAINING, VoiceVersions
from trainers.vits.voice import Voice

CORRECTIONS: Final = "corrections"
"""Prepared corrections, while a voice learns from them, and beside the version that has."""
REFUSED: Final = "refused.json"
"""The figures of a corrected voice that was refused, in the folder of its run until another training begins there."""
PARENT: Final = "parent"
WEIGHTS: Final = "weights"
"""In `training.json`: the digest of a version's weights, by which those that were trained on from it name it."""


def checkpoints_of(version: Path, options: RunOptions, settings: Mapping[str, Any]) -> Checkpoints:
    """The checkpoints of the training of a version, which know it by its settings.

    Raises:
        VoiceError: there are some, and nobody asked to go on from them.
        CheckpointError: another training holds the folder.
    """
    checkpoints = checkpoints_in(run_folder(version), options, settings, VoiceError)
    if version.exists() and not checkpoints.any:
        raise VoiceError(f"{version} exists, and the voice's index does not know it; move it away")
    return checkpoints


def begin(version: Path) -> None:
    """Forget the voice that was refused in the place of a version, which is trained now."""
    (run_folder(version) / REFUSED).unlink(missing_ok=True)


def finished(versions: VoiceVersions, settings: Mapping[str, Any]) -> Path | None:
    """The newest version, where a training that is asked to go on has nothing left to do.

    That is so where no training of a further version has begun. Checkpoints that a kill has left of the newest version,
    between its appearance and their removal, are removed.

    Args:
        versions: of the voice.
        settings: of the training that is asked for, as JSON.

    Returns:
        Its folder; None where there is a training to go on with, or no version at all.

    Raises:
        VoiceError: the version was made with other settings, or does not say with which.
        CheckpointError: what is left of its checkpoints cannot be removed.
    """
    if not versions.index.versions or _has_begun(run_folder(versions.following)):
        return None
    newest = versions.folder / str(versions.index.versions)
    different = _different(_told(newest), settings)
    if different:
        raise VoiceError(
            f"{newest} is finished, and was made with other settings: {'; '.join(different)}; leave out --resume to "
            "train a further version with these"
        )
    clear_finished(versions)
    return newest


def clear_finished(versions: VoiceVersions) -> None:
    """Remove what a kill has left of the newest version's training between its appearance and the end.

    Raises:
        CheckpointError: it cannot be removed.
    """
    run = run_folder(versions.folder / str(versions.index.versions))
    checkpoints = Checkpoints(run / CHECKPOINTS)
    if launched_rank() == 0 and checkpoints.any:
        with checkpoints.open():
            checkpoints.clear()
            shutil.rmtree(run / CORRECTIONS, ignore_errors=True)


def _has_begun(run: Path) -> bool:
    """Whether a training has begun there that has not ended; a correction that was refused has."""
    return (run / CHECKPOINTS).exists() and not (run / REFUSED).exists()


def check_fits(voice: Voice, corpus: SpeechCorpus, place: Path) -> None:
    """That a voice can learn from a corpus.

    Raises:
        VoiceError: they have other frames or other characters.
    """
    if voice.framing != corpus.framing:
        raise VoiceError(f"{place} has {voice.framing} and {corpus.folder} {corpus.framing}; prepare with its rate")
    if dict(voice.tokenizer.encoder) != dict(corpus.vocabulary):
        raise VoiceError(
            f"{place} and {corpus.folder} have other vocabularies; prepare again with --vocabulary-of {place}"
        )


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """What names weights by their content: sha256 of names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _told(version: Path) -> Mapping[str, Any]:
    """How a version came to be."""
    path = version / TRAINING
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise VoiceError(
            f"{path} does not say how the version was made ({error}); leave out --resume to train a further one"
        ) from error


def _different(told: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """What of the settings a finished training did not have.

    A training that began from its own voice would now begin from what it has made: that is no difference.
    """
    wanted = plain(settings)
    if wanted.get(PARENT) is not None and wanted[PARENT] == told.get(WEIGHTS):
        wanted[PARENT] = told.get(PARENT)
    return differences({name: told[name] for name in wanted if name in told}, wanted)
