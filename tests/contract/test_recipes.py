"""The recipes in docs/training-loop.md run unchanged."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from shown_commands import ROOT
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

import trainers.loop
from trainers.loop import Checkpoints, EpochReport, IterableSource, Loop, Loss, Phase, TrainingRun, Validation, adamw

PAGE = (ROOT / "docs" / "training-loop.md").read_text(encoding="utf-8")
Names = dict[str, Any]
PUBLIC: Mapping[str, Any] = {name: getattr(trainers.loop, name) for name in trainers.loop.__all__}


def recipes() -> dict[str, str]:
    """The Python code of each recipe by title; the blocks of a recipe share their names."""
    sections = re.split(r"^### ", PAGE.partition("\n## Recipes\n")[2], flags=re.MULTILINE)[1:]
    found = {
        section.partition("\n")[0]: re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL) for section in sections
    }
    return {title: "\n".join(blocks) for title, blocks in found.items() if blocks}


@dataclass(frozen=True)
class RecipeCase:
    """The names that a recipe assumes, and the check of its result."""

    names: Callable[[Path], Names]
    check: Callable[[Names], None]


# --- adversaries


def adversaries(folder: Path) -> Names:
    torch.manual_seed(1)
    generator, discriminator = nn.Linear(1, 1), nn.Linear(1, 1)

    def generate(real: Tensor) -> Tensor:
        return generator(torch.randn_like(real))

    def discriminator_loss(real: Tensor, samples: Tensor) -> Loss:
        return Loss(softplus(-discriminator(real)).mean() + softplus(discriminator(samples)).mean(), len(real))

    def generator_loss(_: Tensor, samples: Tensor) -> Loss:
        return Loss(softplus(-discriminator(samples)).mean(), len(samples))

    return {
        "generator": generator,
        "discriminator": discriminator,
        "d_optimizer": adamw(discriminator.parameters(), lr=0.01),
        "g_optimizer": adamw(generator.parameters(), lr=0.01),
        "generate": generate,
        "discriminator_loss": discriminator_loss,
        "generator_loss": generator_loss,
        "train": IterableSource([torch.randn(4, 1), torch.randn(3, 1), torch.randn(4, 1)]),
        "checkpoints": Checkpoints(folder),
    }


def both_train(names: Names) -> None:
    with names["loop"].running() as run:
        list(run.epochs(names["train"], max_epochs=1))
        assert [phase.steps for phase in run._phases] == [3, 3]


def discriminator_was_late(names: Names) -> None:
    run: TrainingRun[Tensor] = names["run"]
    assert {phase.phase.name: phase.steps for phase in run._phases} == {"discriminator": 4, "generator": 6}
    first, second = (report.phases["generator"] for report in run.history)
    assert first.loss < 45 * first.parts["reconstruction"] + first.parts["adversarial"]
    assert second.loss == pytest.approx(45 * second.parts["reconstruction"] + second.parts["adversarial"])


# --- speech


class Utterances(NamedTuple):
    frames: Tensor
    frame_lengths: Tensor
    token_lengths: Tensor


def utterance(*frame_lengths: int) -> Utterances:
    real = torch.arange(9) < torch.tensor(frame_lengths)[:, None]
    return Utterances(torch.where(real, 3.0, 1.0), real.sum(1), torch.full((len(frame_lengths),), 2))


class Speaker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mel, self.duration = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))

    def forward(self, batch: Utterances) -> tuple[Tensor, Tensor]:
        return (self.mel - batch.frames).square().sum(), (self.duration - batch.token_lengths).square().sum()


def speech(_: Path) -> Names:
    network = Speaker()
    return {
        "Utterances": Utterances,
        "network": network,
        "optimizer": adamw(network.parameters(), lr=0.01),
        "train": IterableSource([utterance(3), utterance(9, 2)]),
    }


def speech_trains(names: Names) -> None:
    with Loop([names["phase"]], modules={"network": names["network"]}, accumulate=2).running() as run:
        *_, epoch = run.epochs(names["train"], max_epochs=1)
        assert epoch.phases["speech"].count == 14 + 6  # pyright: ignore[reportAttributeAccessIssue]  the last is an epoch's


# --- unfreezing


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body, self.head = nn.Linear(1, 1), nn.Linear(1, 1)
        self.start = self.body.weight.detach().clone()
        self.stood: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.stood.append(torch.equal(self.body.weight, self.start))
        return self.head(torch.tanh(self.body(x)))


def unfreezing(folder: Path) -> Names:
    network = Net()
    phase = Phase[Tensor](
        "fit",
        lambda x: Loss(network(x).square().mean(), len(x)),
        network.parameters(),
        adamw(network.parameters(), lr=0.1),
    )
    return {
        "network": network,
        "loop": Loop([phase], modules={"network": network}),
        "train": IterableSource([torch.ones(4, 1)] * 3),
        "checkpoints": Checkpoints(folder),
    }


def body_came_later(names: Names) -> None:
    assert names["network"].stood == [True] * 7 + [False] * 5  # its first step is in the seventh window


# --- rewards


class Rollout(NamedTuple):
    x: Tensor
    advantage: Tensor


def rewards(_: Path) -> Names:
    torch.manual_seed(1)
    network = nn.Linear(1, 1)
    return {
        "Rollout": Rollout,
        "network": network,
        "optimizer": adamw(network.parameters(), lr=0.1),
        "log_probability": lambda rollout: nn.functional.logsigmoid(network(rollout.x)[:, 0]),  # pyright: ignore[reportUnknownLambdaType]
    }


def zero_advantages_move_nothing(names: Names) -> None:
    batches = [Rollout(torch.ones(4, 1), torch.full((4,), value)) for value in (0.0, 1.0, 0.0)]
    with Loop([names["phase"]], modules={"network": names["network"]}).running() as run:
        *_, epoch = run.epochs(IterableSource(batches), max_epochs=1)
        assert epoch.phases["policy"].zero_gradients == 2  # pyright: ignore[reportAttributeAccessIssue]  as above


# --- workers


def workers(folder: Path) -> Names:
    network = nn.Linear(3, 1)
    phase = Phase[Tensor](
        "fit",
        lambda x: Loss(network(x).square().mean(), len(x)),
        network.parameters(),
        adamw(network.parameters(), lr=0.1),
    )
    return {
        "DataLoader": DataLoader,
        "images": [torch.full((3,), float(number)) for number in range(130)],
        "loop": Loop([phase], modules={"network": network}),
        "checkpoints": Checkpoints(folder),
    }


def all_images_were_seen(names: Names) -> None:
    assert [epoch.phases["fit"].count for epoch in names["run"].history] == [130] * 3


# --- existing weights


def weights(folder: Path) -> Names:
    torch.manual_seed(1)
    learnt, body, head = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3)

    def fitting(modules: dict[str, nn.Module]) -> Callable[[Tensor], Loss]:
        return lambda x: Loss(nn.Sequential(*modules.values())(x).square().mean(), len(x))

    earlier: dict[str, nn.Module] = {"body": learnt, "head": nn.Linear(2, 1)}
    parameters = [*learnt.parameters(), *earlier["head"].parameters()]
    loop = Loop([Phase("fit", fitting(earlier), parameters, adamw(parameters, lr=0.1))], modules=earlier)
    train = IterableSource([torch.ones(4, 2)])
    with loop.running(Checkpoints(folder / "earlier" / "checkpoints", every_windows=1)) as run:
        for report in run.epochs(train, max_epochs=1):
            if isinstance(report, EpochReport):
                run.stalled(report.monitored, patience=1)
    return {
        "earlier": folder / "earlier",
        "here": folder,
        "body": body,
        "head": head,
        "loss": fitting({"body": body, "head": head}),
        "train": train,
        "learnt": learnt,
        "fresh": head.weight.detach().clone(),
    }


def the_body_is_the_learnt_one_and_the_head_has_learnt(names: Names) -> None:
    assert torch.equal(names["body"].weight, names["learnt"].weight)
    assert not torch.equal(names["head"].weight, names["fresh"])


# --- caller state


def stateful(folder: Path) -> Names:
    network = nn.Linear(1, 1)

    def loss(x: Tensor) -> Loss:
        return Loss(network(x).square().mean(), len(x), {"kl": network.weight.square().mean()})

    optimizer = adamw(network.parameters(), lr=0.1)
    return {
        "network": network,
        "optimizer": optimizer,
        "phase": Phase("fit", loss, network.parameters(), optimizer),
        "train": IterableSource([torch.ones(4, 1)] * 3),
        "held_out": Validation(loss, IterableSource([torch.ones(2, 1)])),
        "checkpoints": Checkpoints(folder, every_windows=1),
        "ReduceLROnPlateau": ReduceLROnPlateau,
        "Any": Any,
    }


def state_is_in_the_checkpoint(names: Names) -> None:
    restored = names["checkpoints"].load()
    assert restored.epoch + bool(restored.window) == 50
    kept = restored.state["processes"][0]["kept"]
    assert len(kept["penalty"]["recent"]) == 100
    assert kept["plateau"]["last_epoch"] == restored.epoch


CASES: Mapping[str, RecipeCase] = {
    "Two optimizers": RecipeCase(adversaries, both_train),
    "A late discriminator": RecipeCase(adversaries, discriminator_was_late),
    "Several denominators": RecipeCase(speech, speech_trains),
    "Unfreezing by schedule": RecipeCase(unfreezing, body_came_later),
    "IterableDataset and workers": RecipeCase(workers, all_images_were_seen),
    "Rewards without gradient": RecipeCase(rewards, zero_advantages_move_nothing),
    "Starting from weights": RecipeCase(weights, the_body_is_the_learnt_one_and_the_head_has_learnt),
    "State of your own": RecipeCase(stateful, state_is_in_the_checkpoint),
}


@pytest.mark.slow
@pytest.mark.parametrize("title", list(recipes()))
def test_a_recipe_runs_unchanged(title: str, tmp_path: Path) -> None:
    case = CASES[title]
    names: Names = {**PUBLIC, "Tensor": Tensor, "torch": torch, "nn": nn, "softplus": softplus, "Path": Path}
    names |= case.names(tmp_path)
    exec(compile(recipes()[title], f"recipe: {title}", "exec"), names)  # noqa: S102  our own page
    case.check(names)


def test_the_page_has_every_recipe() -> None:
    assert set(CASES) == set(recipes())
