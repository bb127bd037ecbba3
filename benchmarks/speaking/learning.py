"""Speech quality after training, compared with untrained voices and the control, and the parts that are trained."""

import math
from collections import Counter
from statistics import mean
from typing import Final

from benchmarks.report import Row, at_least, at_most, shown
from benchmarks.speaking import control
from benchmarks.speaking.steps import Adversaries
from benchmarks.speaking.voices import VoiceScores, Workplace, first_voice
from trainers.vits.batches import CorpusDataset, UtteranceBatch, UtteranceCollator
from trainers.vits.corpus import SpeechCorpus
from trainers.vits.recipe import SpeechRecipe
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

SHORT, MEDIUM, LONG = 300, 1500, 3000
SEEDS: Final = (0, 1, 2)
RECONSTRUCTION_FALL, DISTANCE_FALL = 45.0, 15.0
MEDIUM_ERRORS, MEDIUM_DISTANCE, LONG_ERRORS, LENGTHS = 0.45, 0.75, 0.36, 0.15


def rows(work: Workplace, *, quick: bool) -> list[Row]:
    """All rows; a quick run has a hundredth of the steps, one seed, and is not judged."""
    share = 100 if quick else 1
    seeds = SEEDS[:1] if quick else SEEDS
    return [
        *coverage(work),
        *(row for seed in seeds for row in short(work, seed, SHORT // share, judged=not quick)),
        *controlled(work, SHORT // share),
        *medium(work, MEDIUM // share, judged=not quick),
        *long(work, LONG // share, judged=not quick),
        *adversarial(work, LONG // share),
    ]


def coverage(work: Workplace) -> list[Row]:
    """Share of each part's parameters that get a gradient in the second step; the flow's are zero in the first."""
    corpus = SpeechCorpus.open(work.corpus)
    adversaries = Adversaries.fresh(corpus, judged=False)
    objective, model = adversaries.objective, adversaries.objective.generator.model
    optimizer = adversaries.optimizer(model)
    batch = _some(corpus)
    for _ in range(2):
        optimizer.zero_grad()
        objective.generator_loss(batch, objective.generator(batch)).mean.backward()
        optimizer.step()
    parts = Counter(name.split(".")[0] for name, _ in model.named_parameters())
    having = Counter(
        name.split(".")[0] for name, one in model.named_parameters() if one.grad is not None and one.grad.any()
    )
    refused = control.refused_parts(work)
    return [
        *(
            at_least(
                f"coverage: {part}, %", 100 * having[part] / count, 100, detail=f"{having[part]} of {count} parameters"
            )
            for part, count in parts.items()
        ),
        at_least(
            "coverage: parts named when the control's loss is rejected",
            len(refused),
            2,
            detail=" and ".join(refused) or "not rejected",
        ),
    ]


def short(work: Workplace, seed: int, steps: int, *, judged: bool) -> list[Row]:
    """Effect of a short training, one seed."""
    before = work.judged(work.untrained(seed))
    after = work.judged(work.trained(f"short-{seed}", "--steps", str(steps), "--seed", str(seed)))
    title = f"{steps} steps, seed {seed}"
    fallen, nearer = _fall(before.reconstruction, after.reconstruction), _fall(before.distance, after.distance)
    return [
        at_least(
            f"{title}: reconstruction falls by, %",
            fallen,
            RECONSTRUCTION_FALL,
            detail=_from(before.reconstruction, after.reconstruction),
            judged=judged,
        ),
        at_least(
            f"{title}: distance of speech falls by, %",
            nearer,
            DISTANCE_FALL,
            detail=_from(before.distance, after.distance),
            judged=judged,
        ),
        _heard(title, before, after),
    ]


def controlled(work: Workplace, steps: int) -> list[Row]:
    """Effect of a short training of the control."""
    before = work.judged(work.untrained(0))
    after = work.judged(control.trained(work, "control", steps=steps, seed=0))
    return [
        shown(
            f"control, {steps} steps: reconstruction falls by, %",
            _fall(before.reconstruction, after.reconstruction),
            detail=_from(before.reconstruction, after.reconstruction),
        ),
        shown(
            f"control, {steps} steps: distance of speech falls by, %",
            _fall(before.distance, after.distance),
            detail=_from(before.distance, after.distance),
        ),
        _heard(f"control, {steps} steps", before, after),
    ]


def medium(work: Workplace, steps: int, *, judged: bool) -> list[Row]:
    """Scores after some minutes of training."""
    found = work.judged(work.trained("medium", "--steps", str(steps)))
    return [
        _errors(f"{steps} steps", found, MEDIUM_ERRORS, judged=judged),
        at_most(
            f"{steps} steps: distance of speech",
            found.distance,
            MEDIUM_DISTANCE,
            detail=f"reconstruction {found.reconstruction:.3f}",
            judged=judged,
        ),
        *_lengths(work, "medium", f"{steps} steps", found, judged=judged),
    ]


def long(work: Workplace, steps: int, *, judged: bool) -> list[Row]:
    """Scores with the default number of steps."""
    found = work.judged(work.trained("long", "--steps", str(steps)))
    return [
        _errors(f"{steps} steps", found, LONG_ERRORS, judged=judged),
        shown(
            f"{steps} steps: distance of speech", found.distance, detail=f"reconstruction {found.reconstruction:.3f}"
        ),
    ]


def adversarial(work: Workplace, steps: int) -> list[Row]:
    """The same, with discriminators in the second half."""
    begin = steps // 2
    found = work.judged(work.trained("adversarial", "--steps", str(steps), "--adversarial-from", str(begin)))
    title = f"{steps} steps, adversarial from {begin}"
    return [
        shown(f"{title}: character error", found.error_rate, detail=f"recogniser {found.recogniser_error_rate:.3f}"),
        shown(f"{title}: distance of speech", found.distance, detail=f"reconstruction {found.reconstruction:.3f}"),
    ]


def _lengths(work: Workplace, voice: str, title: str, found: VoiceScores, *, judged: bool) -> list[Row]:
    """Length errors at the searched speaking rate, and at rate 1."""
    plain = _log_ratios(SpeechCorpus.open(work.corpus), Voice.load(VoiceVersions(work.folder / voice).current))
    return [
        at_most(
            f"{title}: mean |log length ratio|",
            found.length_error,
            LENGTHS,
            detail="at the rate searched on the selection clips",
            judged=judged,
        ),
        shown(
            f"{title}: mean |log length ratio| at rate 1",
            mean(abs(one) for one in plain),
            detail=f"signed mean {mean(plain):+.3f}",
        ),
    ]


def _log_ratios(corpus: SpeechCorpus, voice: Voice) -> list[float]:
    """Log length ratios of the held-out clips at speaking rate 1."""
    voice.model.speaking_rate = 1.0
    return [
        math.log(len(voice.speak(clip.text, seed=0)) / (clip.frames * corpus.framing.hop))
        for clip in corpus.list_clips("held_out")
    ]


def _errors(title: str, found: VoiceScores, reach: float, *, judged: bool) -> Row:
    return at_most(
        f"{title}: character error",
        found.error_rate,
        reach,
        detail=f"unseen sentences, one seed; the recogniser on recordings {found.recogniser_error_rate:.3f}",
        judged=judged,
    )


def _heard(title: str, before: VoiceScores, after: VoiceScores) -> Row:
    return shown(
        f"{title}: character error",
        after.error_rate,
        detail=f"untrained {before.error_rate:.2f}; lengths {after.length_error:.3f}",
    )


def _fall(before: float, after: float) -> float:
    """In per cent."""
    return 100 * (1 - after / before)


def _from(before: float, after: float) -> str:
    return f"from {before:.3f} to {after:.3f}"


def _some(corpus: SpeechCorpus) -> UtteranceBatch:
    """A batch of clips."""
    voice, clips = first_voice(corpus, 0), corpus.list_clips("train")[:8]
    recorded = CorpusDataset(corpus, clips, voice.tokens)
    return UtteranceCollator(SpeechRecipe().slice_frames, voice.framing.hop)(
        [recorded[place] for place in range(len(clips))]
    )
