"""`quantra train vits …` and `python -m trainers.vits …`: from recordings to a corpus, a voice and speech.

What needs the extra `tts` is imported when a command runs, so that a missing package is one line.
"""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from predictor.cli.flags import with_flags
from predictor.errors import ConfigurationError
from predictor.flags import Flag, Given, Only
from trainers.loop import Checkpoints, LoopError, StoppedError, launched_rank, launched_size, seed_everything
from trainers.options import RunOptions, Threads, consumer
from trainers.vits.errors import FeedbackError, SpeechError, VoiceError, require_packages
from trainers.vits.recipe import FINE_TUNING, Build, FeedbackRecipe, SpeechRecipe

if TYPE_CHECKING:
    from trainers.vits.corpus import Corpus
    from trainers.vits.correcting import Corrected
    from trainers.vits.feedback import Material
    from trainers.vits.versions import Versions
    from trainers.vits.voice import Voice

CorpusArgument = Annotated[
    Path, typer.Argument(metavar="CORPUS", help="Folder that `prepare` made.", show_default=False)
]
VoiceArgument = Annotated[
    Path, typer.Argument(metavar="VOICE", help="Folder of a voice, or of one of its versions.", show_default=False)
]
AsJson = Annotated[bool, Flag("Write the result as JSON to standard output.", spelling="--json")]


@with_flags
def prepare(  # noqa: PLR0913 - one argument a flag
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
    with _failing():
        from trainers.vits.notices import notices
        from trainers.vits.preparation import Preparation
        from trainers.vits.preparation import prepare as prepared
        from trainers.vits.spectrum import Framing
        from trainers.vits.versions import voice_folder
        from trainers.vits.vocabulary import VOCABULARY, read_vocabulary

        settings = Preparation(
            framing=Framing(rate=rate),
            resample=resample,
            skip_bad=skip_bad,
            selection=selection,
            held_out=held_out,
            max_seconds=max_seconds,
            vocabulary=None if vocabulary_of is None else read_vocabulary(voice_folder(vocabulary_of) / VOCABULARY),
        )
        corpus = prepared(recordings, out, settings, _counter("prepared", silent=as_json))
    facts = _facts_of(corpus)
    if as_json:
        _write({"kind": "prepared", "corpus": str(out), **facts})
        return
    for notice in notices(corpus):
        _say(f"! {notice}")
    _say(
        f"{len(corpus.clips)} clips, {facts['seconds']:.0f} seconds: {facts['train']} to learn from, "
        f"{facts['selection']} to choose by, {facts['held_out']} to judge by."
    )
    _say(f"Saved {out}. Next: quantra train vits train {out} --out voices/mine")


@with_flags
def train(
    *,
    corpus: CorpusArgument,
    out: Annotated[Path, Flag("Folder of the voice; a version is added to it.")],
    start: Annotated[
        Path | None,
        Flag("A voice to start from, such as a local folder of MMS; nothing is downloaded.", spelling="--from"),
    ] = None,
    build: Given[Build],
    recipe: Given[SpeechRecipe],
    run: RunOptions,
) -> None:
    """Train a voice on a prepared corpus."""
    with _failing():
        from trainers.vits.corpus import Corpus
        from trainers.vits.versions import Versions

        if start is not None and "durations" in build.flags:
            raise typer.BadParameter("--durations comes with the voice of --from; leave it out, or train a new voice")
        built = build.over(Build())
        chosen = recipe.over(SpeechRecipe() if start is None else SpeechRecipe(learning_rate=FINE_TUNING))
        torch.set_num_threads(run.threads)
        prepared, versions = Corpus.open(corpus), Versions(out)
        place = versions.following
        seed_everything(chosen.seed)
        voice = _started(prepared, built, start)
        folder = out / f"{place.name}.run"
        settings = {"corpus": prepared.digest, "recipe": asdict(chosen), "build": asdict(built)}
        learnt = _fitted(
            voice,
            prepared,
            built,
            chosen,
            _checkpoints(folder, run, settings),
            consumer(run, folder, sys.stdout, rank=launched_rank()),
        )
        if launched_rank() > 0:
            return
        rate = voice.settle_rate([(clip.text, clip.frames) for clip in prepared.part("selection")])
        voice.model.cpu()
        place = versions.add(voice, {**settings, "curves": asdict(learnt), "speaking_rate": rate})
    if run.as_json:
        _write({"kind": "trained", "voice": str(place), "speaking_rate": rate})
        return
    _say(f"Saved {place}, which speaks at rate {rate:g}. Next: quantra train vits synth {out} --text hello --out a.wav")


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
    with _failing():
        from soundfile import write

        from trainers.vits.versions import voice_folder
        from trainers.vits.vocabulary import unknown_characters
        from trainers.vits.voice import Voice

        if out.suffix.lower() not in {".wav", ".flac"}:
            raise typer.BadParameter(f"--out {out} must end in .wav or .flac")
        torch.set_num_threads(threads)
        speaker = Voice.load(voice_folder(voice))
        unknown = unknown_characters(speaker.tokenizer, text)
        if unknown:
            _say(f"! the voice has no sound for {', '.join(map(repr, sorted(unknown)))}, which it leaves out")
        wave = speaker.speak(text, seed=seed)
        write(out, wave.numpy(), speaker.framing.rate, subtype="PCM_16")
    _say(f"Saved {out}, {len(wave) / speaker.framing.rate:.1f} seconds")


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
    with _failing():
        from trainers.vits.corpus import Corpus
        from trainers.vits.evaluation import page_of, scores_of
        from trainers.vits.judge import judge_of
        from trainers.vits.page import write_page
        from trainers.vits.versions import voice_folder
        from trainers.vits.voice import Voice

        torch.set_num_threads(threads)
        folder = voice_folder(voice)
        speaker, prepared = Voice.load(folder), Corpus.open(corpus)
        place = folder.parent / f"{folder.name}.html" if page is None else page
        judge = judge_of(prepared)
        scores = scores_of(speaker, prepared, "held_out", judge, tell=_counter("judged", silent=as_json), seed=seed)
        write_page(place, page_of(f"{folder.parent.name}/{folder.name}", speaker, prepared, scores, judge, seed=seed))
    if as_json:
        _write({"kind": "evaluated", "page": str(place), "judge_error_rate": judge.error_rate, **scores.as_json()})
        return
    _say(
        f"{scores.error_rate:.1%} of characters are heard wrongly in what it says (in held-out recordings: "
        f"{judge.error_rate:.1%})"
    )
    for one in scores.unspoken:
        _say(f"! {one.clip.name} was not said: {one.fault}")
    _say(f"Saved {place}: open it to listen")


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
    build: Annotated[Build, Only("size")],
    recipe: FeedbackRecipe,
    run: RunOptions,
) -> None:
    """Correct a voice by recordings of how it should sound, and keep it if held-out ones show that it is better."""
    with _failing():
        from trainers.vits.correcting import Correcting
        from trainers.vits.judge import judge_of
        from trainers.vits.versions import Versions

        _check_correctable(voice)
        torch.set_num_threads(run.threads)
        versions = Versions(voice)
        material = _material(versions, manifest, corpus, recipe.share, resample=resample, skip_bad=skip_bad)
        if material is None:
            _tell_nothing_new(manifest, voice, run)
            return
        _tell_material(material)
        correcting = Correcting(versions, material, recipe, build)
        checkpoints = _checkpoints(correcting.folder, run, correcting.settings)
        judge = judge_of(material.base)
        seed_everything(recipe.seed)
        done = correcting.run(
            judge,
            checkpoints,
            consumer(run, correcting.folder, sys.stdout),
            _counter("judged", silent=run.as_json),
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
    versions: "Versions", manifest: Path, corpus: Path, share: float, *, resample: bool, skip_bad: bool
) -> "Material | None":
    """What there is to learn; None if nothing is new."""
    from trainers.vits.corpus import Corpus
    from trainers.vits.correcting import run_folder
    from trainers.vits.corrections import CORRECTIONS, kept_of, news_of, prepared
    from trainers.vits.feedback import Material
    from trainers.vits.manifest import read_manifest
    from trainers.vits.voice import Voice

    base, told = Corpus.open(corpus), read_manifest(manifest)
    _check_fits(Voice.load(versions.current), base, versions.current)
    kept = kept_of(versions)
    news = news_of(told, base, versions.index.consumed, kept)
    if not news.count:
        return None
    folder = run_folder(versions) / CORRECTIONS
    rated = prepared(news, base, folder, resample=resample, skip_bad=skip_bad)
    material = Material(base=base, rated=rated, kept=kept, news=news, share=share)
    material.check()
    return material


def _tell_nothing_new(manifest: Path, voice: Path, run: RunOptions) -> None:
    if run.as_json:
        _write({"kind": "unchanged", "voice": str(voice)})
    _say(f"{voice} has learnt from all of {manifest} before; there is nothing new, and it stays as it is")


def _tell_material(material: "Material") -> None:
    """What is learnt from and what is not, for a person."""
    from trainers.vits.notices import notices_of_corrections

    for notice in notices_of_corrections(material.rated.corpus, material.news.idle):
        _say(f"! {notice}")
    corpus = material.rated.corpus
    _say(
        f"{material.news.count} new lines, {material.news.known} learnt before. New corrections: "
        f"{len(corpus.part('train'))} to learn from, {len(corpus.part('selection'))} to choose by, "
        f"{len(material.judged()[1])} to judge by."
    )


def _tell_corrected(done: "Corrected", voice: Path, run: RunOptions) -> None:
    """The figures and the verdict.

    Raises:
        Exit: 1, where the voice was refused.
    """
    accepted = done.decision.accepted
    if run.as_json:
        facts = {"voice": str(voice), "place": str(done.place), "speaking_rate": done.speaking_rate}
        _write({"kind": "corrected" if accepted else "refused", **facts, **done.decision.as_json()})
    for line in done.decision.lines:
        _say(f"{'!' if line.holds is False else ' '} {line}")
    if not accepted:
        _say(f"Refused: {voice} stays as it was, and nothing counts as learnt. The figures are in {done.place}")
        raise typer.Exit(1)
    _say(f"Saved {done.place}, which speaks at rate {done.speaking_rate:g}; the version before stays beside it")


def _started(corpus: "Corpus", build: Build, start: Path | None) -> "Voice":
    """A voice to train: a new one, or that of a folder."""
    from trainers.vits.sizes import config_of
    from trainers.vits.versions import voice_folder
    from trainers.vits.voice import Voice

    if start is None:
        config = config_of(build.size, build.durations, corpus.framing, corpus.vocabulary)
        return Voice.fresh(config, corpus.vocabulary)
    voice = Voice.load(voice_folder(start))
    _check_fits(voice, corpus, start)
    return voice


def _check_fits(voice: "Voice", corpus: "Corpus", place: Path) -> None:
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


def _fitted(
    voice: "Voice", corpus: "Corpus", build: Build, recipe: SpeechRecipe, checkpoints: Checkpoints, consume: Any
) -> Any:
    """Train the voice in place; how it went."""
    from trainers.vits.batches import Recorded
    from trainers.vits.discriminators import Discriminators
    from trainers.vits.sizes import discriminator_channels
    from trainers.vits.training import Lesson, fit

    clips = corpus.part("train")
    lesson = Lesson(
        clips=Recorded(corpus, clips, voice.tokens),
        frames=[clip.frames for clip in clips],
        weights=None,
        selection=Recorded(corpus, corpus.part("selection"), voice.tokens),
    )
    judging = None if recipe.adversarial_from is None else Discriminators(discriminator_channels(build.size))
    return fit(voice, lesson, recipe, checkpoints, consume, discriminators=judging)


def _checkpoints(folder: Path, run: RunOptions, settings: dict[str, Any]) -> Checkpoints:
    """Where the training goes on from.

    Raises:
        VoiceError: there are checkpoints that nobody asked to go on from.
    """
    place = folder / "checkpoints"
    if place.is_dir() and any(place.iterdir()) and not run.resume:
        raise VoiceError(
            f"{place} holds checkpoints of a training that was stopped; continue it (--resume), or remove the folder"
        )
    return Checkpoints(place, keep=run.keep, every_seconds=run.checkpoint_seconds, settings=settings)


def _facts_of(corpus: "Corpus") -> dict[str, Any]:
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


@contextmanager
def _failing() -> Generator[None]:
    """What goes wrong inside ends the command with one line."""
    try:
        require_packages()
        _quieten()
        yield
    except StoppedError as error:
        _say(f"{error.message}; go on with the same command and --resume")
        raise typer.Exit(128 + error.signal) from error
    except (SpeechError, LoopError) as error:
        raise ConfigurationError(str(error)) from error


def _quieten() -> None:
    """No progress bars of transformers', which reads and writes a voice in a moment."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _counter(done: str, *, silent: bool) -> Callable[[int, int], None]:
    """Shows how many clips are done, on one line of a terminal."""
    shown = sys.stderr.isatty() and not silent

    def tell(count: int, total: int) -> None:
        if shown:
            sys.stderr.write(f"\r{done} {count} of {total} clips" + ("\n" if count == total else ""))
            sys.stderr.flush()

    return tell


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _write(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
