"""Speech recogniser that judges voices: training from recordings, and caching."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trainers.progress import ReportConsumer
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.errors import RecogniserError
from trainers.vits.preparation import CorpusSettings, prepare_corpus
from trainers.vits.spectrum import BANDS
from trainers.vits.speech_recogniser import (
    FACTS,
    WEIGHTS,
    LetterNetwork,
    SpeechRecogniser,
    TrainingBatches,
    TranscriptBatch,
    audible_text,
    compute_even_loss,
    compute_recognition_loss,
    compute_recorded_mel,
    load_or_train_recogniser,
    measure_error_rate,
    train_recogniser,
)

KURDISH = Path(__file__).parents[2] / "fixtures" / "kurdish"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> SpeechCorpus:
    return prepare_corpus(
        KURDISH, tmp_path_factory.mktemp("recogniser") / "prepared", CorpusSettings(selection=4, held_out=4)
    )


@pytest.fixture(scope="module")
def recogniser(corpus: SpeechCorpus) -> SpeechRecogniser:
    return train_recogniser(corpus, steps=3)


def test_spelling_keeps_what_can_be_heard() -> None:
    assert audible_text("  Ez,\n diçim\u2014mal\u00ea! Roj\u2019a 2. S\u0327ev ") == "ez diçim malê roj'a 2 şev"


def test_what_stands_after_a_clip_is_not_heard_in_it() -> None:
    network = LetterNetwork(5).eval()
    mels = torch.randn(2, BANDS, 50, generator=torch.Generator().manual_seed(0))
    together = network(mels, torch.tensor([50, 30]))[1, :, :30]
    alone = network(mels[1:, :, :30], torch.tensor([30]))[0]
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_letters_that_are_repeated_and_blanks_are_taken_away() -> None:
    heard = torch.full((1, 3, 6), -9.0)
    for frame, letter in enumerate([1, 1, 0, 1, 2, 2]):
        heard[0, letter, frame] = 0.0
    network = LetterNetwork(2).eval()
    network.forward = lambda mels, frames: heard  # type: ignore[method-assign]  # noqa: ARG005
    recogniser = SpeechRecogniser(
        network=network, characters="aş", framing=CorpusSettings().framing, corpus="", error_rate=0.0
    )
    assert recogniser.transcribe(torch.zeros(BANDS, 6)) == "aaş"
    assert not recogniser.transcribe(torch.zeros(BANDS, 0))


def test_the_loss_of_one_frame_is_the_letters_negative_logarithm() -> None:
    heard = torch.tensor([[[0.2], [0.3], [0.5]]]).log()
    batch = TranscriptBatch(torch.zeros(1, BANDS, 1), torch.tensor([1]), torch.tensor([[2]]), torch.tensor([1]))
    assert float(compute_recognition_loss(heard, batch).mean.detach()) == pytest.approx(0.693147, abs=1e-5)


def test_letters_of_equal_length_take_their_share_of_a_clips_own_frames() -> None:
    draw = torch.Generator().manual_seed(0)
    heard = torch.randn(2, 4, 6, generator=draw).log_softmax(1)
    letters, lengths = torch.tensor([[1, 3, 2], [2, 1, 0]]), torch.tensor([3, 2])
    batch = TranscriptBatch(torch.zeros(2, BANDS, 6), torch.tensor([6, 4]), letters, lengths)
    first = sum(heard[0, letter, frame] for frame, letter in enumerate([1, 1, 3, 3, 2, 2])) / 6
    second = sum(heard[1, letter, frame] for frame, letter in enumerate([2, 2, 1, 1])) / 4
    loss = compute_even_loss(heard, batch)
    assert float(loss.mean) == pytest.approx(-float(first + second) / 2)
    assert loss.count == 2


@pytest.mark.slow
def test_a_short_training_hears_sentences_that_it_has_not_learnt(corpus: SpeechCorpus) -> None:
    assert train_recogniser(corpus, steps=60).error_rate < 0.4


def test_only_the_training_part_is_learnt_from(corpus: SpeechCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    original = SpeechCorpus.spectrogram

    def watched(self: SpeechCorpus, clip: RecordedClip) -> Tensor:
        read.append(clip.split)
        return original(self, clip)

    monkeypatch.setattr(SpeechCorpus, "spectrogram", watched)
    batches = list(
        TrainingBatches(corpus, "".join(sorted(set("".join(audible_text(c.text) for c in corpus.clips)))), 0).batches(0)
    )
    assert sum(len(batch.frames) for batch in batches) == len(corpus.list_clips("train"))
    assert set(read) == {"train"}


def test_the_same_seed_gives_the_same_weights(corpus: SpeechCorpus) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, other = (train_recogniser(corpus, steps=2, seed=7) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, weights in one.network.state_dict().items():
        assert torch.equal(weights, other.network.state_dict()[name])
    assert 0.5 < one.error_rate == measure_error_rate(one, corpus, corpus.list_clips("held_out"))


def test_a_saved_recogniser_transcribes_the_same(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    recogniser.save(tmp_path / "recogniser")
    again = SpeechRecogniser.load(tmp_path / "recogniser")
    mel = compute_recorded_mel(corpus, corpus.clips[0])
    frames = torch.tensor([mel.shape[1]])
    assert torch.equal(again.network(mel[None], frames), recogniser.network(mel[None], frames))
    assert (again.characters, again.corpus, again.error_rate) == (
        recogniser.characters,
        corpus.digest,
        recogniser.error_rate,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recogniser"]
    with pytest.raises(RecogniserError, match="already exists"):
        recogniser.save(tmp_path / "recogniser")


def test_the_recogniser_of_a_corpus_is_trained_once(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = list[SpeechCorpus]()

    def train(corpus: SpeechCorpus, *, consume: ReportConsumer) -> SpeechRecogniser:
        assert consume
        trainings.append(corpus)
        return recogniser

    monkeypatch.setattr("trainers.vits.speech_recogniser.train_recogniser", train)
    for _ in range(2):
        assert load_or_train_recogniser(corpus, tmp_path / "recogniser").corpus == corpus.digest
    assert len(trainings) == 1


def test_the_recogniser_of_another_corpus_is_refused(
    corpus: SpeechCorpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    recogniser.save(tmp_path / "recogniser")
    with pytest.raises(RecogniserError, match=r"is not of corpus .* remove"):
        load_or_train_recogniser(replace(corpus, clips=corpus.clips[1:]), tmp_path / "recogniser")


def change_setting(key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        (folder / FACTS).write_text(json.dumps(facts | {key: value}), "utf-8")

    return change


def write_file(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def without(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        (folder / name).unlink()

    return remove


def flip(folder: Path) -> None:
    weights = bytearray((folder / WEIGHTS).read_bytes())
    weights[-1] ^= 1
    (folder / WEIGHTS).write_bytes(weights)


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        without(WEIGHTS),
        without(FACTS),
        write_file(FACTS, b"{"),
        write_file(FACTS, b"\xff"),
        write_file(FACTS, b"[]"),
        change_setting("characters", "ab"),
        change_setting("characters", 3),
        change_setting("error_rate", float("nan")),
        change_setting("framing", {"rate": 16_000}),
        change_setting("stranger", 1),
        change_setting("version", 2),
    ],
)
def test_a_damaged_recogniser_names_the_file_to_remove(
    recogniser: SpeechRecogniser, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    recogniser.save(tmp_path / "recogniser")
    damage(tmp_path / "recogniser")
    with pytest.raises(RecogniserError, match="remove"):
        SpeechRecogniser.load(tmp_path / "recogniser")


def test_a_place_that_cannot_be_written_is_named(recogniser: SpeechRecogniser, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecogniserError, match="cannot be written"):
        recogniser.save(tmp_path / "file" / "recogniser")


def test_a_place_that_cannot_be_written_is_named_before_the_training(
    corpus: SpeechCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("trainers.vits.speech_recogniser.train_recogniser")
    (tmp_path / "file").touch()
    with pytest.raises(RecogniserError, match="cannot be written"):
        load_or_train_recogniser(corpus, tmp_path / "file" / "recogniser")


def test_clips_with_more_letters_than_frames_are_named(corpus: SpeechCorpus) -> None:
    clips = tuple(replace(clip, frames=3) if clip.split == "train" else clip for clip in corpus.clips)
    with pytest.raises(RecogniserError, match=f"{corpus.list_clips('train')[0].name} .* more"):
        train_recogniser(replace(corpus, clips=clips), steps=1)


def test_texts_without_letters_are_refused(corpus: SpeechCorpus) -> None:
    clips = tuple(replace(clip, text="?!") for clip in corpus.clips)
    with pytest.raises(RecogniserError, match=r"no training text of .* has a letter"):
        train_recogniser(replace(corpus, clips=clips), steps=1)
