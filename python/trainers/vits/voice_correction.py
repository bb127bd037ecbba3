"""Correcting a voice: it learns, is judged beside the voice before, and becomes a version or leaves only figures."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, final

from trainers.loop import Checkpoints
from trainers.media.run_directory import as_settings, run_folder
from trainers.progress import ReportConsumer
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.corrections import CorrectionMaterial, Judged, length_error, settle, taken
from trainers.vits.gate import SpeechScores, VoiceComparison, VoiceDecision, decide
from trainers.vits.objective import Discriminators
from trainers.vits.recipe import FeedbackRecipe, VoiceSizes
from trainers.vits.scoring import SpeechEvaluation, score
from trainers.vits.speech_recogniser import SpeechRecogniser
from trainers.vits.training import CORRECTIONS, REFUSED, VoiceTrainingResult, begin, fit, weights_digest
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice, discriminator_channels, plain_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionResult:
    """What came of a correction.

    Attributes:
        decision: with every figure.
        speaking_rate: of the corrected voice.
        place: the new version's folder, or the file of figures of one that was refused.
    """

    decision: VoiceDecision
    speaking_rate: float
    place: Path


@final
class VoiceCorrection:
    """One correction of a voice.

    Args:
        versions: of the voice; the current one is corrected.
        material: what it learns from, and is judged by.
        recipe: how it learns.
        build: the size of the discriminators, where the recipe wants them.
    """

    def __init__(
        self, versions: VoiceVersions, material: CorrectionMaterial, recipe: FeedbackRecipe, build: VoiceSizes
    ) -> None:
        self._versions = versions
        self._material = material
        self._recipe = recipe
        self._build = build

    @property
    def settings(self) -> dict[str, Any]:
        """What decides what the training comes to, as JSON."""
        return {
            "corpus": self._material.base.digest,
            "lesson": self._material.digest,
            "recipe": as_settings(asdict(self._recipe)),
            "build": asdict(self._build),
            "parent": _digest(Voice.load(self._versions.current)),
        }

    def run(
        self,
        judge: SpeechRecogniser,
        checkpoints: Checkpoints,
        consume: ReportConsumer,
        tell: Callable[[int, int], None],
    ) -> CorrectionResult:
        """Train from the current version, judge, and keep or refuse; nothing of the voice changes before the end.

        Args:
            judge: of the base corpus.
            checkpoints: where a training that was stopped goes on from.
            consume: takes the training's reports.
            tell: called after each clip that is judged with how many are done, and of how many.

        Raises:
            StoppedError: a signal ended the training, after a checkpoint.
            LoopError: the training failed.
            SpeechError: a voice or a clip cannot be used.
        """
        with checkpoints.open():
            self._versions.check_unchanged()
            begin(self._versions.following)
            before, voice = Voice.load(self._versions.current), Voice.load(self._versions.current)
            learnt = self._learn(voice, checkpoints, consume)
            rate = self._settle(before, voice)
            decision = judged(before, voice, self._material, judge, tell)
            facts = {
                **self.settings,
                "weights": _digest(voice),
                "curves": asdict(learnt),
                "speaking_rate": rate,
                "corrects": self._versions.index.current,
                "decision": decision.as_json(),
            }
            folder = run_folder(self._versions.following)
            place = self._accept(voice, facts) if decision.accepted else self._refuse(folder, facts)
            checkpoints.clear()
            shutil.rmtree(folder / CORRECTIONS)
        return CorrectionResult(decision=decision, speaking_rate=rate, place=place)

    def _learn(self, voice: Voice, checkpoints: Checkpoints, consume: ReportConsumer) -> VoiceTrainingResult:
        """Train a voice in place, and have it on the CPU then."""
        channels = discriminator_channels(self._build.size)
        judging = None if self._recipe.adversarial_from is None else Discriminators(channels)
        lesson = self._material.lesson(voice.tokens)
        learnt = fit(voice, lesson, self._recipe, checkpoints, consume, discriminators=judging)
        voice.model.cpu()
        return learnt

    def _settle(self, before: Voice, voice: Voice) -> float:
        """The speaking rate of a voice that has learnt."""
        base, new = self._material.base_part("selection"), self._material.rated.corpus.part("selection")
        return settle(voice, base, new, length_error(before, base))

    def _accept(self, voice: Voice, facts: Mapping[str, Any]) -> Path:
        """A new version, which keeps the corrections that it has learnt from."""
        news, rated = self._material.news, self._material.rated

        def beside(folder: Path) -> None:
            rated.write(folder, news.base)

        return self._versions.add(voice, facts, consumed=taken(news, rated), beside=beside)

    def _refuse(self, folder: Path, facts: Mapping[str, Any]) -> Path:
        """The figures alone; the voice stays as it was."""
        place = folder / REFUSED
        place.write_text(json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        return place


def _digest(voice: Voice) -> str:
    return weights_digest(plain_weights(voice.model))


def judged(
    before: Voice, after: Voice, material: CorrectionMaterial, judge: SpeechRecogniser, tell: Callable[[int, int], None]
) -> VoiceDecision:
    """Have both voices say the clips that neither has learnt from, and decide.

    Args:
        before: the voice that is spoken with now.
        after: the corrected one.
        material: what to judge by.
        judge: of the base corpus.
        tell: called after each clip with how many are done, and of how many.
    """
    new, earlier = material.judged(), material.judged_before()
    base = (material.base, material.base_part("held_out"))
    count = _ClipCounter(2 * sum(len(clips) for _, clips in (new, base, *earlier)), tell)

    def comparison(sets: Sequence[Judged]) -> VoiceComparison:
        return VoiceComparison(_spoken(before, sets, judge, count), _spoken(after, sets, judge, count))

    return decide(
        comparison([new]),
        comparison([base]),
        judge_error_rate=judge.error_rate,
        earlier=comparison(earlier) if earlier else None,
    )


def _spoken(voice: Voice, sets: Iterable[Judged], judge: SpeechRecogniser, count: "_ClipCounter") -> SpeechScores:
    """How a voice says clips of several corpora."""
    told = (_scores(voice, corpus, clips, judge, count).clips for corpus, clips in sets)
    return SpeechScores.of(SpeechEvaluation(tuple(chain.from_iterable(told))))


def _scores(
    voice: Voice, corpus: SpeechCorpus, clips: Iterable[RecordedClip], judge: SpeechRecogniser, count: "_ClipCounter"
) -> SpeechEvaluation:
    return score(voice, corpus, clips, judge, tell=lambda _done, _total: count.one())


@final
class _ClipCounter:
    """Counts clips over several scores.

    Args:
        total: of all of them.
        tell: called after each.
    """

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._done, self._total, self._tell = 0, total, tell

    def one(self) -> None:
        """One more is done."""
        self._done += 1
        self._tell(self._done, self._total)
