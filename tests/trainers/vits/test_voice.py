"""Voices: saving without change, and speaking rate from recordings."""

from pathlib import Path

import pytest
import torch
from tiny_voice import BINS, tiny_config
from torch.nn.utils import parametrize

from trainers.vits.errors import VoiceError
from trainers.vits.versions import VoiceVersions, find_voice_folder
from trainers.vits.voice import Voice, apply_weight_norm

VOCABULARY = {"<pad>": 0, **{letter: number for number, letter in enumerate("abcdefghij", 1)}, "<unk>": 11}
TEXT = "abc hij"


def tiny_voice(*, stochastic: bool = False, seed: int = 1) -> Voice:
    torch.manual_seed(seed)
    return Voice.fresh(tiny_config(stochastic=stochastic), VOCABULARY)


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_saved_voice_says_the_same_samples_for_a_seed(tmp_path: Path, *, stochastic: bool) -> None:
    voice = tiny_voice(stochastic=stochastic)
    voice.save(tmp_path / "v")
    assert torch.equal(Voice.load(tmp_path / "v").speak(TEXT, seed=4), voice.speak(TEXT, seed=4))


def test_a_text_that_no_minute_holds_is_refused_before_it_is_read() -> None:
    """Attention over a book would take hundreds of gigabytes."""
    with pytest.raises(
        VoiceError, match=r"seconds or more for .* \(800000 characters\)', above the maximum of 60"
    ) as told:
        tiny_voice().speak("abc hij " * 100_000, seed=1)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("damage", ["[" * 100_000, '{"current": 1, "versions": 1, "consumed": []}', "[]"])
def test_an_index_of_another_shape_is_damaged(damage: str, tmp_path: Path) -> None:
    (tmp_path / "voice.json").write_text(damage)
    with pytest.raises(VoiceError, match=r"voice\.json is damaged"):
        VoiceVersions(tmp_path)


def test_another_seed_is_another_wave() -> None:
    voice = tiny_voice()
    assert not torch.equal(voice.speak(TEXT, seed=1), voice.speak(TEXT, seed=2))


def test_speaking_keeps_torchs_generator_state() -> None:
    voice = tiny_voice(stochastic=True)
    before = torch.get_rng_state()
    voice.speak(TEXT, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_weight_normed_decoder_is_saved_plain_and_goes_on_weight_normed(tmp_path: Path) -> None:
    voice = tiny_voice()
    apply_weight_norm(voice.model.decoder)
    voice.save(tmp_path / "v")
    loaded = Voice.load(tmp_path / "v")  # refuses missing and unexpected weights
    torch.testing.assert_close(loaded.speak(TEXT, seed=4), voice.speak(TEXT, seed=4), rtol=0, atol=1e-5)
    assert any(parametrize.is_parametrized(module) for module in voice.model.decoder.modules())
    assert not any(parametrize.is_parametrized(module) for module in loaded.model.decoder.modules())


def test_the_settled_rate_is_saved_and_brings_lengths_closest(tmp_path: Path) -> None:
    voice = tiny_voice()
    frames = len(voice.speak(TEXT, seed=0)) // voice.framing.hop
    rate = voice.fit_speaking_rate([(TEXT, 2 * frames)])
    assert rate < 1
    assert abs(len(voice.speak(TEXT, seed=0)) // voice.framing.hop - 2 * frames) <= len(TEXT)
    voice.save(tmp_path / "v")
    assert Voice.load(tmp_path / "v").model.speaking_rate == rate


def test_every_take_of_a_text_has_a_say_in_the_rate() -> None:
    voice = tiny_voice()
    frames = len(voice.speak(TEXT, seed=0)) // voice.framing.hop
    alone = voice.fit_speaking_rate([(TEXT, frames)])
    assert voice.fit_speaking_rate([*[(TEXT, 2 * frames)] * 4, (TEXT, frames)]) < alone


def test_a_reconstruction_is_as_long_as_the_recording() -> None:
    voice = tiny_voice()
    assert voice.reconstruct(torch.rand(BINS, 40)).shape == (40 * voice.framing.hop,)


def test_a_folder_without_a_voice_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(VoiceError, match=r"is not a voice: config\.json is missing"):
        Voice.load(tmp_path)


def test_weights_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    tiny_voice().save(tmp_path / "v")
    weights = tmp_path / "v" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(VoiceError, match="cannot be read as a voice"):
        Voice.load(tmp_path / "v")


def test_several_speakers_are_refused() -> None:
    config = tiny_config()
    config.num_speakers, config.speaker_embedding_size = 3, 4
    with pytest.raises(VoiceError, match="3 speakers"):
        Voice.fresh(config, VOCABULARY)


def test_a_new_version_is_current_and_the_old_one_stays(tmp_path: Path) -> None:
    versions = VoiceVersions(tmp_path / "voice")
    first = versions.add(tiny_voice(), {"step": 1})
    second = versions.add(tiny_voice(seed=2), {"step": 2}, frozenset({"ab"}))
    again = VoiceVersions(tmp_path / "voice")
    assert (first.name, second.name, again.current) == ("1", "2", second)
    assert dict(again.index.consumed) == {"ab": 2}
    again.choose(1)
    assert find_voice_folder(tmp_path / "voice") == first
    assert find_voice_folder(second) == second
    assert torch.equal(Voice.load(first).speak(TEXT, seed=1), tiny_voice().speak(TEXT, seed=1))


def test_a_version_that_does_not_exist_cannot_be_chosen(tmp_path: Path) -> None:
    versions = VoiceVersions(tmp_path)
    versions.add(tiny_voice(), {})
    with pytest.raises(VoiceError, match="versions 1 to 1, not 2"):
        versions.choose(2)


@pytest.mark.parametrize(
    "content", ["", "{}", '{"current": 3, "versions": 1, "consumed": {}}', '{"current": true}', "[]"]
)
def test_a_damaged_index_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "voice.json").write_text(content)
    with pytest.raises(VoiceError, match=r"voice\.json is damaged"):
        VoiceVersions(tmp_path)
