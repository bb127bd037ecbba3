"""Usable recordings, and refused ones with file, cause and remedy."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import ArrayLike
from recordings import RATE, tones

from trainers.vits.errors import CorpusError
from trainers.vits.preparation import CorpusSettings, decode, find_recording, find_recordings
from trainers.vits.spectrum import FrameSettings

TONE = tones("dengek")


def accepted(*, resample: bool = False) -> CorpusSettings:
    return CorpusSettings(framing=FrameSettings(), resample=resample, min_frames=32, max_seconds=3)


def write_recording(path: Path, samples: ArrayLike, rate: int = RATE, subtype: str = "PCM_16") -> Path:
    """Write a file of these samples."""
    soundfile.write(path, np.asarray(samples), rate, subtype=subtype)
    return path


def refusal(path: Path, *, resample: bool = False) -> str:
    """The refusal of a recording, which names the file."""
    with pytest.raises(CorpusError) as refused:
        decode(path, accepted(resample=resample))
    assert str(path) in refused.value.message
    return refused.value.message


@pytest.mark.parametrize("ending", [".wav", ".flac"])
def test_samples_of_16_bits_are_kept_as_they_are(ending: str, tmp_path: Path) -> None:
    samples = (TONE * 30_000).astype(np.int16)
    samples[:4] = -32_768, 32_767, 1, -1
    assert decode(write_recording(tmp_path / f"a{ending}", samples), accepted()).numpy().tolist() == samples.tolist()


@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT", "PCM_U8"])
def test_other_samples_are_rounded_to_16_bits(subtype: str, tmp_path: Path) -> None:
    found = decode(write_recording(tmp_path / "a.wav", TONE, subtype=subtype), accepted()).numpy() / 32_768
    assert np.abs(found - TONE).max() < (0.008 if subtype == "PCM_U8" else 2e-5)


def test_what_is_left_of_the_last_frame_is_cut_off(tmp_path: Path) -> None:
    assert len(decode(write_recording(tmp_path / "a.wav", TONE[:-1]), accepted())) == len(TONE) - 256
    assert len(decode(write_recording(tmp_path / "a.wav", TONE), accepted())) == len(TONE)


def test_a_recording_of_full_scale_is_no_louder_than_that(tmp_path: Path) -> None:
    found = decode(write_recording(tmp_path / "a.wav", np.sign(TONE), subtype="FLOAT"), accepted())
    assert (int(found.min()), int(found.max())) == (-32_768, 32_767)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_another_rate_is_converted_where_that_is_wanted(rate: int, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.wav", tones("dengek", rate), rate)
    assert f"has {rate} samples per second instead of 16000; convert it, or use --resample" in refusal(path)
    found, expected = decode(path, accepted(resample=True)).float() / 32_768, torch.from_numpy(TONE).float()
    assert len(expected) - 256 <= len(found) <= len(expected)
    assert (found[:1900] - expected[:1900])[200:].abs().max() < 2e-3  # the first letter, without its edges


def test_a_text_file_an_empty_one_and_one_of_noise_cannot_be_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    for content in (b"", b"hello"):
        path.write_bytes(content)
        assert "cannot be decoded (Format not recognised.); copy it again" in refusal(path)
    path.write_bytes(write_recording(path, TONE).read_bytes()[:12] + np.random.default_rng(1).bytes(9_000))
    assert "cannot be decoded" in refusal(path)


@pytest.mark.parametrize("ending", [".wav", ".flac"])
def test_half_a_file_is_refused(ending: str, tmp_path: Path) -> None:
    path = write_recording(tmp_path / f"a{ending}", TONE + np.random.default_rng(1).normal(0, 0.1, len(TONE)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    assert "copy it again" in refusal(path)


@pytest.mark.parametrize("length", [2**31 - 4096, 2**32 - 1])
def test_a_wave_whose_writer_did_not_know_its_length_is_read_to_its_end(length: int, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.wav", TONE)
    content = bytearray(path.read_bytes())
    content[40:44] = length.to_bytes(4, "little")
    path.write_bytes(content)
    assert len(decode(path, accepted())) == len(TONE)


@pytest.mark.parametrize("rate", [1, 3_999, 768_001, 1_700_000_000])
def test_a_rate_at_which_nobody_records_is_not_converted(rate: int, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.wav", TONE)
    content = bytearray(path.read_bytes())
    content[24:28] = rate.to_bytes(4, "little")
    path.write_bytes(content)
    assert f"has {rate} samples per second in a damaged header; copy it again" in refusal(path, resample=True)


def test_two_channels_are_refused(tmp_path: Path) -> None:
    assert "has 2 channels; mix them into one" in refusal(
        write_recording(tmp_path / "a.wav", np.stack([TONE, TONE], 1))
    )


@pytest.mark.parametrize("samples", [0, 1, 31 * 256, 32 * 256 - 1])
def test_less_than_a_slice_is_refused(samples: int, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.wav", TONE[:samples] + 0.1)
    assert f"has {samples // 256} frames" in refusal(path)
    assert len(decode(write_recording(path, TONE[: 32 * 256]), accepted())) == 32 * 256


def test_a_long_recording_is_refused_by_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_recording(tmp_path / "a.wav", np.zeros(3 * RATE + 1))
    monkeypatch.setattr(soundfile.SoundFile, "read", None)
    assert "lasts 3.0 s, more than 3 s; cut it into sentences" in refusal(path)


@pytest.mark.parametrize("level", [0.0, 0.25])
def test_silence_is_refused_whatever_its_level(level: float, tmp_path: Path) -> None:
    hiss = np.random.default_rng(1).uniform(-5e-4, 5e-4, len(TONE))
    assert "is silent" in refusal(write_recording(tmp_path / "a.wav", level + hiss))


def test_samples_that_are_no_numbers_or_beyond_full_scale_are_refused(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.wav", np.where(TONE > 0.4, np.nan, TONE), subtype="FLOAT")
    assert "non-finite samples" in refusal(path)
    assert "louder than full scale (a sample of 1.50)" in refusal(write_recording(path, TONE * 3, subtype="FLOAT"))


def test_recordings_are_found_in_wavs_and_beside_metadata_with_any_capitals(tmp_path: Path) -> None:
    for name in ("wavs/a.wav", "wavs/x/b.FLAC", "c.flac", "wavs/._a.wav", "wavs/a.txt", "other/d.wav", "wavs/e.f.wav"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "g.wav").mkdir()
    assert sorted(find_recordings(tmp_path)) == ["a", "c", "e.f", "x/b"]


def test_a_name_with_accents_is_found_however_the_disk_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "c\u0327ar.wav"
    path.touch()
    assert find_recording(find_recordings(tmp_path), "\u00e7ar") == path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("b", r"neither wavs/b\.wav nor wavs/b\.flac exists; add the recording"),
        ("a.wav", r"the id a\.wav includes a folder or extension; write a"),
        ("wavs/a", r"write a$"),
        ("c", r"several recordings have this id: .*c\.flac and .*c\.wav; keep one"),
    ],
)
def test_an_id_without_its_one_file_is_refused(name: str, told: str, tmp_path: Path) -> None:
    for file in ("a.wav", "c.wav", "c.flac"):
        (tmp_path / file).touch()
    with pytest.raises(CorpusError, match=told):
        find_recording(find_recordings(tmp_path), name)
