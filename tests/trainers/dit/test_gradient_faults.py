"""Faults that train nothing or the wrong thing, and their guards; docs/images.md lists them."""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tiny_images import LENGTH, tiny_model, tiny_tokenizer, write_images
from torch import Tensor
from transformers import T5Config, T5EncoderModel

import trainers.dit
from trainers.dit.batches import EncodedImages, write_cache
from trainers.dit.encoders import PixArtPromptEncoder
from trainers.dit.grpo import PolicyLoss, PolicySampler, Rollouts
from trainers.dit.images import ImageFolder, read_pictures
from trainers.dit.models import ImageModel
from trainers.dit.recipe import GrpoRecipe, SamplingSettings
from trainers.dit.rewards import ValidatedReward
from trainers.dit.sampling import draw_initial_noise, draw_latents
from trainers.dit.training import TRANSFORMER
from trainers.loop import DetachedLossError, IterableSource, Loop, LoopError, Loss, NoGradientError, Phase

SOURCES = sorted(Path(trainers.dit.__file__).parent.glob("*.py"))


def weights(model: ImageModel) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.network.module.parameters()])


def some_pictures(folder: Path) -> ImageFolder:
    return read_pictures(write_images(folder), tiny_model().image_format, lambda _: None)


class DifferenceLoss:
    """A wrong loss: difference of samples from images, minus a reward."""

    def __init__(self, model: ImageModel, *, required: bool) -> None:
        self._model = model
        self._required = required

    def loss(self, batch: EncodedImages) -> Loss:
        count = len(batch.posterior.mean)
        drawn = draw_latents(
            self._model, batch.condition, draw_initial_noise(self._model, count, 0), SamplingSettings(steps=4)
        )
        error = (drawn - batch.posterior.mean).square().mean() - drawn.mean()
        return Loss(error.requires_grad_(self._required), count)


@pytest.mark.parametrize(
    ("required", "error", "told"),
    [
        (
            False,
            DetachedLossError,
            "the loss is detached.* samples generated without gradients.*in phase 'transformer'",
        ),
        (True, NoGradientError, "backward reached no parameter of the phase.*in phase 'transformer'"),
    ],
)
def test_a_loss_on_samples_is_refused_before_a_step_also_where_a_gradient_is_demanded_of_it(
    tmp_path: Path, *, required: bool, error: type[LoopError], told: str
) -> None:
    model = tiny_model().learning("flow")
    batch = write_cache(some_pictures(tmp_path / "images"), model, tmp_path / "cache").gather(torch.arange(4))
    before, transformer = weights(model), model.network.module
    optimizer = torch.optim.SGD(transformer.parameters(), lr=0.1)
    phase = Phase[EncodedImages](
        TRANSFORMER, DifferenceLoss(model, required=required).loss, transformer.parameters(), optimizer
    )
    loop = Loop([phase], modules={TRANSFORMER: transformer}, device="cpu")
    with pytest.raises(error, match=told), loop.running() as run:
        list(run.epochs(IterableSource([batch]), max_epochs=1))
    assert torch.equal(weights(model), before)


class Brightness:
    """A differentiable reward."""

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        assert not images.requires_grad
        return images.mean((1, 2, 3))


def test_what_is_drawn_has_no_gradient_and_asking_again_about_its_steps_reaches_every_parameter(
    tmp_path: Path,
) -> None:
    model, start = tiny_model().learning("flow"), tiny_model().learning("flow")
    recipe = GrpoRecipe(groups=3, members=4, draw_steps=4, trained_steps=1)
    reward = ValidatedReward("brightness", Brightness(), is_collective=False)
    torch.manual_seed(3)
    moves = next(iter(Rollouts(model, some_pictures(tmp_path), reward, recipe)))
    assert [part.requires_grad for part in (*moves[:-1], *moves.condition)] == [False] * 11
    steps = PolicySampler(model.unconditional(), recipe)
    PolicyLoss(model.network, start.network, steps, recipe).loss(moves).mean.backward()
    named = model.network.module.named_parameters()
    assert [name for name, weight in named if weight.grad is None or not weight.grad.any()] == []


def probes(path: Path) -> list[str]:
    """Uses of `hasattr`-like probes in a module that continue without the attribute."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="hasattr")) | ast.Call(func=ast.Name(id="getattr"), args=[_, _, _]):
                found.append(f"{path.name}:{node.lineno}")
            case ast.ExceptHandler(type=ast.expr() as kind) if "AttributeError" in ast.unparse(kind):
                found.append(f"{path.name}:{node.lineno}")
            case _:
                pass
    return found


def test_nothing_is_told_by_whether_it_has_an_attribute() -> None:
    assert SOURCES
    assert [place for path in SOURCES for place in probes(path)] == []


def test_probing_is_seen(tmp_path: Path) -> None:
    source = "hasattr(a, 'b')\ngetattr(a, 'b', None)\ntry:\n    a.b\nexcept (AttributeError, OSError):\n    pass\n"
    (tmp_path / "probing.py").write_text(source)
    assert probes(tmp_path / "probing.py") == ["probing.py:1", "probing.py:2", "probing.py:5"]


def test_an_encoder_of_relative_positions_is_recognised_by_its_class() -> None:
    torch.manual_seed(1)
    config = T5Config(vocab_size=len(tiny_tokenizer()), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    coder = PixArtPromptEncoder(T5EncoderModel(config), tiny_tokenizer())
    assert (coder.length, coder.width) == (LENGTH, 16)
    assert coder.embed(coder.tokens(["a bar"])).embeddings.shape == (1, LENGTH, 16)
