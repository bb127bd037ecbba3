"""Commands of `quantra train vits`: prepare, train, feedback, synth and evaluate.

Modules that need the extra `tts` are imported inside the commands, so that a missing package is a one-line error.
"""

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.flags import Flag, FlagSubset, ParsedFlags
from predictor.parent import exit_with_parent
from trainers.loop import Checkpoints, launched_rank, launched_size, seed_everything
from trainers.media.console import AsJson, command_errors, echo, make_progress_counter, print_json
from trainers.media.run_directory import encode_settings, locate_run
from trainers.options import RunOptions, Threads, consumer
from trainers.vits.errors import SPEECH, FeedbackError
from trainers.vits.recipe import FINE_TUNING, LEARNING_RATES, FeedbackRecipe, SpeechRecipe, VoiceSizes

VoiceArgument = Annotated[
    Path, typer.Argument(metavar="VOICE", help="Folder of a voice, or of one of its versions.", show_default=False)
]

FEW: Final = 10
"""Fewer held-out clips than this give unreliable figures."""

MAX_LISTED: Final = 5
"""Number of base clips that a rejection lists."""

if TYPE_CHECKING:
    from trainers.vits.corpus import SpeechCorpus
    from trainers.vits.corrections import CorrectionMaterial
    from trainers.vits.versions import VoiceVersions
    from trainers.vits.voice import Voice
    from trainers.vits.voice_correction import CorrectionResult


@with_flags
def prepare(
    *,
    recordings: Annotated[
        Path,
        typer.Argument(metavar="RECORDINGS", help="Folder of metadata.csv (id|text) and wavs/.", show_default=False),
    ],
    out: Annotated[Path, Flag("Folder of the corpus; it must not exist.")],
    rate: Annotated[int, Flag("Samples per second of the recordings.", minimum=4000)] = 16_000,
    resample: Annotated[bool, Flag("Convert recordings of another rate.")] = False,
    skip_bad: Annotated[bool, Flag("Leave out clips that cannot be used, and list them.")] = False,
    selection: Annotated[float, Flag("Validation texts: a share below 1, or a number.", minimum=0)] = 0.05,
    held_out: Annotated[float, Flag("Test texts: a share below 1, or a number.", minimum=0)] = 0.05,
    max_seconds: Annotated[float, Flag("Maximum seconds of a clip.", minimum=0)] = 20.0,
    vocabulary_of: Annotated[
        Path | None, Flag("Use only the characters of this voice, to fine-tune it on the corpus.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check recordings and their texts, and prepare a corpus."""
    with command_errors(SPEECH):
        from trainers.vits.preparation import CorpusSettings, prepare_corpus
        from trainers.vits.spectrum import FrameSettings
        from trainers.vits.versions import find_voice_folder
        from trainers.vits.vocabulary import VOCABULARY, read_vocabulary

        settings = CorpusSettings(
            framing=FrameSettings(rate=rate),
            resample=resample,
            skip_bad=skip_bad,
            selection=selection,
            held_out=held_out,
            max_seconds=max_seconds,
            vocabulary=None
            if vocabulary_of is None
            else read_vocabulary(find_voice_folder(vocabulary_of) / VOCABULARY),
        )
        corpus = prepare_corpus(recordings, out, settings, make_progress_counter("prepared", "clips", silent=as_json))
    _report_prepared(corpus, out, as_json=as_json)


@with_flags
def train(
    *,
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="Folder that `prepare` made.", show_default=False)],
    out: Annotated[Path, Flag("Folder of the voice; a version is added to it.")],
    start: Annotated[
        Path | None,
        Flag("A voice to start from, such as a local folder of MMS; nothing is downloaded.", spelling="--from"),
    ] = None,
    sizes_flags: ParsedFlags[VoiceSizes],
    recipe_flags: ParsedFlags[SpeechRecipe],
    run: RunOptions,
) -> None:
    """Train a voice on a prepared corpus."""
    with command_errors(SPEECH):
        from trainers.vits.corpus import SpeechCorpus
        from trainers.vits.training import clear_rejection, find_finished_version, hash_voice, open_checkpoints
        from trainers.vits.versions import VoiceVersions

        if start is not None and "durations" in sizes_flags.flags:
            raise typer.BadParameter("--durations is set by the voice of --from; leave it out, or train a new voice")
        sizes = sizes_flags.over(VoiceSizes())
        recipe = recipe_flags.over(SpeechRecipe(learning_rate=FINE_TUNING if start else LEARNING_RATES[sizes.size]))
        torch.set_num_threads(run.threads)
        if run.parent_watch:
            exit_with_parent()
        recordings, versions = SpeechCorpus.open(corpus), VoiceVersions(out)
        path = versions.following
        seed_everything(recipe.seed)
        voice = _create_voice(recordings, sizes, start)
        # Everything that determines the result, to identify checkpoints and the version.
        settings: dict[str, Any] = {
            "corpus": recordings.digest,
            "recipe": encode_settings(asdict(recipe)),
            "build": asdict(sizes),
            "parent": None if start is None else hash_voice(voice),
        }
        finished = find_finished_version(versions, settings) if run.resume else None
        if finished is not None:
            _report_finished(finished, _suggest_synthesis(out, recordings), as_json=run.as_json)
            return
        checkpoints = open_checkpoints(path, run, settings)
        with checkpoints.open() if launched_rank() == 0 else nullcontext():
            versions.check_unchanged()
            clear_rejection(path)
            consume = consumer(run, locate_run(path), sys.stdout, rank=launched_rank())
            curves = _train_voice(voice, recordings, sizes, recipe, checkpoints, consume)
            if launched_rank() > 0:
                return
            rate = voice.fit_speaking_rate([(clip.text, clip.frames) for clip in recordings.list_clips("selection")])
            voice.model.cpu()
            record = {**settings, "weights": hash_voice(voice), "curves": asdict(curves), "speaking_rate": rate}
            path = versions.add(voice, record)
            checkpoints.clear()
    if run.as_json:
        print_json({"kind": "trained", "voice": str(path), "speaking_rate": rate})
        return
    echo(f"Saved {path} with speaking rate {rate:g}. Next: {_suggest_synthesis(out, recordings)}")


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
    sizes: Annotated[VoiceSizes, FlagSubset("size")],
    recipe: FeedbackRecipe,
    run: RunOptions,
) -> None:
    """Train a voice on corrected recordings, and keep the result if it is better on held-out ones."""
    with command_errors(SPEECH):
        from trainers.vits.speech_recogniser import load_or_train_recogniser
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
        material = _collect_corrections(versions, manifest, corpus, recipe.share, resample=resample, skip_bad=skip_bad)
        if material is None:
            clear_finished(versions)
            index = versions.index
            if run.as_json:
                print_json({"kind": "unchanged", "voice": str(voice)})
            users = ", ".join(map(str, sorted(set(index.consumed.values()))))
            echo(
                f"nothing new in {manifest}: version {users} of {voice} already used it; version {index.current} stays "
                "current"
            )
            return
        _report_material(material)
        correction = VoiceCorrection(versions, material, recipe, sizes)
        checkpoints = open_checkpoints(versions.following, run, correction.settings)
        recogniser = load_or_train_recogniser(material.base)
        seed_everything(recipe.seed)
        result = correction.run(
            recogniser,
            checkpoints,
            consumer(run, locate_run(versions.following), sys.stdout),
            make_progress_counter("scored", "clips", silent=run.as_json),
        )
    _report_result(result, voice, run)


@with_flags
def synth(
    *,
    voice: VoiceArgument,
    text: Annotated[str, Flag("Text to synthesise.")],
    out: Annotated[Path, Flag("Sound file to write: .wav or .flac.", metavar="FILE")],
    seed: Annotated[int, Flag("Random seed of the voice.", minimum=0, maximum=2**32 - 1)] = 0,
    threads: Threads = 1,
) -> None:
    """Synthesise a text and save the sound."""
    with command_errors(SPEECH):
        from soundfile import LibsndfileError
        from soundfile import write as write_sound

        from trainers.vits.errors import VoiceError
        from trainers.vits.versions import find_voice_folder
        from trainers.vits.vocabulary import count_unknown_characters
        from trainers.vits.voice import Voice

        if out.suffix.lower() not in {".wav", ".flac"}:
            raise typer.BadParameter(f"--out {out} must end in .wav or .flac")
        torch.set_num_threads(threads)
        speaker = Voice.load(find_voice_folder(voice))
        unknown = count_unknown_characters(speaker.tokenizer, text)
        if unknown:
            echo(f"! characters unknown to the voice are left out: {', '.join(map(repr, sorted(unknown)))}")
        wave = speaker.speak(text, seed=seed)
        try:
            write_sound(out, wave.numpy(), speaker.framing.rate, subtype="PCM_16")
        except LibsndfileError as error:
            raise VoiceError(
                f"{out} cannot be written ({error.error_string}); choose an existing folder with free space"
            ) from error
    echo(f"Saved {out}, {len(wave) / speaker.framing.rate:.1f} seconds")


@with_flags
def evaluate(
    *,
    voice: VoiceArgument,
    corpus: Annotated[Path, Flag("Folder that `prepare` made; its held-out texts are synthesised.")],
    page: Annotated[Path | None, Flag("Report page with sound.", shown_default="VOICE/VERSION.html")] = None,
    seed: Annotated[int, Flag("Random seed of the voice.", minimum=0, maximum=2**32 - 1)] = 0,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Evaluate a voice on held-out clips with a speech recogniser trained on the recordings."""
    with command_errors(SPEECH):
        from trainers.media.page import check_file, write_page
        from trainers.vits.corpus import SpeechCorpus
        from trainers.vits.page import build_page, render_page
        from trainers.vits.speech_evaluation import score
        from trainers.vits.speech_recogniser import load_or_train_recogniser
        from trainers.vits.versions import find_voice_folder
        from trainers.vits.voice import Voice

        torch.set_num_threads(threads)
        folder = find_voice_folder(voice)
        speaker, recordings = Voice.load(folder), SpeechCorpus.open(corpus)
        path = folder.parent / f"{folder.name}.html" if page is None else page
        check_file(path)
        recogniser = load_or_train_recogniser(recordings)
        progress = make_progress_counter("scored", "clips", silent=as_json)
        held_out = recordings.list_clips("held_out")
        scores = score(speaker, recordings, held_out, recogniser, seed=seed, on_progress=progress)
        evaluation_page = build_page(
            f"{folder.parent.name}/{folder.name}", speaker, recordings, scores, recogniser, seed=seed
        )
        write_page(path, render_page(evaluation_page))
    if as_json:
        print_json(
            {"kind": "evaluated", "page": str(path), "recogniser_error_rate": recogniser.error_rate, **scores.as_json()}
        )
        return
    echo(
        f"Character error rate of the recogniser: {scores.error_rate:.1%} on the voice, {recogniser.error_rate:.1%} on "
        "held-out recordings"
    )
    for failed in scores.unspoken:
        echo(f"! {failed.clip.name} could not be synthesised: {failed.fault}")
    echo(f"Saved {path}: open it to listen")


def _create_voice(corpus: "SpeechCorpus", sizes: VoiceSizes, start: Path | None) -> "Voice":
    """The voice to train: a new one, or one loaded from a folder."""
    from trainers.vits.training import check_fits
    from trainers.vits.versions import find_voice_folder
    from trainers.vits.voice import Voice, build_config

    if start is None:
        config = build_config(sizes.size, sizes.durations, corpus.framing, corpus.vocabulary)
        return Voice.fresh(config, corpus.vocabulary)
    voice = Voice.load(find_voice_folder(start))
    check_fits(voice, corpus, start)
    return voice


def _train_voice(
    voice: "Voice",
    corpus: "SpeechCorpus",
    sizes: VoiceSizes,
    recipe: SpeechRecipe,
    checkpoints: Checkpoints,
    consume: Any,
) -> Any:
    """Train the voice in place and return the training curves."""
    from trainers.vits.batches import CorpusDataset
    from trainers.vits.objective import Discriminators
    from trainers.vits.training import TrainingSetup, fit
    from trainers.vits.voice import list_discriminator_channels

    clips = corpus.list_clips("train")
    setup = TrainingSetup(
        clips=CorpusDataset(corpus, clips, voice.tokens),
        frames=[clip.frames for clip in clips],
        weights=None,
        selection=CorpusDataset(corpus, corpus.list_clips("selection"), voice.tokens),
    )
    discriminators = (
        None if recipe.adversarial_from is None else Discriminators(list_discriminator_channels(sizes.size))
    )
    return fit(voice, setup, recipe, checkpoints, consume, discriminators=discriminators)


def _suggest_synthesis(voice: Path, corpus: "SpeechCorpus") -> str:
    """Command to try next: synthesise a text of the corpus."""
    text = corpus.list_clips("selection")[0].text
    return f"quantra train vits synth {quote(str(voice))} --text {quote(text)} --out a.wav"


def _report_finished(version: Path, command: str, *, as_json: bool) -> None:
    if launched_rank() > 0:
        return
    if as_json:
        print_json({"kind": "finished", "voice": str(version)})
        return
    echo(f"{version} is finished; there is nothing to resume. Next: {command}")


def _report_prepared(corpus: "SpeechCorpus", out: Path, *, as_json: bool) -> None:
    """Report the size of a corpus and its warnings."""
    from trainers.vits.corpus import describe_corpus_problems

    facts: dict[str, Any] = {
        "clips": len(corpus.clips),
        "seconds": corpus.framing.seconds(sum(clip.frames for clip in corpus.clips)),
        "train": len(corpus.list_clips("train")),
        "selection": len(corpus.list_clips("selection")),
        "held_out": len(corpus.list_clips("held_out")),
        "refused": [asdict(rejected) for rejected in corpus.refused],
        "unknown": dict(corpus.unknown),
        "unlisted": list(corpus.unlisted),
    }
    if as_json:
        print_json({"kind": "prepared", "corpus": str(out), **facts})
        return
    for notice in describe_corpus_problems(corpus):
        echo(f"! {notice}")
    echo(
        f"{len(corpus.clips)} clips, {facts['seconds']:.0f} seconds: {facts['train']} train, "
        f"{facts['selection']} selection, {facts['held_out']} held-out."
    )
    if facts["held_out"] < FEW:
        echo(f"! {facts['held_out']} held-out clips are too few for reliable figures; use --held-out {FEW}")
    echo(f"Saved {out}. Next: quantra train vits train {quote(str(out))} --out voices/mine")


def _collect_corrections(
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
    folder = locate_run(versions.following) / CORRECTIONS
    rated = prepare_corrections(new_items, base, folder, resample=resample, skip_bad=skip_bad)
    material = CorrectionMaterial(base=base, rated=rated, previous=previous, new_items=new_items, share=share)
    material.check()
    return material


def _report_material(material: "CorrectionMaterial") -> None:
    from trainers.vits.corpus import describe_correction_problems

    for notice in describe_correction_problems(material.rated.corpus, material.new_items.idle):
        echo(f"! {notice}")
    corpus = material.rated.corpus
    echo(
        f"{material.new_items.count} new lines, {material.new_items.known} used before. New corrections: "
        f"{len(corpus.list_clips('train'))} train, {len(corpus.list_clips('selection'))} selection, "
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
            names = ", ".join(result.decision.worse_clips[:MAX_LISTED])
            echo(
                f"! Worse than before: {names}. If these recordings contain the mistake that you corrected, rate them 1"
            )
        if not result.decision.has_learnt_corrections:
            echo("! The corrections were not learnt: record more of them, or train for more --steps")
        echo(f"Rejected: {voice} is unchanged, and the corrections stay new. The figures are in {result.path}")
        raise typer.Exit(1)
    echo(f"Saved {result.path} with speaking rate {result.speaking_rate:g}; the previous version is kept")
