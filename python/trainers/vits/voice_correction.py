"""Correction of a voice: train, compare with the previous version, then accept or reject."""

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
    """Result of a correction.

    Attributes:
        decision: Decision with all figures.
        speaking_rate: Speaking rate of the corrected voice.
        place: Folder of the new version, or the file of figures if rejected.
    """

    decision: VoiceDecision
    speaking_rate: float
    place: Path


@final
class VoiceCorrection:
    """One correction of a voice.

    Args:
        versions: Versions of the voice; the current one is corrected.
        material: Training and evaluation data.
        recipe: Training settings.
        build: Size of the discriminators, if the recipe uses them.
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
        """Everything that determines the result, as JSON."""
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
        """Train from the current version, evaluate, and accept or reject; the voice changes only at the end.

        Args:
            judge: Recogniser of the base corpus.
            checkpoints: Checkpoints for resuming.
            consume: Receives training reports.
            tell: Called after each evaluated clip with the number done and the total.

        Raises:
            StoppedError: A signal ended the training, after a checkpoint.
            LoopError: The training failed.
            SpeechError: A voice or a clip cannot be used.
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
        """Train a voice in place, then move it to the CPU."""
        channels = discriminator_channels(self._build.size)
        judging = None if self._recipe.adversarial_from is None else Discriminators(channels)
        lesson = self._material.lesson(voice.tokens)
        learnt = fit(voice, lesson, self._recipe, checkpoints, consume, discriminators=judging)
        voice.model.cpu()
        return learnt

    def _settle(self, before: Voice, voice: Voice) -> float:
        base, new = self._material.base_part("selection"), self._material.rated.corpus.part("selection")
        return settle(voice, base, new, length_error(before, base))

    def _accept(self, voice: Voice, facts: Mapping[str, Any]) -> Path:
        """Add a version that includes its corrections."""
        news, rated = self._material.news, self._material.rated

        def beside(folder: Path) -> None:
            rated.write(folder, news.base)

        return self._versions.add(voice, facts, consumed=taken(news, rated), beside=beside)

    def _refuse(self, folder: Path, facts: Mapping[str, Any]) -> Path:
        """Write only the figures; the voice is unchanged."""
        place = folder / REFUSED
        place.write_text(json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        return place


def _digest(voice: Voice) -> str:
    return weights_digest(plain_weights(voice.model))


def judged(
    before: Voice, after: Voice, material: CorrectionMaterial, judge: SpeechRecogniser, tell: Callable[[int, int], None]
) -> VoiceDecision:
    """Score both voices on held-out clips, and decide.

    Args:
        before: Current voice.
        after: Corrected voice.
        material: Evaluation data.
        judge: Recogniser of the base corpus.
        tell: Called after each clip with the number done and the total.
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
    """Scores of a voice on clips of several corpora."""
    each = (_scores(voice, corpus, clips, judge, count).clips for corpus, clips in sets)
    return SpeechScores.of(SpeechEvaluation(tuple(chain.from_iterable(each))))


def _scores(
    voice: Voice, corpus: SpeechCorpus, clips: Iterable[RecordedClip], judge: SpeechRecogniser, count: "_ClipCounter"
) -> SpeechEvaluation:
    return score(voice, corpus, clips, judge, tell=lambda _done, _total: count.one())


@final
class _ClipCounter:
    """Counts clips over several scoring runs."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._done, self._total, self._tell = 0, total, tell

    def one(self) -> None:
        """Count one clip."""
        self._done += 1
        self._tell(self._done, self._total)
