"""What a voice learns when it is corrected: new corrections, those of earlier versions, and its base corpus again.

The base is repeated, because a voice that hears corrections alone forgets what it could say.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from torch.utils.data import ConcatDataset

from trainers.vits.batches import CorpusDataset
from trainers.vits.corpus import Part, RecordedClip, SpeechCorpus
from trainers.vits.corrections import NewCorrections, PreviousCorrections, WeightedCorpus
from trainers.vits.errors import FeedbackError
from trainers.vits.gate import FEWEST
from trainers.vits.manifest import SHARES
from trainers.vits.parts import words_of
from trainers.vits.training import TrainingSetup
from trainers.vits.voice import Voice

UNRATED = 5
"""The rating of a base clip that nobody has rated."""

Judged = tuple[SpeechCorpus, tuple[RecordedClip, ...]]
"""Clips to judge by, and where they are from."""


def mixture(base: Sequence[float], corrections: Sequence[float], share: float) -> list[float]:
    """How likely each clip is in a draw: first those of the base, then the corrections.

    Args:
        base: what each clip of the base weighs among them, 0 or more.
        corrections: what each correction weighs among them.
        share: of all corrections together, above 0 and below 1.

    Raises:
        FeedbackError: all of either weigh nothing.
    """
    return [*_scaled("the base corpus", base, 1 - share), *_scaled("corrections", corrections, share)]


def _scaled(name: str, weights: Sequence[float], total: float) -> list[float]:
    """Weights of this sum, in their proportions."""
    whole = sum(weights)
    if not whole > 0:
        raise FeedbackError(f"no clip of {name} to learn from is rated above 1; rate what is right 2 to 5")
    return [total * weight / whole for weight in weights]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionMaterial:
    """All that a correction of a voice is made of.

    Attributes:
        base: the corpus that the voice was trained on.
        rated: the new corrections.
        kept: what earlier versions keep.
        news: ratings among it.
        share: how likely a correction is in a draw.
    """

    base: SpeechCorpus
    rated: WeightedCorpus
    kept: PreviousCorrections
    news: NewCorrections
    share: float

    def lesson(self, tokens: Callable[[str], Sequence[int]]) -> TrainingSetup:
        """The clips to learn from, with how likely each is, and those to look at.

        Args:
            tokens: ids of a text.

        Raises:
            FeedbackError: ratings leave nothing of the base or of the corrections.
        """
        learnt = [clip for corpus in self._corpora for clip in corpus.part("train")]
        return TrainingSetup(
            clips=ConcatDataset([CorpusDataset(corpus, corpus.part("train"), tokens) for corpus in self._corpora]),
            frames=[clip.frames for clip in learnt],
            weights=self.draws(),
            selection=ConcatDataset(
                [
                    CorpusDataset(self.base, self.base_part("selection"), tokens),
                    CorpusDataset(self.rated.corpus, self.rated.corpus.part("selection"), tokens),
                ]
            ),
        )

    def check(self) -> None:
        """Know before a training whether there is something to learn from and to judge by.

        Raises:
            FeedbackError: there is not.
        """
        self.judged()
        self.draws()
        purposes: Mapping[Part, str] = {"selection": "choose", "held_out": "judge"}
        for part, purpose in purposes.items():
            left, whole = len(self.base_part(part)), len(self.base.part(part))
            if 2 * left < whole:
                raise FeedbackError(
                    f"{whole - left} of the {whole} clips of {self.base.folder} to {purpose} by are rated 1, and half "
                    "of them are needed to see that the voice forgets nothing; rate 1 only recordings that are wrong"
                )

    def base_part(self, part: Part) -> tuple[RecordedClip, ...]:
        """Clips of the base corpus that are rated above 1 or not at all: a recording that is wrong is no measure."""
        ratings = self._ratings
        return tuple(clip for clip in self.base.part(part) if SHARES[ratings.get(clip.digest, UNRATED)] > 0)

    def draws(self) -> list[float]:
        """How likely each clip of the parts to learn from is: of the base, of earlier corrections, of the new ones.

        Raises:
            FeedbackError: ratings leave nothing of the base or of the corrections.
        """
        ratings = self._ratings
        base = [SHARES[ratings.get(clip.digest, UNRATED)] for clip in self.base.part("train")]
        corrections = [
            share for rated in (*self.kept.corrections, self.rated) for share in rated.shares(self.news.rerated)
        ]
        return mixture(base, corrections, self.share)

    @property
    def digest(self) -> str:
        """Of what is learnt, how likely, and by what it is judged: two trainings of the same one are the same."""
        judging = [clip.digest for part in ("selection", "held_out") for clip in self.base_part(part)]
        parts = [[corpus.digest for corpus in self._corpora], self.draws(), sorted(judging)]
        return sha256(json.dumps(parts).encode()).hexdigest()

    def judged(self) -> Judged:
        """New corrections to judge by, whose words no version has learnt from corrections.

        Raises:
            FeedbackError: too few are left.
        """
        learnt = {words_of(clip.text) for rated in self.kept.corrections for clip in rated.corpus.part("train")}
        clips = _without(self.rated.corpus.part("held_out"), learnt)
        if len(clips) < FEWEST:
            raise FeedbackError(
                f"{len(clips)} of the new corrections can be judged by, and {FEWEST} are needed: the others' texts "
                "were learnt from earlier ones; record other texts as well"
            )
        return self.rated.corpus, clips

    def judged_before(self) -> tuple[Judged, ...]:
        """Corrections by which earlier versions were judged, and whose words are not learnt now."""
        learnt = {words_of(clip.text) for clip in self.rated.corpus.part("train")}
        found = ((rated.corpus, _without(rated.corpus.part("held_out"), learnt)) for rated in self.kept.corrections)
        return tuple((corpus, clips) for corpus, clips in found if clips)

    @property
    def _ratings(self) -> dict[str, int]:
        """Of base clips, by their digests; the latest count."""
        return {**self.kept.base, **self.news.base}

    @property
    def _corpora(self) -> tuple[SpeechCorpus, ...]:
        return (self.base, *(rated.corpus for rated in self.kept.corrections), self.rated.corpus)


def settle(voice: Voice, base: Sequence[RecordedClip], corrections: Sequence[RecordedClip], allowed: float) -> float:
    """Find the speaking rate for base and corrections together; for the base alone where its lengths would suffer.

    Args:
        voice: after it has learnt.
        base: clips of the base corpus to choose by.
        corrections: corrections to choose by.
        allowed: how much lengths of these base clips erred before.

    Returns:
        The rate, which the voice keeps.
    """
    rate = voice.settle_rate(_lengths((*base, *corrections)))
    if voice.length_error(_lengths(base)) > allowed:
        rate = voice.settle_rate(_lengths(base))
    return rate


def length_error(voice: Voice, clips: Sequence[RecordedClip]) -> float:
    """How much a voice errs in the lengths of clips; see `Voice.length_error`."""
    return voice.length_error(_lengths(clips))


def _lengths(clips: Sequence[RecordedClip]) -> list[tuple[str, int]]:
    return [(clip.text, clip.frames) for clip in clips]


def _without(clips: Sequence[RecordedClip], words: frozenset[str] | set[str]) -> tuple[RecordedClip, ...]:
    return tuple(clip for clip in clips if words_of(clip.text) not in words)
