"""`quantra train vits …` and `python -m trainers.vits …`: from recordings to a corpus, a voice and speech.

What needs the extra `tts` is imported when a command runs, so that a missing package is one line.
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
from predictor.flags import Flag, ParsedFlags
from predictor.parent import stop_with_parent
from trainers.loop import Checkpoints, launched_rank, seed_everything
from trainers.media.console import AsJson, counter, failing, say, write
from trainers.media.run_directory import as_settings, run_folder
from trainers.options import RunOptions, Threads, consumer
from trainers.vits.errors import SPEECH
from trainers.vits.recipe import FINE_TUNING, LEARNING_RATES, SpeechRecipe, VoiceSizes

VoiceArgument = Annotated[
    Path, typer.Argument(metavar="VOICE", help="Folder of a voice, or of one of its versions.", show_default=False)
]

FEW: Final = 10
"""Clips to judge by: figures of fewer are luck."""

if TYPE_CHECKING:
    from trainers.vits.corpus import SpeechCorpus
    from trainers.vits.voice import Voice


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
    selection: Annotated[float, Flag("Texts to choose by: a share below 1, or a number.", minimum=0)] = 0.05,
    held_out: Annotated[float, Flag("Texts to judge by: a share below 1, or a number.", minimum=0)] = 0.05,
    max_seconds: Annotated[float, Flag("The longest clip.", minimum=0)] = 20.0,
    vocabulary_of: Annotated[
        Path | None, Flag("A voice whose characters alone can be used, to train on from it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check recordings and their texts, and make a corpus of them."""
    with failing(SPEECH):
        from trainers.vits.preparation import CorpusSettings
        from trainers.vits.preparation import prepare as prepared
        from trainers.vits.spectrum import FrameSettings
        from trainers.vits.versions import voice_folder
        from trainers.vits.vocabulary import VOCABULARY, read_vocabulary

        settings = CorpusSettings(
            framing=FrameSettings(rate=rate),
            resample=resample,
            skip_bad=skip_bad,
            selection=selection,
            held_out=held_out,
            max_seconds=max_seconds,
            vocabulary=None if vocabulary_of is None else read_vocabulary(voice_folder(vocabulary_of) / VOCABULARY),
        )
        corpus = prepared(recordings, out, settings, counter("prepared", "clips", silent=as_json))
    _tell_prepared(corpus, out, as_json=as_json)


@with_flags
def train(
    *,
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="Folder that `prepare` made.", show_default=False)],
    out: Annotated[Path, Flag("Folder of the voice; a version is added to it.")],
    start: Annotated[
        Path | None,
        Flag("A voice to start from, such as a local folder of MMS; nothing is downloaded.", spelling="--from"),
    ] = None,
    build: ParsedFlags[VoiceSizes],
    recipe: ParsedFlags[SpeechRecipe],
    run: RunOptions,
) -> None:
    """Train a voice on a prepared corpus."""
    with failing(SPEECH):
        from trainers.vits.corpus import SpeechCorpus
        from trainers.vits.training import begin, checkpoints_of, finished
        from trainers.vits.versions import VoiceVersions

        if start is not None and "durations" in build.flags:
            raise typer.BadParameter("--durations comes with the voice of --from; leave it out, or train a new voice")
        built = build.over(VoiceSizes())
        chosen = recipe.over(SpeechRecipe(learning_rate=FINE_TUNING if start else LEARNING_RATES[built.size]))
        torch.set_num_threads(run.threads)
        if run.parent_watch:
            stop_with_parent()
        prepared, versions = SpeechCorpus.open(corpus), VoiceVersions(out)
        place = versions.following
        seed_everything(chosen.seed)
        voice = _started(prepared, built, start)
        settings = _settings(prepared, built, chosen, None if start is None else voice)
        done = finished(versions, settings) if run.resume else None
        if done is not None:
            _tell_finished(done, _next(out, prepared), as_json=run.as_json)
            return
        checkpoints = checkpoints_of(place, run, settings)
        with checkpoints.open() if launched_rank() == 0 else nullcontext():
            versions.check_unchanged()
            begin(place)
            consume = consumer(run, run_folder(place), sys.stdout, rank=launched_rank())
            learnt = _fitted(voice, prepared, built, chosen, checkpoints, consume)
            if launched_rank() > 0:
                return
            rate = voice.settle_rate([(clip.text, clip.frames) for clip in prepared.part("selection")])
            voice.model.cpu()
            told = {**settings, "weights": _digest(voice), "curves": asdict(learnt), "speaking_rate": rate}
            place = versions.add(voice, told)
            checkpoints.clear()
    if run.as_json:
        write({"kind": "trained", "voice": str(place), "speaking_rate": rate})
        return
    say(f"Saved {place}, which speaks at rate {rate:g}. Next: {_next(out, prepared)}")


@with_flags
def synth(
    *,
    voice: VoiceArgument,
    text: Annotated[str, Flag("What to say.")],
    out: Annotated[Path, Flag("The sound's file: .wav or .flac.", metavar="FILE")],
    seed: Annotated[int, Flag("Of what the voice draws.", minimum=0, maximum=2**32 - 1)] = 0,
    threads: Threads = 1,
) -> None:
    """Say a text, and save the sound."""
    with failing(SPEECH):
        from soundfile import LibsndfileError
        from soundfile import write as write_sound

        from trainers.vits.errors import VoiceError
        from trainers.vits.versions import voice_folder
        from trainers.vits.vocabulary import unknown_characters
        from trainers.vits.voice import Voice

        if out.suffix.lower() not in {".wav", ".flac"}:
            raise typer.BadParameter(f"--out {out} must end in .wav or .flac")
        torch.set_num_threads(threads)
        speaker = Voice.load(voice_folder(voice))
        unknown = unknown_characters(speaker.tokenizer, text)
        if unknown:
            say(f"! the voice has no sound for {', '.join(map(repr, sorted(unknown)))}, which it leaves out")
        wave = speaker.speak(text, seed=seed)
        try:
            write_sound(out, wave.numpy(), speaker.framing.rate, subtype="PCM_16")
        except LibsndfileError as error:
            raise VoiceError(
                f"{out} cannot be written ({error.error_string}); name a file in a folder that exists and has room"
            ) from error
    say(f"Saved {out}, {len(wave) / speaker.framing.rate:.1f} seconds")


@with_flags
def evaluate(
    *,
    voice: VoiceArgument,
    corpus: Annotated[Path, Flag("Folder that `prepare` made; its held-out clips are said.")],
    page: Annotated[Path | None, Flag("The page to hear and see it on.", own="VOICE/VERSION.html")] = None,
    seed: Annotated[int, Flag("Of what the voice draws.", minimum=0, maximum=2**32 - 1)] = 0,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Judge a voice on held-out clips, by a recogniser that has learnt from recordings alone."""
    with failing(SPEECH):
        from trainers.media.page import check_file, write_page
        from trainers.vits.corpus import SpeechCorpus
        from trainers.vits.page import page_of, render_page, scores_of
        from trainers.vits.speech_recogniser import judge_of
        from trainers.vits.versions import voice_folder
        from trainers.vits.voice import Voice

        torch.set_num_threads(threads)
        folder = voice_folder(voice)
        speaker, prepared = Voice.load(folder), SpeechCorpus.open(corpus)
        place = folder.parent / f"{folder.name}.html" if page is None else page
        check_file(place)
        judge = judge_of(prepared)
        scores = scores_of(
            speaker, prepared, "held_out", judge, tell=counter("judged", "clips", silent=as_json), seed=seed
        )
        found = page_of(f"{folder.parent.name}/{folder.name}", speaker, prepared, scores, judge, seed=seed)
        write_page(place, render_page(found))
    if as_json:
        write({"kind": "evaluated", "page": str(place), "judge_error_rate": judge.error_rate, **scores.as_json()})
        return
    say(
        f"{scores.error_rate:.1%} of characters are heard wrongly in what it says (in held-out recordings: "
        f"{judge.error_rate:.1%})"
    )
    for one in scores.unspoken:
        say(f"! {one.clip.name} was not said: {one.fault}")
    say(f"Saved {place}: open it to listen")


def _started(corpus: "SpeechCorpus", build: VoiceSizes, start: Path | None) -> "Voice":
    """A voice to train: a new one, or that of a folder."""
    from trainers.vits.training import check_fits
    from trainers.vits.versions import voice_folder
    from trainers.vits.voice import Voice, config_of

    if start is None:
        config = config_of(build.size, build.durations, corpus.framing, corpus.vocabulary)
        return Voice.fresh(config, corpus.vocabulary)
    voice = Voice.load(voice_folder(start))
    check_fits(voice, corpus, start)
    return voice


def _fitted(
    voice: "Voice",
    corpus: "SpeechCorpus",
    build: VoiceSizes,
    recipe: SpeechRecipe,
    checkpoints: Checkpoints,
    consume: Any,
) -> Any:
    """Train the voice in place; how it went."""
    from trainers.vits.batches import CorpusDataset
    from trainers.vits.objective import Discriminators
    from trainers.vits.training import TrainingSetup, fit
    from trainers.vits.voice import discriminator_channels

    clips = corpus.part("train")
    lesson = TrainingSetup(
        clips=CorpusDataset(corpus, clips, voice.tokens),
        frames=[clip.frames for clip in clips],
        weights=None,
        selection=CorpusDataset(corpus, corpus.part("selection"), voice.tokens),
    )
    judging = None if recipe.adversarial_from is None else Discriminators(discriminator_channels(build.size))
    return fit(voice, lesson, recipe, checkpoints, consume, discriminators=judging)


def _settings(
    corpus: "SpeechCorpus", build: VoiceSizes, recipe: SpeechRecipe, parent: "Voice | None"
) -> dict[str, Any]:
    """What decides what a training comes to, as JSON: its checkpoints and its version are known by it."""
    return {
        "corpus": corpus.digest,
        "recipe": as_settings(asdict(recipe)),
        "build": asdict(build),
        "parent": None if parent is None else _digest(parent),
    }


def _digest(voice: "Voice") -> str:
    """What names a voice by its weights, as they are saved."""
    from trainers.vits.training import weights_digest
    from trainers.vits.voice import plain_weights

    return weights_digest(plain_weights(voice.model))


def _next(voice: Path, corpus: "SpeechCorpus") -> str:
    """What to do with a voice that is there: to say a text of its corpus, whose characters it knows."""
    text = corpus.part("selection")[0].text
    return f"quantra train vits synth {quote(str(voice))} --text {quote(text)} --out a.wav"


def _tell_finished(version: Path, following: str, *, as_json: bool) -> None:
    """That there is nothing to go on with, and what follows."""
    if launched_rank() > 0:
        return
    if as_json:
        write({"kind": "finished", "voice": str(version)})
        return
    say(f"{version} is finished; there is nothing to resume. Next: {following}")


def _tell_prepared(corpus: "SpeechCorpus", out: Path, *, as_json: bool) -> None:
    """How large a corpus is, and what one should know of it."""
    from trainers.vits.corpus import notices

    facts = _facts_of(corpus)
    if as_json:
        write({"kind": "prepared", "corpus": str(out), **facts})
        return
    for notice in notices(corpus):
        say(f"! {notice}")
    say(
        f"{len(corpus.clips)} clips, {facts['seconds']:.0f} seconds: {facts['train']} to learn from, "
        f"{facts['selection']} to choose by, {facts['held_out']} to judge by."
    )
    if facts["held_out"] < FEW:
        say(f"! {facts['held_out']} to judge by tell little; --held-out {FEW} sets so many texts aside")
    say(f"Saved {out}. Next: quantra train vits train {quote(str(out))} --out voices/mine")


def _facts_of(corpus: "SpeechCorpus") -> dict[str, Any]:
    """What programs want to know of a corpus."""
    return {
        "clips": len(corpus.clips),
        "seconds": corpus.framing.seconds(sum(clip.frames for clip in corpus.clips)),
        "train": len(corpus.part("train")),
        "selection": len(corpus.part("selection")),
        "held_out": len(corpus.part("held_out")),
        "refused": [asdict(one) for one in corpus.refused],
        "unknown": dict(corpus.unknown),
        "unlisted": list(corpus.unlisted),
    }
