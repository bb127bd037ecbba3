"""`quantra train vits feedback`: a voice is corrected by recordings of how it should sound.

What needs the extra `tts` is imported when the command runs, so that a missing package is one line.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.flags import Flag, FlagSubset
from predictor.parent import stop_with_parent
from trainers.loop import launched_size, seed_everything
from trainers.media.console import counter, failing, say, write
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
"""Clips of the base corpus that a refusal names."""


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
    """Correct a voice by recordings of how it should sound, and keep it if held-out ones show that it is better."""
    with failing(SPEECH):
        from trainers.vits.speech_recogniser import judge_of
        from trainers.vits.training import checkpoints_of, clear_finished
        from trainers.vits.versions import VoiceVersions
        from trainers.vits.voice_correction import VoiceCorrection

        _check_correctable(voice)
        torch.set_num_threads(run.threads)
        if run.parent_watch:
            stop_with_parent()
        versions = VoiceVersions(voice)
        material = _material(versions, manifest, corpus, recipe.share, resample=resample, skip_bad=skip_bad)
        if material is None:
            clear_finished(versions)
            _tell_nothing_new(manifest, versions, run)
            return
        _tell_material(material)
        correcting = VoiceCorrection(versions, material, recipe, build)
        checkpoints = checkpoints_of(versions.following, run, correcting.settings)
        judge = judge_of(material.base)
        seed_everything(recipe.seed)
        done = correcting.run(
            judge,
            checkpoints,
            consumer(run, run_folder(versions.following), sys.stdout),
            counter("judged", "clips", silent=run.as_json),
        )
    _tell_corrected(done, voice, run)


def _check_correctable(voice: Path) -> None:
    """That a voice can be corrected here.

    Raises:
        FeedbackError: it is one version, or several processes would correct it.
    """
    if (voice / "config.json").is_file():
        raise FeedbackError(
            f"{voice} is one version of a voice, and a correction makes another; name the voice's folder"
        )
    if launched_size() > 1:
        raise FeedbackError(
            f"{launched_size()} processes were started, and one corrects a voice; start it without torchrun"
        )


def _material(
    versions: "VoiceVersions", manifest: Path, corpus: Path, share: float, *, resample: bool, skip_bad: bool
) -> "CorrectionMaterial | None":
    """What there is to learn; None if nothing is new."""
    from trainers.vits.corpus import SpeechCorpus
    from trainers.vits.corrections import CorrectionMaterial, kept_of, news_of, prepared
    from trainers.vits.manifest import read_manifest
    from trainers.vits.training import CORRECTIONS, check_fits
    from trainers.vits.voice import Voice

    base, told = SpeechCorpus.open(corpus), read_manifest(manifest, complete=not skip_bad)
    check_fits(Voice.load(versions.current), base, versions.current)
    kept = kept_of(versions)
    news = news_of(told, base, versions.index.consumed, kept)
    if not news.count:
        return None
    folder = run_folder(versions.following) / CORRECTIONS
    rated = prepared(news, base, folder, resample=resample, skip_bad=skip_bad)
    material = CorrectionMaterial(base=base, rated=rated, kept=kept, news=news, share=share)
    material.check()
    return material


def _tell_nothing_new(manifest: Path, versions: "VoiceVersions", run: RunOptions) -> None:
    """That versions of the voice have learnt from everything; the current one need not be among them."""
    voice, index = versions.folder, versions.index
    if run.as_json:
        write({"kind": "unchanged", "voice": str(voice)})
    learnt = ", ".join(map(str, sorted(set(index.consumed.values()))))
    say(
        f"there is nothing new in {manifest}: version {learnt} of {voice} learnt from it; version {index.current}, "
        "which speaks now, stays as it is"
    )


def _tell_material(material: "CorrectionMaterial") -> None:
    """What is learnt from and what is not, for a person."""
    from trainers.vits.corpus import notices_of_corrections

    for notice in notices_of_corrections(material.rated.corpus, material.news.idle):
        say(f"! {notice}")
    corpus = material.rated.corpus
    say(
        f"{material.news.count} new lines, {material.news.known} learnt before. New corrections: "
        f"{len(corpus.part('train'))} to learn from, {len(corpus.part('selection'))} to choose by, "
        f"{len(material.judged()[1])} to judge by."
    )


def _tell_corrected(done: "CorrectionResult", voice: Path, run: RunOptions) -> None:
    """The figures and the verdict.

    Raises:
        Exit: 1, where the voice was refused.
    """
    accepted = done.decision.accepted
    if run.as_json:
        facts = {"voice": str(voice), "place": str(done.place), "speaking_rate": done.speaking_rate}
        write({"kind": "corrected" if accepted else "refused", **facts, **done.decision.as_json()})
    for line in done.decision.lines:
        say(f"{'!' if line.holds is False else ' '} {line}")
    if not accepted:
        if done.decision.farther:
            names = ", ".join(done.decision.farther[:SHOWN])
            say(f"! Farther than before: {names}. Where they say wrongly what you corrected, rate them 1")
        if not done.decision.nearer:
            say("! The corrections were not learnt: record more of them, or let them be learnt for more --steps")
        say(f"Refused: {voice} stays as it was, and nothing counts as learnt. The figures are in {done.place}")
        raise typer.Exit(1)
    say(f"Saved {done.place}, which speaks at rate {done.speaking_rate:g}; the version before stays beside it")
