"""Corrections: new clips, sampling weights, and evaluation texts."""

import json
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from correctable import BASE, LATER, TEXTS, base_corpus, correction, manifest, new_voice, recording

from trainers.vits.batches import LengthBucketSampler
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.corrections import (
    CorrectionMaterial,
    NewCorrections,
    PreviousCorrections,
    WeightedCorpus,
    find_used_digests,
    load_previous_corrections,
    mix_weights,
    prepare_corrections,
    select_new_corrections,
    set_speaking_rate,
)
from trainers.vits.errors import FeedbackError, VoiceError
from trainers.vits.manifest import read_manifest
from trainers.vits.versions import VoiceVersions
from trainers.vits.voice import Voice
from trainers.vits.voice_correction import MIN_HELD_OUT

NOTHING = PreviousCorrections((), {})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> SpeechCorpus:
    return SpeechCorpus.open(base_corpus(tmp_path_factory.mktemp("base") / "corpus"))


def select_corrections(
    folder: Path,
    corpus: SpeechCorpus,
    lines: list[Any],
    consumed: frozenset[str] = frozenset(),
    kept: PreviousCorrections = NOTHING,
) -> NewCorrections:
    return select_new_corrections(read_manifest(manifest(folder, lines)), corpus, consumed, kept)


def material(
    folder: Path, corpus: SpeechCorpus, lines: list[Any], kept: PreviousCorrections = NOTHING, share: float = 0.4
) -> CorrectionMaterial:
    new = select_corrections(folder, corpus, lines, kept=kept)
    return CorrectionMaterial(
        base=corpus, rated=prepare_corrections(new, corpus, folder / "work"), previous=kept, new_items=new, share=share
    )


def rated(names: list[str], rating: int = 5) -> list[dict[str, Any]]:
    return [correction(name, rating) for name in names]


def test_weights_are_the_share_of_corrections_and_within_each_kind_its_proportions() -> None:
    found = mix_weights([1.0, 0.5, 0.0, 0.5], [1.0, 0.25], 0.4)
    assert found == pytest.approx([0.3, 0.15, 0.0, 0.15, 0.32, 0.08])


def test_ratings_that_leave_nothing_are_refused() -> None:
    with pytest.raises(FeedbackError, match="no training clip of the base corpus"):
        mix_weights([0.0], [1.0], 0.4)
    with pytest.raises(FeedbackError, match="no training clip of corrections"):
        mix_weights([1.0], [0.0, 0.0], 0.4)


def test_the_share_of_corrections_is_drawn_and_each_by_its_rating(corpus: SpeechCorpus, tmp_path: Path) -> None:
    lines = [*rated(LATER[:12]), *rated(LATER[12:24], rating=2), {"clip": BASE[0], "rating": 1}]
    one = material(tmp_path, corpus, lines, share=0.3)
    voice = Voice.load(VoiceVersions(new_voice(tmp_path / "v", corpus.folder)).current)
    setup = one.training_setup(voice.tokens)
    assert setup.weights is not None
    buckets = LengthBucketSampler(setup.frames, size=10, cost=10**9, batches=800, seed=0, weights=setup.weights)
    drawn = Counter(islice(chain.from_iterable(buckets), 8000))
    base, new = corpus.list_clips("train"), one.rated.corpus.list_clips("train")
    assert len(setup.clips) == len(base) + len(new)
    assert sum(drawn[place] for place in range(len(base), len(setup.clips))) / 8000 == pytest.approx(0.3, abs=0.015)
    counts = {5: 0, 2: 0}
    for place, clip in enumerate(new, start=len(base)):
        counts[one.rated.ratings[clip.digest]] += drawn[place]
    sizes = Counter(one.rated.ratings[clip.digest] for clip in new)
    assert (counts[2] / sizes[2]) / (counts[5] / sizes[5]) == pytest.approx(0.25, abs=0.04)
    dropped = [place for place, clip in enumerate(base) if clip.name == BASE[0]]
    assert [drawn[place] for place in dropped] == [0] * len(dropped)
    speech = setup.clips[len(base)]
    assert speech.wave.shape == one.rated.corpus.wave(new[0]).shape


def test_items_are_known_by_their_content_whatever_their_file_is_called(corpus: SpeechCorpus, tmp_path: Path) -> None:
    lines = [*rated(LATER[:9]), {"clip": BASE[0], "rating": 2}]
    first = select_corrections(tmp_path, corpus, lines)
    assert (first.count, first.known) == (10, 0)
    copy = tmp_path / "renamed.flac"
    copy.write_bytes(recording(LATER[0]).read_bytes())
    consumed = first.others | first.corrections.keys()
    again = select_corrections(tmp_path, corpus, [{"audio": "renamed.flac", "text": TEXTS[LATER[0]]}, *lines], consumed)
    assert (again.count, again.known) == (0, 10)
    other_rating = select_corrections(tmp_path, corpus, [{"clip": BASE[0], "rating": 3}, *lines[:9]], consumed)
    assert (other_rating.count, other_rating.known) == (1, 9)


def test_a_correction_rated_1_is_consumed_and_not_learnt(corpus: SpeechCorpus, tmp_path: Path) -> None:
    lines = [*rated(LATER[:9]), correction(LATER[9], rating=1)]
    new = select_corrections(tmp_path, corpus, lines)
    assert (len(new.corrections), new.count) == (9, 10)
    made = prepare_corrections(new, corpus, tmp_path / "work")
    assert TEXTS[LATER[9]] not in {clip.text for clip in made.corpus.clips}
    assert len(find_used_digests(new, made)) == 10


def test_a_third_of_the_texts_and_six_at_least_are_to_judge_by(corpus: SpeechCorpus, tmp_path: Path) -> None:
    for count, expected in ((9, (2, 1, MIN_HELD_OUT)), (30, (19, 1, 10))):
        made = prepare_corrections(
            select_corrections(tmp_path, corpus, rated(LATER[:count])), corpus, tmp_path / "work"
        ).corpus
        assert tuple(len(made.list_clips(part)) for part in ("train", "selection", "held_out")) == expected


def previous_corrections(
    folder: Path, corpus: SpeechCorpus, names: list[str], base: dict[str, int] | None = None
) -> PreviousCorrections:
    """The stored corrections of a version trained on these."""
    folder.mkdir()
    one = material(folder, corpus, rated(names))
    one.rated.write(folder / "v" / "2", base or {})
    index = {"current": 2, "versions": 2, "consumed": dict.fromkeys(find_used_digests(one.new_items, one.rated), 2)}
    (folder / "v" / "voice.json").write_text(json.dumps(index))
    return load_previous_corrections(VoiceVersions(folder / "v"))


def test_earlier_corrections_are_drawn_again_beside_new_ones(corpus: SpeechCorpus, tmp_path: Path) -> None:
    digest = corpus.list_clips("train")[0].digest
    before = previous_corrections(tmp_path / "before", corpus, LATER[:10], base={digest: 1})
    one = material(tmp_path, corpus, rated(LATER[10:20]), kept=before)
    base, earlier, new = (
        corpus.list_clips("train"),
        before.corrections[0].corpus.list_clips("train"),
        one.rated.corpus.list_clips("train"),
    )
    weights = one.draws()
    assert len(weights) == len(base) + len(earlier) + len(new)
    assert weights[0] == 0 < weights[1]
    assert weights[len(base) :] == pytest.approx([0.4 / (len(earlier) + len(new))] * (len(earlier) + len(new)))
    assert [len(clips) for _, clips in one.earlier_held_out()] == [MIN_HELD_OUT]


def test_the_latest_rating_of_a_clip_counts(corpus: SpeechCorpus, tmp_path: Path) -> None:
    first, second = corpus.list_clips("train")[:2]
    before = previous_corrections(tmp_path / "before", corpus, LATER[:10], base={first.digest: 1, second.digest: 1})
    one = material(tmp_path, corpus, [*rated(LATER[10:20]), {"clip": first.name, "rating": 5}], kept=before)
    assert one.draws()[0] > 0 == one.draws()[1]


def test_of_versions_that_rate_a_clip_the_later_one_counts(corpus: SpeechCorpus, tmp_path: Path) -> None:
    digest = corpus.list_clips("train")[0].digest
    previous_corrections(tmp_path / "before", corpus, LATER[:10], base={digest: 1})
    voice = tmp_path / "before" / "v"
    material(tmp_path, corpus, rated(LATER[10:20])).rated.write(voice / "3", {digest: 4})
    (voice / "voice.json").write_text(json.dumps({"current": 3, "versions": 3, "consumed": {"a": 3, "b": 2}}))
    assert load_previous_corrections(VoiceVersions(voice)).base == {digest: 4}


def test_a_digest_follows_all_that_is_learnt_and_how_likely(corpus: SpeechCorpus, tmp_path: Path) -> None:
    """The digest identifies a stopped training."""
    ten, others = rated(LATER[:10]), [*rated(LATER[:9]), correction(LATER[10])]
    one = material(tmp_path, corpus, ten)
    assert material(tmp_path, corpus, ten).digest == one.digest
    assert material(tmp_path, corpus, others).digest != one.digest
    assert material(tmp_path, corpus, ten, share=0.5).digest != one.digest
    train = corpus.list_clips("train")[0]
    assert material(tmp_path, corpus, [*ten, {"clip": train.name, "rating": 2}]).digest != one.digest


def test_a_learnt_correction_can_be_rated_again(corpus: SpeechCorpus, tmp_path: Path) -> None:
    before = previous_corrections(tmp_path / "before", corpus, LATER[:10])
    learnt = before.corrections[0].corpus.list_clips("train")[0].text
    name = next(name for name, text in TEXTS.items() if text == learnt)
    one = material(tmp_path, corpus, [*rated(LATER[10:20]), correction(name, rating=1)], kept=before)
    assert len(one.new_items.corrections) == 10
    assert one.draws()[len(corpus.list_clips("train"))] == 0


def test_what_was_learnt_before_is_not_judged_by(corpus: SpeechCorpus, tmp_path: Path) -> None:
    before = previous_corrections(tmp_path / "before", corpus, LATER[:20])
    learnt = sorted(clip.text for clip in before.corrections[0].corpus.list_clips("train"))
    again = [{**correction(LATER[20 + number]), "text": text} for number, text in enumerate(learnt[:9])]
    one = material(tmp_path, corpus, again, kept=before)
    with pytest.raises(FeedbackError, match="0 new corrections can be held out, but 6 are needed"):
        one.check()


def test_what_is_learnt_now_judges_no_earlier_version(corpus: SpeechCorpus, tmp_path: Path) -> None:
    before = previous_corrections(tmp_path / "before", corpus, LATER[:10])
    held_out = [clip.text for clip in before.corrections[0].corpus.list_clips("held_out")]
    new = [*held_out[:2], *(TEXTS[name] for name in LATER[12:20])]
    lines = [{**correction(LATER[10 + number]), "text": text} for number, text in enumerate(new)]
    one = material(tmp_path, corpus, lines, kept=before)
    learnt = {clip.text for clip in one.rated.corpus.list_clips("train")}
    assert [{clip.text for clip in clips} for _, clips in one.earlier_held_out()] == [set(held_out) - learnt]


def test_corrections_of_a_version_that_are_gone_are_an_error(corpus: SpeechCorpus, tmp_path: Path) -> None:
    previous_corrections(tmp_path / "before", corpus, LATER[:10])
    (tmp_path / "before" / "v" / "2" / "feedback" / "ratings.json").unlink()
    with pytest.raises(VoiceError, match="restore it"):
        load_previous_corrections(VoiceVersions(tmp_path / "before" / "v"))


def test_ratings_of_clips_that_choose_or_judge_are_told(corpus: SpeechCorpus, tmp_path: Path) -> None:
    clip = corpus.list_clips("held_out")[0]
    new = select_corrections(tmp_path, corpus, [*rated(LATER[:9]), {"clip": clip.name, "rating": 2}])
    assert new.idle == (clip.name,)


def test_a_clip_that_is_rated_1_neither_chooses_nor_judges(corpus: SpeechCorpus, tmp_path: Path) -> None:
    chosen, judged = corpus.list_clips("selection")[0], corpus.list_clips("held_out")[0]
    plain, dropped = tmp_path / "plain", tmp_path / "dropped"
    plain.mkdir()
    dropped.mkdir()
    before = material(plain, corpus, rated(LATER[:9]))
    one = material(
        dropped, corpus, [*rated(LATER[:9]), *({"clip": clip.name, "rating": 1} for clip in (chosen, judged))]
    )
    assert one.list_base_clips("selection") == corpus.list_clips("selection")[1:]
    assert one.list_base_clips("held_out") == corpus.list_clips("held_out")[1:]
    assert one.new_items.idle == ()
    assert (
        len(one.training_setup(lambda text: [1] * len(text)).selection) == len(corpus.list_clips("selection")) - 1 + 1
    )
    assert one.digest != before.digest


def test_half_of_the_clips_that_judge_must_be_left(corpus: SpeechCorpus, tmp_path: Path) -> None:
    lines = [{"clip": clip.name, "rating": 1} for clip in corpus.list_clips("held_out")]
    half = len(lines) // 2
    material(tmp_path, corpus, [*rated(LATER[:9]), *lines[:half]]).check()
    with pytest.raises(FeedbackError, match=f"{half + 1} of the {len(lines)} held-out clips of .* are rated 1"):
        material(tmp_path, corpus, [*rated(LATER[:9]), *lines[: half + 1]]).check()


def test_lengths_of_the_base_do_not_suffer_from_those_of_corrections(corpus: SpeechCorpus, tmp_path: Path) -> None:
    voice = Voice.load(VoiceVersions(new_voice(tmp_path / "v", corpus.folder)).current)
    base = tuple(
        RecordedClip("b", clip.text, "selection", clip.frames * 3, "") for clip in corpus.list_clips("selection")
    )
    hurried = corpus.list_clips("selection") * 4
    own = voice.fit_speaking_rate([(clip.text, clip.frames) for clip in base])
    allowed = voice.length_error([(clip.text, clip.frames) for clip in base])
    assert set_speaking_rate(voice, base, hurried, allowed) == own
    assert set_speaking_rate(voice, base, hurried, 10.0) > own


def test_a_rated_corpus_weighs_by_its_ratings(corpus: SpeechCorpus) -> None:
    clips = corpus.list_clips("train")
    one = WeightedCorpus(
        corpus=corpus,
        ratings={clip.digest: 2 for clip in corpus.clips},
        contents={clip.digest: clip.name for clip in corpus.clips},
    )
    assert one.shares({clips[1].name: 4})[:3] == [0.25, 0.75, 0.25]
