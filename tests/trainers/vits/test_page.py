"""Voice evaluation page: given content, no external resources, and no injected scripts."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from pages import HOSTILE, assert_holds_all, page_of
from PIL import Image
from torch import Tensor

from trainers.vits.corpus import RecordedClip
from trainers.vits.distances import TextSpan, edit_distance, find_difference
from trainers.vits.page import VoicePage, count_frames, draw_spectrogram, encode_sound, place_ticks, render_page
from trainers.vits.spectrum import BANDS, FrameSettings
from trainers.vits.speech_evaluation import ClipScore, SpeechEvaluation

FRAMING = FrameSettings()


def tone(seconds: float, hertz: float = 440.0) -> Tensor:
    return 0.5 * torch.sin(2 * math.pi * hertz * torch.arange(round(seconds * FRAMING.rate)) / FRAMING.rate)


CLIP = ClipScore(
    clip=RecordedClip("a1", "Tu çawa?", "held_out", 31, "0" * 64),
    heard="tu cawax",
    errors=2,
    heard_real="tu çawa",
    real_errors=0,
    reconstruction=0.654321,
    distance=1.234567,
    log_length_ratio=-0.1,
    fault="",
)
UNSPOKEN = replace(
    CLIP,
    clip=replace(CLIP.clip, name="b9", text="日本"),
    heard="",
    errors=2,
    distance=None,
    log_length_ratio=None,
    fault="nothing of it is in the vocabulary",
)


def clip(name: str, text: str = "Tu çawa?") -> ClipScore:
    return replace(CLIP, clip=replace(CLIP.clip, name=name, text=text))


def page_data(*scores: ClipScore, waves: Sequence[tuple[Tensor, Tensor]] | None = None) -> VoicePage:
    """A page of some clips and of one that could not be spoken."""
    return VoicePage(
        title="demo/3",
        voice="the voice in /voices/demo/3",
        corpus="held-out clips of /corpora/one",
        language="ku",
        framing=FRAMING,
        speaking_rate=0.7916,
        recogniser_error_rate=0.0121,
        scores=SpeechEvaluation((*scores, UNSPOKEN)),
        waves=[(tone(0.5), tone(0.8, 880))] * len(scores) if waves is None else waves,
    )


def all_spoken(*scores: ClipScore) -> VoicePage:
    return replace(page_data(*scores), scores=SpeechEvaluation(scores))


def content(uri: str) -> bytes:
    return base64.b64decode(uri.partition(",")[2])


def pixels(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(content(uri)))


def bright(uri: str) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Palette indices of all pixels, top row first."""
    return np.asarray(pixels(uri)).astype(np.int64)


# --- the page


def test_the_page_holds_everything_and_is_always_the_same() -> None:
    found = page_data(clip("a1"), clip("a2"))
    text = render_page(found)
    assert text.startswith("<!doctype html>")
    assert_holds_all(text)
    assert text == render_page(found)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert '<html lang="en">' in text


def test_every_clip_has_two_sounds_and_two_pictures_with_a_text_in_their_place() -> None:
    text = render_page(page_data(clip("a1"), clip("a2")))
    page = page_of(text)
    assert page.tags.count("audio") == page.tags.count("img") == 4
    assert sorted(one.split(";")[0] for one in page.references) == ["data:audio/flac"] * 4 + ["data:image/png"] * 4
    assert 'alt="Spectrogram of clip a2, spoken: 0.80 seconds"' in text
    assert 'aria-label="Clip a2, recorded"' in text


def test_the_figures_stand_on_the_page_in_full_and_as_people_read_them() -> None:
    page = page_of(render_page(page_data(CLIP)))
    assert {4 / 9, 0.0, 0.0121, 0.7916, 1.234567, 0.654321, 0.1, -0.1} <= set(page.numbers)
    assert "44.4 %" in page.words
    assert "−10 %" in page.words  # noqa: RUF001 - exp(-0.1) is 0.905
    assert "The recogniser is small" in page.words


def test_a_figure_that_is_unknown_is_a_dash() -> None:
    page = page_of(render_page(page_data()))
    assert "nan" not in page.words
    assert page.text.count("\N{EN DASH}") == 2  # distance and length error


def test_what_the_recogniser_heard_wrongly_is_marked() -> None:
    text = render_page(page_data(CLIP))
    assert "tu <mark>c</mark>awa<mark>x</mark></span>" in text
    assert "2 errors in 7 characters" in text
    assert "0 errors in 7 characters" in text


def test_a_recogniser_without_output_is_reported() -> None:
    text = render_page(page_data(replace(clip("a1", "!"), heard="")))
    assert "<em>nothing</em>" in text


def test_texts_are_marked_as_of_their_language() -> None:
    assert '<p class="text" lang="ku" dir="auto">Tu çawa?</p>' in render_page(page_data(CLIP))
    assert '<p class="text" lang="" dir="auto">' in render_page(replace(page_data(CLIP), language=""))


def test_clips_without_sounds_are_counted() -> None:
    found = page_data(*(clip(f"a{place}") for place in range(4)), waves=[(tone(0.5), tone(0.8))] * 2)
    page = page_of(render_page(found))
    assert page.tags.count("article") == 2
    assert "the first 2 of 4 that were spoken; 2 more" in page.words
    assert "All that were spoken: 1." in page_of(render_page(page_data(CLIP))).words


def test_of_heavy_clips_as_many_are_drawn_as_keep_the_page_light() -> None:
    noise = torch.randn(6 * FRAMING.rate, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    found = page_data(*(clip(f"a{place}") for place in range(12)), waves=[(noise, tone(0.8, 880))] * 12)
    text = render_page(found)
    shown = page_of(text).tags.count("article")
    assert 1 < shown < 12
    assert f"the first {shown} of 12 that were spoken; {12 - shown} more" in page_of(text).words
    assert len(text) < 2_000_000


def test_a_page_without_clips_is_still_a_page() -> None:
    page = page_of(render_page(page_data()))
    assert "article" not in page.tags
    assert "All that were spoken: 0." in page.words


def test_clips_that_could_not_be_spoken_stand_with_their_reason() -> None:
    page = page_of(render_page(page_data(CLIP)))
    assert "b9日本nothing of it is in the vocabulary" in page.words
    assert "1 of 2 clips" in page.words
    assert "Could not be spoken" not in page_of(render_page(all_spoken(CLIP))).text


def test_every_mean_says_what_it_makes_of_clips_that_could_not_be_spoken() -> None:
    page = page_of(render_page(page_data(CLIP)))
    told = "1 of 2 clips could not be spoken and "
    assert {what: page.words.count(told + what) for what in ("count as wrong", "are left out", "are included")} == {
        "count as wrong": 1,
        "are left out": 2,
        "are included": 2,
    }
    assert told not in page_of(render_page(all_spoken(CLIP))).words


def test_texts_that_others_wrote_are_shown_as_text() -> None:
    hostile = HOSTILE + "\"' onerror=alert(1)"
    one = replace(clip(hostile, hostile), heard=hostile, heard_real=hostile)
    unspoken = replace(UNSPOKEN, clip=one.clip, fault=hostile)
    found = replace(page_data(one), title=hostile, voice=hostile, corpus=hostile, language=hostile)
    found = replace(found, scores=SpeechEvaluation((one, unspoken)))
    text = render_page(found)
    page = page_of(text)
    assert HOSTILE not in text
    assert "\"' onerror" not in text
    assert page.text.count(HOSTILE) >= 10
    assert_holds_all(text)


# --- sounds and pictures


def test_a_sound_is_the_wave_in_16_bits_with_what_is_too_loud_cut_off() -> None:
    wave = torch.cat([tone(0.1), torch.tensor([3.0, -3.0])])
    played, rate = soundfile.read(io.BytesIO(content(encode_sound(wave, FRAMING.rate))), dtype="float32")
    assert rate == FRAMING.rate
    np.testing.assert_allclose(played, wave.clamp(-1, 1).numpy(), atol=2**-14)


def test_low_frequencies_are_at_the_bottom() -> None:
    low, high = (bright(draw_spectrogram(tone(0.5, hertz), FRAMING, 31)).sum(axis=1) for hertz in (200, 6_000))
    assert low.argmax() > 0.85 * BANDS
    assert high.argmax() < 0.15 * BANDS


def test_louder_is_brighter_and_silence_is_dark() -> None:
    quiet, loud = (pixels(draw_spectrogram(gain * tone(0.5), FRAMING, 31)).convert("L") for gain in (0.01, 1.0))
    assert np.asarray(quiet).mean() < np.asarray(loud).mean()
    dark = pixels(draw_spectrogram(torch.zeros(8_000), FRAMING, 31))
    assert np.asarray(dark.convert("L")).max() < 64
    assert np.asarray(dark.convert("RGBA"))[..., 3].min() == 255


def test_pictures_of_a_clip_have_one_time_scale_and_nothing_after_the_end() -> None:
    real, spoken = tone(0.5), tone(0.8)
    width = count_frames(spoken, FRAMING)
    drawn = [pixels(draw_spectrogram(wave, FRAMING, width)) for wave in (real, spoken)]
    assert {one.size for one in drawn} == {(width, BANDS)}
    ends = np.asarray(drawn[0].convert("RGBA"))[..., 3].min(axis=0)
    assert (ends > 0).sum() == count_frames(real, FRAMING)
    assert (ends[: count_frames(real, FRAMING)] == 255).all()


def test_a_wave_of_one_sample_is_drawn() -> None:
    wave = torch.tensor([0.5])
    assert pixels(draw_spectrogram(wave, FRAMING, 1)).size == (count_frames(wave, FRAMING), BANDS)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.05, (0.0,)),
        (0.35, (0.0, 0.1, 0.2, 0.3)),
        (1.84, (0.0, 0.5, 1.0, 1.5)),
        (6.0, (0.0, 2.0, 4.0, 6.0)),
        (60.0, (0.0, 20.0, 40.0, 60.0)),
    ],
)
def test_an_axis_is_marked_at_round_seconds(seconds: float, expected: tuple[float, ...]) -> None:
    assert place_ticks(seconds) == expected


def test_a_label_at_the_right_edge_stands_left_of_its_mark() -> None:
    assert '<li class="end" style="left: 100.0%">0.8</li>' in render_page(page_data(CLIP))


# --- what differs


@pytest.mark.parametrize(
    ("heard", "meant", "pieces"),
    [
        ("abc", "abc", (TextSpan("right", "abc"),)),
        ("abx", "abc", (TextSpan("right", "ab"), TextSpan("wrong", "x"))),
        ("axbc", "abc", (TextSpan("right", "a"), TextSpan("wrong", "x"), TextSpan("right", "bc"))),
        ("c", "abc", (TextSpan("missing", "ab"), TextSpan("right", "c"))),
        ("", "ab", (TextSpan("missing", "ab"),)),
        ("ab", "", (TextSpan("wrong", "ab"),)),
        ("", "", ()),
    ],
)
def test_letters_are_right_wrong_or_missing(heard: str, meant: str, pieces: tuple[TextSpan, ...]) -> None:
    assert find_difference(heard, meant).pieces == pieces


def test_as_many_letters_are_marked_as_the_edit_distance_says() -> None:
    draw = np.random.default_rng(7)
    for _ in range(100):
        heard, meant = ("".join(draw.choice(list("abc "), size=draw.integers(0, 9))) for _ in range(2))
        found = find_difference(heard, meant)
        assert found.errors == edit_distance(heard, meant)
        assert "".join(one.text for one in found.pieces if one.kind != "missing") == heard
