"""What a manifest brings that no version of a voice has learnt from, and what earlier versions keep of theirs.

A version that has learnt from corrections keeps them, so that later ones can learn from them again:

VOICE/2/feedback/ratings.json   ratings of its corrections and of clips of the base corpus
VOICE/2/feedback/corrections/   a prepared corpus: some to learn from, some to choose by, some to judge by
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Final

from torch.utils.data import ConcatDataset

from trainers.media.metadata import normal_text
from trainers.vits.batches import CorpusDataset
from trainers.vits.corpus import Part, RecordedClip, SpeechCorpus
from trainers.vits.errors import FeedbackError, VoiceError
from trainers.vits.gate import FEWEST
from trainers.vits.manifest import SHARES, SHOWN, ClipCorrection, ClipRating, FeedbackManifest
from trainers.vits.metadata import words_of
from trainers.vits.preparation import CorpusSettings, RecordingEntry, prepare_clips
from trainers.vits.training import CORRECTIONS, TrainingSetup
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

FOLDER: Final = "feedback"

RATINGS: Final = "ratings.json"


NEEDED: Final = FEWEST + 3
"""Different texts that new corrections have at least: one to choose by, two to learn from, the others to judge by."""


TO_CHOOSE: Final = 20
"""Of so many texts one is to choose by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCorrections:
    """What no version has learnt from.

    Attributes:
        corrections: new recordings that weigh something, by the digest of the item.
        rerated: ratings of corrections that an earlier version keeps, by the digest of their content.
        base: ratings of clips of the base corpus, by the clips' digests.
        others: digests of the new items that are no recording to learn from: ratings, and corrections rated 1.
        known: how many items were learnt from before.
        idle: names of clips that choose or judge, where a rating above 1 changes nothing.
    """

    corrections: Mapping[str, ClipCorrection]
    rerated: Mapping[str, int]
    base: Mapping[str, int]
    others: frozenset[str]
    known: int
    idle: tuple[str, ...]

    @property
    def count(self) -> int:
        """New items."""
        return len(self.corrections) + len(self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedCorpus:
    """A corpus of corrections, and what each is worth.

    Attributes:
        corpus: in three parts.
        ratings: 1 to 5, by the clips' digests.
        contents: digests of the corrections' content, by the clips' digests.
    """

    corpus: SpeechCorpus
    ratings: Mapping[str, int]
    contents: Mapping[str, str]

    def shares(self, rerated: Mapping[str, int]) -> list[float]:
        """How much each clip of the part to learn from weighs.

        Args:
            rerated: later ratings, by the digest of the content.
        """
        return [
            SHARES[rerated.get(self.contents[clip.digest], self.ratings[clip.digest])]
            for clip in self.corpus.part("train")
        ]

    def write(self, folder: Path, base: Mapping[str, int]) -> None:
        """Keep it in a version's folder, beside ratings of base clips by their digests."""
        place = folder / FOLDER
        shutil.copytree(self.corpus.folder, place / CORRECTIONS)
        told = {"base": dict(base), "contents": dict(self.contents), "corrections": dict(self.ratings)}
        (place / RATINGS).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")


@dataclass(frozen=True, slots=True)
class PreviousCorrections:
    """What earlier versions have learnt from, in their order.

    Attributes:
        corrections: of each version.
        base: ratings of clips of the base corpus, by their digests; the latest counts.
    """

    corrections: tuple[WeightedCorpus, ...]
    base: Mapping[str, int]

    @property
    def contents(self) -> frozenset[str]:
        """Digests of the content of every correction."""
        return frozenset(content for rated in self.corrections for content in rated.contents.values())


def kept_of(versions: VoiceVersions) -> PreviousCorrections:
    """What the versions of a voice have learnt from corrections.

    Raises:
        VoiceError: the index speaks of such a version, and its corrections are missing or damaged.
        CorpusError: a corpus of theirs is damaged.
    """
    corrections, base = list[WeightedCorpus](), dict[str, int]()
    for number in sorted(set(versions.index.consumed.values())):
        place = versions.folder / str(number) / FOLDER
        try:
            told = json.loads((place / RATINGS).read_bytes())
            base |= told["base"]
            corpus = SpeechCorpus.open(place / CORRECTIONS)
            corrections.append(WeightedCorpus(corpus=corpus, ratings=told["corrections"], contents=told["contents"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise VoiceError(
                f"{place} cannot be read ({error}), and later corrections learn again from what it holds; restore it"
            ) from error
    return PreviousCorrections(tuple(corrections), base)


def news_of(
    manifest: FeedbackManifest, corpus: SpeechCorpus, consumed: Iterable[str], kept: PreviousCorrections
) -> NewCorrections:
    """The items of a manifest that are in none of the versions.

    Args:
        manifest: all that it says.
        corpus: the base, whose clips it may rate.
        consumed: digests of items that versions have learnt from.
        kept: what those versions keep.

    Raises:
        FeedbackError: a clip is rated that the corpus has not; or everything is rated 1.
    """
    clips = _rated_clips(manifest, corpus)
    if all(SHARES[item.rating] == 0 for item in (*manifest.corrections, *manifest.ratings)):
        raise FeedbackError("every line is rated 1, which leaves nothing to learn from; rate what is right 2 to 5")
    before, earlier = frozenset(consumed), kept.contents
    items = {one.digest: one for one in manifest.corrections}
    ratings = {one.digest(clip.digest): (one, clip) for one, clip in clips}
    fresh = {digest: one for digest, one in items.items() if digest not in before}
    rated = {digest: both for digest, both in ratings.items() if digest not in before}
    learnt = {digest: one for digest, one in fresh.items() if SHARES[one.rating] > 0 and one.content not in earlier}
    return NewCorrections(
        corrections=learnt,
        rerated={one.content: one.rating for one in fresh.values() if one.content in earlier},
        base={clip.digest: one.rating for one, clip in rated.values()},
        others=frozenset((fresh.keys() - learnt.keys()) | rated.keys()),
        known=len(items.keys() & before) + len(ratings.keys() & before),
        idle=tuple(clip.name for one, clip in rated.values() if clip.part != "train" and SHARES[one.rating] > 0),
    )


def prepared(
    news: NewCorrections,
    corpus: SpeechCorpus,
    folder: Path,
    *,
    resample: bool = False,
    skip_bad: bool = False,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> WeightedCorpus:
    """New corrections as a corpus of three parts: a third of the texts, and `FEWEST` at least, are to judge by.

    Args:
        news: the corrections.
        corpus: the base, whose framing and vocabulary they get.
        folder: where to keep it, below a name that follows what it is made of; one that is there is taken.
        resample: whether recordings of another rate are converted.
        skip_bad: whether those that cannot be used are left out.
        tell: called after each clip with how many are done, and of how many.

    Raises:
        FeedbackError: they have too few different texts; or some are recordings of the base corpus.
        CorpusError: some cannot be used and may not be left out; the message lists them.
    """
    entries = [RecordingEntry(_name(one), one.text, one.audio) for one in news.corrections.values()]
    _numbers(len({words_of(normal_text(entry.text)) for entry in entries}))
    settings = CorpusSettings(
        framing=corpus.framing,
        resample=resample,
        skip_bad=skip_bad,
        vocabulary=corpus.vocabulary,
        numbers=_numbers,
    )
    place = folder / _digest(*sorted(news.corrections), resample, skip_bad)[:16]
    made = SpeechCorpus.open(place) if place.exists() else prepare_clips(entries, place, settings, tell)
    _refuse_base(made.clips, corpus)
    return _rated(made, news.corrections.values())


def _numbers(texts: int) -> tuple[int, int]:
    """How many of so many different texts are to choose by, and to judge by.

    Raises:
        FeedbackError: they are too few.
    """
    if texts < NEEDED:
        raise FeedbackError(
            f"new corrections that can be used have {texts} different texts, and {NEEDED} are needed to learn from "
            "some and judge by others; record more, they are learnt together"
        )
    return max(1, texts // TO_CHOOSE), max(FEWEST, ceil(texts / 3))


def taken(news: NewCorrections, rated: WeightedCorpus) -> frozenset[str]:
    """Digests of the new items that a voice learns from: all but corrections that were left out."""
    left_out = {one.name for one in rated.corpus.refused}
    return news.others | {digest for digest, one in news.corrections.items() if _name(one) not in left_out}


def _rated_clips(manifest: FeedbackManifest, corpus: SpeechCorpus) -> list[tuple[ClipRating, RecordedClip]]:
    """The ratings of base clips, each with its clip."""
    by_name = {clip.name: clip for clip in corpus.clips}
    strangers = [f"line {one.line}: {one.clip}" for one in manifest.ratings if one.clip not in by_name]
    if strangers:
        raise FeedbackError(
            f"{corpus.folder} has no clip of these names: {_listed(strangers)}; write the ids of its metadata.csv"
        )
    return [(one, by_name[one.clip]) for one in manifest.ratings]


def _refuse_base(clips: Iterable[RecordedClip], corpus: SpeechCorpus) -> None:
    """A recording of the base corpus corrects nothing, and the voice may have learnt from it."""
    base = {clip.digest: clip.name for clip in corpus.clips}
    doubled = [f"{clip.name} is clip {base[clip.digest]}" for clip in clips if clip.digest in base]
    if doubled:
        raise FeedbackError(
            f"some corrections are recordings of {corpus.folder} with their texts ({_listed(doubled)}); remove them, "
            'or rate the clip: {"clip": …, "rating": 1 to 5}'
        )


def _listed(problems: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more


def _rated(corpus: SpeechCorpus, corrections: Iterable[ClipCorrection]) -> WeightedCorpus:
    by_name = {_name(one): one for one in corrections}
    return WeightedCorpus(
        corpus=corpus,
        ratings={clip.digest: by_name[clip.name].rating for clip in corpus.clips},
        contents={clip.digest: by_name[clip.name].content for clip in corpus.clips},
    )


def _name(correction: ClipCorrection) -> str:
    """Of its clip: what a message calls it."""
    return f"line {correction.line}"


def _digest(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


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
