"""Correction of a voice: train, compare with the previous version, then accept or reject."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, final

from trainers.loop import Checkpoints
from trainers.media.run_directory import as_settings, run_folder
from trainers.progress import ReportConsumer
from trainers.vits.corrections import (
    CorrectionMaterial,
    HeldOutClips,
    find_used_digests,
    length_error,
    set_speaking_rate,
)
from trainers.vits.gate import SpeechScores, VoiceComparison, VoiceDecision, decide
from trainers.vits.objective import Discriminators
from trainers.vits.recipe import FeedbackRecipe, VoiceSizes
from trainers.vits.speech_evaluation import SpeechEvaluation, score
from trainers.vits.speech_recogniser import SpeechRecogniser
from trainers.vits.training import CORRECTIONS, REFUSED, VoiceTrainingResult, clear_rejection, fit, hash_voice
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice, list_discriminator_channels


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionResult:
    """Result of a correction.

    Attributes:
        decision: Decision with all figures.
        speaking_rate: Speaking rate of the corrected voice.
        path: Folder of the new version, or the file of figures if rejected.
    """

    decision: VoiceDecision
    speaking_rate: float
    path: Path


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
            "parent": hash_voice(Voice.load(self._versions.current)),
        }

    def run(
        self,
        recogniser: SpeechRecogniser,
        checkpoints: Checkpoints,
        consume: ReportConsumer,
        on_progress: Callable[[int, int], None],
    ) -> CorrectionResult:
        """Train from the current version, evaluate, and accept or reject; the voice changes only at the end.

        Args:
            recogniser: Recogniser of the base corpus.
            checkpoints: Checkpoints for resuming.
            consume: Receives training reports.
            on_progress: Called after each evaluated clip with the number done and the total.

        Raises:
            StoppedError: A signal ended the training, after a checkpoint.
            LoopError: The training failed.
            SpeechError: A voice or a clip cannot be used.
        """
        with checkpoints.open():
            self._versions.check_unchanged()
            clear_rejection(self._versions.following)
            before, voice = Voice.load(self._versions.current), Voice.load(self._versions.current)
            curves = self._train(voice, checkpoints, consume)
            base, new = self._material.list_base_clips("selection"), self._material.rated.corpus.list_clips("selection")
            rate = set_speaking_rate(voice, base, new, length_error(before, base))
            decision = compare_voices(before, voice, self._material, recogniser, on_progress)
            facts = {
                **self.settings,
                "weights": hash_voice(voice),
                "curves": asdict(curves),
                "speaking_rate": rate,
                "corrects": self._versions.index.current,
                "decision": decision.as_json(),
            }
            folder = run_folder(self._versions.following)
            path = self._accept(voice, facts) if decision.accepted else self._refuse(folder, facts)
            checkpoints.clear()
            shutil.rmtree(folder / CORRECTIONS)
        return CorrectionResult(decision=decision, speaking_rate=rate, path=path)

    def _train(self, voice: Voice, checkpoints: Checkpoints, consume: ReportConsumer) -> VoiceTrainingResult:
        """Train a voice in place, then move it to the CPU."""
        channels = list_discriminator_channels(self._build.size)
        discriminators = None if self._recipe.adversarial_from is None else Discriminators(channels)
        setup = self._material.training_setup(voice.tokens)
        result = fit(voice, setup, self._recipe, checkpoints, consume, discriminators=discriminators)
        voice.model.cpu()
        return result

    def _accept(self, voice: Voice, facts: Mapping[str, Any]) -> Path:
        """Add a version that includes its corrections."""
        new_items, rated = self._material.new_items, self._material.rated

        return self._versions.add(
            voice,
            facts,
            consumed=find_used_digests(new_items, rated),
            write_extra=lambda folder: rated.write(folder, new_items.base),
        )

    def _refuse(self, folder: Path, facts: Mapping[str, Any]) -> Path:
        """Write only the figures; the voice is unchanged."""
        path = folder / REFUSED
        path.write_text(json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        return path


def compare_voices(
    before: Voice,
    after: Voice,
    material: CorrectionMaterial,
    recogniser: SpeechRecogniser,
    on_progress: Callable[[int, int], None],
) -> VoiceDecision:
    """Score both voices on held-out clips, and decide.

    Args:
        before: Current voice.
        after: Corrected voice.
        material: Evaluation data.
        recogniser: Recogniser of the base corpus.
        on_progress: Called after each clip with the number done and the total.
    """
    new, earlier = material.held_out(), material.earlier_held_out()
    base = (material.base, material.list_base_clips("held_out"))
    total, done = 2 * sum(len(clips) for _, clips in (new, base, *earlier)), count(1)

    def report(_done: int, _total: int) -> None:
        on_progress(next(done), total)

    def score_voice(voice: Voice, sets: Sequence[HeldOutClips]) -> SpeechScores:
        each = (score(voice, corpus, clips, recogniser, on_progress=report).clips for corpus, clips in sets)
        return SpeechScores.of(SpeechEvaluation(tuple(chain.from_iterable(each))))

    def comparison(sets: Sequence[HeldOutClips]) -> VoiceComparison:
        return VoiceComparison(score_voice(before, sets), score_voice(after, sets))

    return decide(
        comparison([new]),
        comparison([base]),
        recogniser_error_rate=recogniser.error_rate,
        earlier=comparison(earlier) if earlier else None,
    )
