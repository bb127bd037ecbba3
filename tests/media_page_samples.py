"""Voice and image pages with made-up content; they need the extras `tts` and `dit`."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from trainers.dit.evaluation import ClassifierPredictions, RewardScore
from trainers.dit.evaluation import ImageEvaluation as Drawing
from trainers.dit.page import build_evaluation_page, build_sample_page, render_sheet
from trainers.media.page import TrainingCurve, write_page
from trainers.vits.corpus import RecordedClip
from trainers.vits.page import VoicePage, render_page
from trainers.vits.spectrum import FrameSettings
from trainers.vits.speech_evaluation import ClipScore, SpeechEvaluation

_CLIPS: Final = 30
_PROMPTS: Final = 30
_FRAMING: Final = FrameSettings()


def _wave(place: int, seconds: float) -> Tensor:
    """A tone in noise, which barely compresses."""
    times = torch.arange(round(seconds * _FRAMING.rate)) / _FRAMING.rate
    noise = torch.randn(len(times), generator=torch.Generator().manual_seed(place))
    return 0.3 * torch.sin(2 * math.pi * (200 + 20 * place) * times) + 0.05 * noise


def _clip(name: str, text: str, fault: str = "") -> ClipScore:
    return ClipScore(
        clip=RecordedClip(name, text, "held_out", 200, "0" * 64),
        heard="" if fault else "ev hevokek dirêj e ku dive li ser ekrana telefone jî were xwendinn",
        errors=4,
        heard_real="ev hevokeke dirêj e ku divê li ser ekrana telefonê jî were xwendin",
        real_errors=0,
        reconstruction=0.654321,
        distance=None if fault else 1.234567,
        log_length_ratio=None if fault else -0.1,
        fault=fault,
    )


def _voice(path: Path) -> None:
    text = "Ev hevokeke dirêj e ku divê li ser ekrana telefonê jî were xwendin, bêyî ku rûpel mezintir bibe."
    clips = [_clip(f"clip-{place:04d}-with-a-rather-long-name-of-a-file", text) for place in range(_CLIPS)]
    found = VoicePage(
        title="demo/3",
        voice="the voice in voices/demo/3, trained for 3,000 steps",
        corpus="held-out clips of corpora/one, SHA-256 of its contents 0123456789abcdef0123456789abcdef",
        language="ku",
        framing=_FRAMING,
        speaking_rate=0.7916,
        recogniser_error_rate=0.0121,
        scores=SpeechEvaluation((*clips, _clip("b9", "日本", "nothing of it is in the vocabulary"))),
        waves=[(_wave(place, 3.5), _wave(place + 100, 3.2)) for place in range(24)],
    )
    write_page(path, render_page(found))


def _images(count: int, side: int) -> Tensor:
    """Noise images [count, 3, side, side], which barely compress."""
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(side))


def _curves() -> tuple[TrainingCurve, ...]:
    loss = tuple((100.0 * step, 1.0 / (1 + step)) for step in range(40))
    reward = tuple((float(step), 0.5 + 0.01 * step) for step in range(20))
    return (
        TrainingCurve(name="Loss", over="steps", points=loss, level=0.2, level_name="the best of before"),
        TrainingCurve(name="SSIM, rollouts", over="tuning iterations", points=reward),
    )


def _sheet(path: Path) -> None:
    prompts = tuple(f"a handwritten digit, drawn for prompt number {place // 8}" for place in range(8 * _PROMPTS))
    images = _images(len(prompts), 96)
    told = (prompts[-1], *prompts[1:])
    found = Drawing(
        prompts=prompts,
        images=images,
        targets=1 - images,
        scores=(RewardScore("frechet", "Fréchet distance", 4.25, 1.5, is_distance=True, against=7),),
        predictions=ClassifierPredictions(told, prompts),
    )
    write_page(
        path, render_sheet(build_evaluation_page("Evaluation of model", ("drawn with 4 steps",), found, _curves()))
    )


def _drawn(path: Path) -> None:
    sheet = build_sample_page(
        "Drawn by model", ("with 4 steps, guidance 2, seed 0",), "a seven", _images(100, 96), _curves()
    )
    write_page(path, render_sheet(sheet))


PAGES: Final[dict[str, Callable[[Path], None]]] = {"voice": _voice, "drawing": _sheet, "drawn": _drawn}
