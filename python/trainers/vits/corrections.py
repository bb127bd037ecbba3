"""New corrections from a manifest, and the corrections stored with earlier versions of a voice.

A version trained on corrections stores them, so that later versions can train on them again:

VOICE/2/feedback/ratings.json   ratings of its corrections and of clips of the base corpus
VOICE/2/feedback/corrections/   a prepared corpus of three splits
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
from trainers.vits.corpus import RecordedClip, SpeechCorpus, Split
from trainers.vits.errors import FeedbackError, VoiceError
from trainers.vits.manifest import MAX_LISTED, SHARES, ClipCorrection, FeedbackManifest, hash_parts
from trainers.vits.metadata import normalise_words
from trainers.vits.preparation import CorpusSettings, RecordingEntry, prepare_clips
from trainers.vits.training import CORRECTIONS, TrainingSetup
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice

FEEDBACK_FOLDER: Final = "feedback"

RATINGS_FILE: Final = "ratings.json"

MIN_HELD_OUT: Final = 6
"""Minimum number of held-out corrections: with fewer, all distances fall by chance too often."""

MIN_TEXTS: Final = MIN_HELD_OUT + 3
"""Minimum number of different texts in new corrections: 1 for selection, 2 for training, the others held out."""

SELECTION_EVERY: Final = 20
"""One text in this many is for selection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCorrections:
    """Items of a manifest that no version was trained on.

    Attributes:
        corrections: New recordings with a weight above 0, by digest of the item.
        rerated: New ratings of stored corrections, by digest of their content.
        base: Ratings of base clips, by digest of the clip.
        others: Digests of the other new items: ratings, and corrections rated 1.
        known: Number of items used before.
        idle: Names of selection or held-out clips whose rating above 1 has no effect.
    """

    corrections: Mapping[str, ClipCorrection]
    rerated: Mapping[str, int]
    base: Mapping[str, int]
    others: frozenset[str]
    known: int
    idle: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of new items."""
        return len(self.corrections) + len(self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedCorpus:
    """A corpus of corrections with their ratings.

    Attributes:
        corpus: Prepared corpus of three splits.
        ratings: 1 to 5, by digest of the clip.
        contents: Digest of the correction's content, by digest of the clip.
    """

    corpus: SpeechCorpus
    ratings: Mapping[str, int]
    contents: Mapping[str, str]

    def shares(self, rerated: Mapping[str, int]) -> list[float]:
        """Weights of the training clips.

        Args:
            rerated: Newer ratings, by digest of the content.
        """
        return [
            SHARES[rerated.get(self.contents[clip.digest], self.ratings[clip.digest])]
            for clip in self.corpus.list_clips("train")
        ]

    def write(self, folder: Path, base: Mapping[str, int]) -> None:
        """Store it in the folder of a version, with ratings of base clips by digest."""
        path = folder / FEEDBACK_FOLDER
        shutil.copytree(self.corpus.folder, path / CORRECTIONS)
        record = {"base": dict(base), "contents": dict(self.contents), "corrections": dict(self.ratings)}
        (path / RATINGS_FILE).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")


@dataclass(frozen=True, slots=True)
class PreviousCorrections:
    """Corrections of earlier versions.

    Attributes:
        corrections: One corpus per version, in order.
        base: Latest ratings of base clips, by digest.
    """

    corrections: tuple[WeightedCorpus, ...]
    base: Mapping[str, int]

    @property
    def contents(self) -> frozenset[str]:
        """Content digests of all corrections."""
        return frozenset(content for rated in self.corrections for content in rated.contents.values())


def load_previous_corrections(versions: VoiceVersions) -> PreviousCorrections:
    """Load the corrections stored with the versions of a voice.

    Raises:
        VoiceError: Corrections of a version in the index are missing or damaged.
        CorpusError: A corpus of corrections is damaged.
    """
    corrections, base = list[WeightedCorpus](), dict[str, int]()
    for number in sorted(set(versions.index.consumed.values())):
        path = versions.folder / str(number) / FEEDBACK_FOLDER
        try:
            record = json.loads((path / RATINGS_FILE).read_bytes())
            base |= record["base"]
            corpus = SpeechCorpus.open(path / CORRECTIONS)
            corrections.append(
                WeightedCorpus(corpus=corpus, ratings=record["corrections"], contents=record["contents"])
            )
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise VoiceError(
                f"{path} cannot be read ({error}), but later corrections train on it again; restore it"
            ) from error
    return PreviousCorrections(tuple(corrections), base)


def select_new_corrections(
    manifest: FeedbackManifest, corpus: SpeechCorpus, consumed: Iterable[str], previous: PreviousCorrections
) -> NewCorrections:
    """Select the items of a manifest that no version was trained on.

    Args:
        manifest: Manifest of corrections and ratings.
        corpus: Base corpus, whose clips may be rated.
        consumed: Digests of items used by earlier versions.
        previous: Corrections stored with those versions.

    Raises:
        FeedbackError: A rated clip is not in the corpus, or everything is rated 1.
    """
    by_name = {clip.name: clip for clip in corpus.clips}
    unknown = [f"line {rating.line}: {rating.clip}" for rating in manifest.ratings if rating.clip not in by_name]
    if unknown:
        raise FeedbackError(
            f"{corpus.folder} has no clips with these names: {_join_problems(unknown)}; use the ids of its metadata.csv"
        )
    if all(SHARES[item.rating] == 0 for item in (*manifest.corrections, *manifest.ratings)):
        raise FeedbackError("every line is rated 1, so nothing is left to train on; rate correct recordings 2 to 5")
    before, earlier = frozenset(consumed), previous.contents
    items = {correction.digest: correction for correction in manifest.corrections}
    clips = ((rating, by_name[rating.clip]) for rating in manifest.ratings)
    ratings = {rating.digest(clip.digest): (rating, clip) for rating, clip in clips}
    new_corrections = {digest: correction for digest, correction in items.items() if digest not in before}
    rated = {digest: both for digest, both in ratings.items() if digest not in before}
    trained = {
        digest: correction
        for digest, correction in new_corrections.items()
        if SHARES[correction.rating] > 0 and correction.content not in earlier
    }
    return NewCorrections(
        corrections=trained,
        rerated={
            correction.content: correction.rating
            for correction in new_corrections.values()
            if correction.content in earlier
        },
        base={clip.digest: rating.rating for rating, clip in rated.values()},
        others=frozenset((new_corrections.keys() - trained.keys()) | rated.keys()),
        known=len(items.keys() & before) + len(ratings.keys() & before),
        idle=tuple(clip.name for item, clip in rated.values() if clip.split != "train" and SHARES[item.rating] > 0),
    )


def prepare_corrections(
    new_items: NewCorrections,
    corpus: SpeechCorpus,
    folder: Path,
    *,
    resample: bool = False,
    skip_bad: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> WeightedCorpus:
    """Prepare new corrections as a corpus; a third of the texts, at least `MIN_HELD_OUT`, are held out.

    Args:
        new_items: New corrections.
        corpus: Base corpus, which sets framing and vocabulary.
        folder: Parent folder; an existing corpus of the same content is reused.
        resample: Whether to convert recordings of another rate.
        skip_bad: Whether to leave out unusable recordings.
        on_progress: Called after each clip with the number done and the total.

    Raises:
        FeedbackError: There are too few different texts, or some are recordings of the base corpus.
        CorpusError: Some are unusable and `skip_bad` is False; the message lists them.
    """
    corrections = new_items.corrections.values()
    entries = [
        RecordingEntry(_name_correction(correction), correction.text, correction.audio) for correction in corrections
    ]
    _choose_part_sizes(len({normalise_words(normal_text(entry.text)) for entry in entries}))
    settings = CorpusSettings(
        framing=corpus.framing,
        resample=resample,
        skip_bad=skip_bad,
        vocabulary=corpus.vocabulary,
        numbers=_choose_part_sizes,
    )
    path = folder / hash_parts(*sorted(new_items.corrections), resample, skip_bad)[:16]
    prepared = SpeechCorpus.open(path) if path.exists() else prepare_clips(entries, path, settings, on_progress)
    base = {clip.digest: clip.name for clip in corpus.clips}
    duplicates = [f"{clip.name} is clip {base[clip.digest]}" for clip in prepared.clips if clip.digest in base]
    if duplicates:  # the voice may have trained on them
        raise FeedbackError(
            f"some corrections repeat recordings of {corpus.folder} ({_join_problems(duplicates)}); remove them, "
            'or rate the clip: {"clip": …, "rating": 1 to 5}'
        )
    by_name = {_name_correction(correction): correction for correction in corrections}
    return WeightedCorpus(
        corpus=prepared,
        ratings={clip.digest: by_name[clip.name].rating for clip in prepared.clips},
        contents={clip.digest: by_name[clip.name].content for clip in prepared.clips},
    )


def _choose_part_sizes(texts: int) -> tuple[int, int]:
    """Numbers of selection and held-out texts.

    Raises:
        FeedbackError: There are too few texts.
    """
    if texts < MIN_TEXTS:
        raise FeedbackError(
            f"usable new corrections have {texts} different texts, but training and evaluation need {MIN_TEXTS}; "
            "record "
            "more and submit them together"
        )
    return max(1, texts // SELECTION_EVERY), max(MIN_HELD_OUT, ceil(texts / 3))


def find_used_digests(new_items: NewCorrections, rated: WeightedCorpus) -> frozenset[str]:
    """Digests of the new items that a voice uses: all except rejected corrections."""
    left_out = {rejected.name for rejected in rated.corpus.refused}
    return new_items.others | {
        digest for digest, correction in new_items.corrections.items() if _name_correction(correction) not in left_out
    }


def _join_problems(problems: Sequence[str]) -> str:
    rest = f"; and {len(problems) - MAX_LISTED} more" if len(problems) > MAX_LISTED else ""
    return "; ".join(problems[:MAX_LISTED]) + rest


def _name_correction(correction: ClipCorrection) -> str:
    return f"line {correction.line}"


DEFAULT_RATING = 5
"""Rating of a base clip without a rating."""

HeldOutClips = tuple[SpeechCorpus, tuple[RecordedClip, ...]]
"""Held-out clips with their corpus."""


def mix_weights(base: Sequence[float], corrections: Sequence[float], share: float) -> list[float]:
    """Sampling probability of each clip: base clips, then corrections.

    Args:
        base: Non-negative weights of the base clips.
        corrections: Non-negative weights of the corrections.
        share: Total probability of the corrections, above 0 and below 1.

    Raises:
        FeedbackError: All weights of either are 0.
    """
    return [*_scale_weights("the base corpus", base, 1 - share), *_scale_weights("corrections", corrections, share)]


def _scale_weights(name: str, weights: Sequence[float], total: float) -> list[float]:
    """Scale weights to a total."""
    current = sum(weights)
    if not current > 0:
        raise FeedbackError(f"no training clip of {name} is rated above 1; rate correct recordings 2 to 5")
    return [total * weight / current for weight in weights]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionMaterial:
    """Data for correcting a voice.

    Attributes:
        base: Corpus that the voice was trained on.
        rated: New corrections.
        previous: Corrections of earlier versions.
        new_items: New items, including ratings.
        share: Probability that a drawn clip is a correction.
    """

    base: SpeechCorpus
    rated: WeightedCorpus
    previous: PreviousCorrections
    new_items: NewCorrections
    share: float

    def training_setup(self, tokens: Callable[[str], Sequence[int]]) -> TrainingSetup:
        """Training clips with their sampling probabilities, and selection clips.

        Args:
            tokens: Returns the token ids of a text.

        Raises:
            FeedbackError: All base clips or all corrections have weight 0.
        """
        trained = [clip for corpus in self._corpora for clip in corpus.list_clips("train")]
        return TrainingSetup(
            clips=ConcatDataset(
                [CorpusDataset(corpus, corpus.list_clips("train"), tokens) for corpus in self._corpora]
            ),
            frames=[clip.frames for clip in trained],
            weights=self.draws(),
            selection=ConcatDataset(
                [
                    CorpusDataset(self.base, self.list_base_clips("selection"), tokens),
                    CorpusDataset(self.rated.corpus, self.rated.corpus.list_clips("selection"), tokens),
                ]
            ),
        )

    def check(self) -> None:
        """Check before training that enough training, selection and held-out clips are left.

        Raises:
            FeedbackError: Too few are left.
        """
        self.held_out()
        self.draws()
        splits: Mapping[Split, str] = {"selection": "selection", "held_out": "held-out"}
        for split, name in splits.items():
            clips, total = len(self.list_base_clips(split)), len(self.base.list_clips(split))
            if 2 * clips < total:
                raise FeedbackError(
                    f"{total - clips} of the {total} {name} clips of {self.base.folder} are rated 1, but half are "
                    "needed to detect whether the voice gets worse; rate only wrong recordings 1"
                )

    def list_base_clips(self, split: Split) -> tuple[RecordedClip, ...]:
        """Base clips that are not rated 1; wrong recordings do not count."""
        ratings = self._ratings
        return tuple(
            clip for clip in self.base.list_clips(split) if SHARES[ratings.get(clip.digest, DEFAULT_RATING)] > 0
        )

    def draws(self) -> list[float]:
        """Sampling probabilities of the training clips: base, earlier corrections, new corrections.

        Raises:
            FeedbackError: All base clips or all corrections have weight 0.
        """
        ratings = self._ratings
        base = [SHARES[ratings.get(clip.digest, DEFAULT_RATING)] for clip in self.base.list_clips("train")]
        rerated = self.new_items.rerated
        corrections = [share for rated in (*self.previous.corrections, self.rated) for share in rated.shares(rerated)]
        return mix_weights(base, corrections, self.share)

    @property
    def digest(self) -> str:
        """Digest of training clips, probabilities and evaluation clips, which determine the result."""
        evaluated = [clip.digest for split in ("selection", "held_out") for clip in self.list_base_clips(split)]
        digests = [[corpus.digest for corpus in self._corpora], self.draws(), sorted(evaluated)]
        return sha256(json.dumps(digests).encode()).hexdigest()

    def held_out(self) -> HeldOutClips:
        """New held-out corrections whose words no earlier correction trained.

        Raises:
            FeedbackError: Too few are left.
        """
        trained = {
            normalise_words(clip.text)
            for rated in self.previous.corrections
            for clip in rated.corpus.list_clips("train")
        }
        clips = _remove_texts(self.rated.corpus.list_clips("held_out"), trained)
        if len(clips) < MIN_HELD_OUT:
            raise FeedbackError(
                f"{len(clips)} new corrections can be held out, but {MIN_HELD_OUT} are needed: the other texts were "
                "trained by earlier corrections; record other texts as well"
            )
        return self.rated.corpus, clips

    def earlier_held_out(self) -> tuple[HeldOutClips, ...]:
        """Held-out corrections of earlier versions whose words are not trained now."""
        trained = {normalise_words(clip.text) for clip in self.rated.corpus.list_clips("train")}
        corpora = (rated.corpus for rated in self.previous.corrections)
        held_out = ((corpus, _remove_texts(corpus.list_clips("held_out"), trained)) for corpus in corpora)
        return tuple((corpus, clips) for corpus, clips in held_out if clips)

    @property
    def _ratings(self) -> dict[str, int]:
        """Latest ratings of base clips, by digest."""
        return {**self.previous.base, **self.new_items.base}

    @property
    def _corpora(self) -> tuple[SpeechCorpus, ...]:
        return (self.base, *(rated.corpus for rated in self.previous.corrections), self.rated.corpus)


def set_speaking_rate(
    voice: Voice, base: Sequence[RecordedClip], corrections: Sequence[RecordedClip], allowed: float
) -> float:
    """Set the speaking rate from base and corrections, or only from the base if its length error would grow.

    Args:
        voice: Voice after training.
        base: Selection clips of the base corpus.
        corrections: Selection clips of the corrections.
        allowed: Length error of the base clips before training.

    Returns:
        The rate, also set on the voice.
    """
    rate = voice.fit_speaking_rate(list_lengths((*base, *corrections)))
    if voice.length_error(list_lengths(base)) > allowed:
        rate = voice.fit_speaking_rate(list_lengths(base))
    return rate


def list_lengths(clips: Sequence[RecordedClip]) -> list[tuple[str, int]]:
    """The text and the number of frames of every clip."""
    return [(clip.text, clip.frames) for clip in clips]


def _remove_texts(clips: Sequence[RecordedClip], words: frozenset[str] | set[str]) -> tuple[RecordedClip, ...]:
    return tuple(clip for clip in clips if normalise_words(clip.text) not in words)
