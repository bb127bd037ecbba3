"""Command `quantra train vits feedback`: correct a voice with recordings.

Modules that need the extra `tts` are imported inside the command, so that a missing package is a one-line error.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.flags import Flag, FlagSubset
from predictor.parent import exit_with_parent
from trainers.loop import launched_size, seed_everything
from trainers.media.console import command_errors, echo, print_json, progress_counter
from trainers.media.run_directory import run_folder
from trainers.options import RunOptions, consumer
from trainers.vits.command import VoiceArgument
from trainers.vits.errors import SPEECH, FeedbackError
from trainers.vits.recipe import FeedbackRecipe, VoiceSizes

if TYPE_CHECKING:
    from trainers.vits.corrections import CorrectionMaterial
    from trainers.vits.versions import VoiceVersions
    from trainers.vits.voice_correction import CorrectionResult

SHOWN: Final = 5
"""Number of base clips that a rejection lists."""


@with_flags
def feedback(
    *,
    voice: VoiceArgument,
    manifest: Annotated[
        Path,
        Flag(
            'Lines of {"audio": FILE, "text": TEXT, "rating": 1 to 5}, or {"clip": ID, "rating": 1 to 5}.',
            metavar="FILE",
        ),
    ],
    corpus: Annotated[Path, Flag("Folder that `prepare` made, on which the voice was trained.")],
    resample: Annotated[bool, Flag("Convert recordings of another rate.")] = False,
    skip_bad: Annotated[bool, Flag("Leave out corrections that cannot be used, and list them.")] = False,
    build: Annotated[VoiceSizes, FlagSubset("size")],
    recipe: FeedbackRecipe,
    run: RunOptions,
) -> None:
    """Train a voice on corrected recordings, and keep the result if it is better on held-out ones."""
    with command_errors(SPEECH):
        from trainers.vits.speech_recogniser import judge_of
        from trainers.vits.training import clear_finished, open_checkpoints
        from trainers.vits.versions import VoiceVersions
        from trainers.vits.voice_correction import VoiceCorrection

        if (voice / "config.json").is_file():
            raise FeedbackError(
                f"{voice} is a single version of a voice; give the voice's folder, to which a version can be added"
            )
        if launched_size() > 1:
            raise FeedbackError(
                f"feedback runs in one process, but {launched_size()} were launched; start it without torchrun"
            )
        torch.set_num_threads(run.threads)
        if run.parent_watch:
            exit_with_parent()
        versions = VoiceVersions(voice)
        material = _material(versions, manifest, corpus, recipe.share, resample=resample, skip_bad=skip_bad)
        if material is None:
            clear_finished(versions)
            _report_nothing_new(manifest, versions, run)
            return
        _report_material(material)
        correction = VoiceCorrection(versions, material, recipe, build)
        checkpoints = open_checkpoints(versions.following, run, correction.settings)
        judge = judge_of(material.base)
        seed_everything(recipe.seed)
        result = correction.run(
            judge,
            checkpoints,
            consumer(run, run_folder(versions.following), sys.stdout),
            progress_counter("scored", "clips", silent=run.as_json),
        )
    _report_result(result, voice, run)


def _material(
    versions: "VoiceVersions", manifest: Path, corpus: Path, share: float, *, resample: bool, skip_bad: bool
) -> "CorrectionMaterial | None":
    """The training data; None if nothing is new."""
    from trainers.vits.corpus import SpeechCorpus
    from trainers.vits.corrections import (
        CorrectionMaterial,
        load_previous_corrections,
        prepare_corrections,
        select_new_corrections,
    )
    from trainers.vits.manifest import read_manifest
    from trainers.vits.training import CORRECTIONS, check_fits
    from trainers.vits.voice import Voice

    base, items = SpeechCorpus.open(corpus), read_manifest(manifest, complete=not skip_bad)
    check_fits(Voice.load(versions.current), base, versions.current)
    previous = load_previous_corrections(versions)
    new_items = select_new_corrections(items, base, versions.index.consumed, previous)
    if not new_items.count:
        return None
    folder = run_folder(versions.following) / CORRECTIONS
    rated = prepare_corrections(new_items, base, folder, resample=resample, skip_bad=skip_bad)
    material = CorrectionMaterial(base=base, rated=rated, previous=previous, new_items=new_items, share=share)
    material.check()
    return material


def _report_nothing_new(manifest: Path, versions: "VoiceVersions", run: RunOptions) -> None:
    voice, index = versions.folder, versions.index
    if run.as_json:
        print_json({"kind": "unchanged", "voice": str(voice)})
    users = ", ".join(map(str, sorted(set(index.consumed.values()))))
    echo(
        f"nothing new in {manifest}: version {users} of {voice} already used it; version {index.current} stays current"
    )


def _report_material(material: "CorrectionMaterial") -> None:
    from trainers.vits.corpus import describe_correction_problems

    for notice in describe_correction_problems(material.rated.corpus, material.new_items.idle):
        echo(f"! {notice}")
    corpus = material.rated.corpus
    echo(
        f"{material.new_items.count} new lines, {material.new_items.known} used before. New corrections: "
        f"{len(corpus.part('train'))} train, {len(corpus.part('selection'))} selection, "
        f"{len(material.held_out()[1])} held-out."
    )


def _report_result(result: "CorrectionResult", voice: Path, run: RunOptions) -> None:
    """Report the figures and the verdict.

    Raises:
        Exit: The voice was rejected (status 1).
    """
    accepted = result.decision.accepted
    if run.as_json:
        facts = {"voice": str(voice), "place": str(result.path), "speaking_rate": result.speaking_rate}
        print_json({"kind": "corrected" if accepted else "refused", **facts, **result.decision.as_json()})
    for line in result.decision.lines:
        echo(f"{'!' if line.holds is False else ' '} {line}")
    if not accepted:
        if result.decision.worse_clips:
            names = ", ".join(result.decision.worse_clips[:SHOWN])
            echo(
                f"! Worse than before: {names}. If these recordings contain the mistake that you corrected, rate them 1"
            )
        if not result.decision.has_learnt_corrections:
            echo("! The corrections were not learnt: record more of them, or train for more --steps")
        echo(f"Rejected: {voice} is unchanged, and the corrections stay new. The figures are in {result.path}")
        raise typer.Exit(1)
    echo(f"Saved {result.path} with speaking rate {result.speaking_rate:g}; the previous version is kept")
