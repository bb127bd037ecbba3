"""Initial weights from an existing model: matching ones are copied, all others are named."""

import itertools
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trainers.loop import (
    CheckpointError,
    Checkpoints,
    FrozenModule,
    Loop,
    Loss,
    NoBestWeightsError,
    Phase,
    ResidentSource,
    SettingsError,
    WeightsMismatchError,
    seed_everything,
    take_weights,
)
from trainers.loop.weights import list_named_tensors


def network(outputs: int = 2) -> nn.Module:
    return nn.ModuleDict({"body": nn.LSTM(3, 4, 2), "norm": nn.BatchNorm1d(4), "head": nn.Linear(4, outputs)})


def copied_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def trained_into(folder: Path, *, windows: int = 6, stalls: bool = True, ema: float | None = None) -> nn.Linear:
    """A module trained with checkpoints, in its final state; its best weights are the first."""
    seed_everything(0)
    layer, data = nn.Linear(3, 1), torch.randn(6 * windows, 3)

    def loss(batch: Tensor) -> Loss:
        return Loss(mean=(layer(batch) - 1).square().mean(), count=len(batch))

    loop = Loop(
        [Phase("fit", loss, layer.parameters(), torch.optim.Adam(layer.parameters(), lr=0.1))],
        modules={"layer": layer},
        device="cpu",
        ema=ema,
    )
    values = itertools.count()
    with loop.running(Checkpoints(folder, keep=2, every_windows=2)) as run:
        for _ in run.epochs(ResidentSource.of(data, batch_size=6), max_epochs=1):
            if stalls:
                run.stalled(next(values), patience=99)
    return layer


# --- copied weights


def test_every_weight_and_buffer_is_taken_to_the_bit_and_told() -> None:
    source, target = network(), network()
    with torch.no_grad():
        source.get_buffer("norm.running_mean").add_(1)
    taken = take_weights(target, copied_state(source))
    assert same(copied_state(target), copied_state(source))
    assert sorted(taken.reused) == sorted(copied_state(source))
    assert (taken.new, taken.dropped) == ((), ())


def test_a_new_head_keeps_its_own_weights_and_the_old_one_is_left_out() -> None:
    source, target = network(2), network(5)
    before = copied_state(target)
    taken = take_weights(target, copied_state(source), new=("head",), dropped=("head",))
    after = copied_state(target)
    assert torch.equal(after["head.weight"], before["head.weight"])
    assert torch.equal(after["body.weight_hh_l1"], source.get_parameter("body.weight_hh_l1"))
    assert taken.new == taken.dropped == ("head.weight", "head.bias")
    assert str(taken) == (
        f"reused {len(taken.reused)} weights: {', '.join(taken.reused)}; new: head.weight, head.bias; "
        "dropped: head.weight, head.bias"
    )


def test_modules_by_name_are_those_of_a_loop_the_frozen_among_them() -> None:
    source = nn.ModuleDict({"body": nn.Linear(3, 4), "head": nn.Linear(4, 2)})
    body, head = nn.Linear(3, 4), nn.Linear(4, 7)
    taken = take_weights(
        {"body": FrozenModule(body), "head": head},
        copied_state(source),
        new=("head.weight", "head.bias"),
        dropped=("head",),
    )
    assert taken.reused == ("body.weight", "body.bias")
    assert torch.equal(body.weight, source.get_parameter("body.weight"))
    assert not body.weight.requires_grad


def test_optimizers_and_recurrent_layers_stay_valid() -> None:
    layer = nn.LSTM(3, 4)
    before = [(id(parameter), parameter.data_ptr()) for parameter in layer.parameters()]
    take_weights(layer, copied_state(nn.LSTM(3, 4)))
    assert [(id(parameter), parameter.data_ptr()) for parameter in layer.parameters()] == before


def test_a_weight_of_two_names_is_taken_by_either() -> None:
    def tied() -> nn.ModuleDict:
        made = nn.ModuleDict({"embed": nn.Embedding(5, 3), "out": nn.Linear(3, 5, bias=False)})
        made["out"].weight = made["embed"].weight
        return made

    source = tied()
    for names in (["embed.weight"], ["out.weight"], ["embed.weight", "out.weight"]):
        target = tied()
        taken = take_weights(target, {name: source.state_dict()[name] for name in names})
        assert taken.reused == ("embed.weight",)
        assert torch.equal(target.get_parameter("out.weight"), source.get_parameter("out.weight"))
    with pytest.raises(WeightsMismatchError, match="one weight in the modules, but different values: embed"):
        take_weights(tied(), {"embed.weight": torch.zeros(5, 3), "out.weight": torch.ones(5, 3)})


def test_the_digest_is_that_of_what_was_reused() -> None:
    source = copied_state(network())
    first, again = (take_weights(network(), source, new="head", dropped="head").digest for _ in range(2))
    other = take_weights(network(), {**source, "norm.bias": torch.ones(4)}, new="head", dropped="head").digest
    assert first == again != other


# --- mismatches


def test_all_that_does_not_fit_is_named_and_nothing_is_changed() -> None:
    target, weights = network(), copied_state(network(3))
    before = copied_state(target)
    weights["stem.weight"] = weights.pop("norm.weight")
    weights["norm.bias"] = weights["norm.bias"].half()
    with pytest.raises(WeightsMismatchError) as refused:
        take_weights(target, weights)
    for said in (
        "only in the modules: norm.weight",
        "only in the weights: stem.weight",
        "head.weight is float32[3, 4] in the weights and float32[2, 4] in the modules",
        "head.bias is float32[3] in the weights and float32[2] in the modules",
        "norm.bias is float16[4] in the weights and float32[4] in the modules",
    ):
        assert said in refused.value.message
    assert same(copied_state(target), before)


def test_not_one_of_many_names_is_left_out_of_the_message() -> None:
    modules = nn.ModuleList(nn.Linear(1, 1) for _ in range(30))
    with pytest.raises(WeightsMismatchError) as refused:
        take_weights(modules, {})
    assert all(f"{k}.{part}" in refused.value.message for k in range(30) for part in ("weight", "bias"))


@pytest.mark.parametrize(
    ("new", "dropped", "said"),
    [
        (("head",), (), "only in the weights, because they are new in the modules: head.weight, head.bias"),
        ((), ("head",), "only in the modules, because they are dropped from the weights: head.weight, head.bias"),
        (("hea",), (), "new has names that are not in the modules: hea"),
        ((), ("old_head",), "dropped has names that are not in the weights: old_head"),
        (("body", "norm", "head"), ("body", "norm", "head"), "nothing is left to reuse"),
    ],
)
def test_what_is_declared_must_be_so(new: tuple[str, ...], dropped: tuple[str, ...], said: str) -> None:
    with pytest.raises(WeightsMismatchError) as refused:
        take_weights(network(), copied_state(network()), new=new, dropped=dropped)
    assert said in refused.value.message


def test_what_holds_no_numbers_is_refused_by_name() -> None:
    with torch.device("meta"):
        hollow = nn.Linear(2, 2)
    full = copied_state(nn.Linear(2, 2))
    for modules, weights in ((nn.Linear(2, 2), copied_state(hollow)), (hollow, full), (hollow, copied_state(hollow))):
        with pytest.raises(WeightsMismatchError, match=r"weight is float32\[2, 2\].* without content"):
            take_weights(modules, weights)
    with pytest.raises(WeightsMismatchError, match=r"bias is .* in the weights and of no shape yet in the modules"):
        take_weights(nn.LazyLinear(2), full)
    with pytest.raises(WeightsMismatchError, match="bias is a dict in the weights and float32"):
        take_weights(nn.Linear(2, 2), {**full, "bias": {}})  # pyright: ignore[reportArgumentType] - of whatever a mapping holds


# --- from a folder or file


@pytest.mark.parametrize("ema", [None, 0.5])
def test_a_folder_gives_its_best_and_its_newest_weights(tmp_path: Path, ema: float | None) -> None:
    left = copied_state(trained_into(tmp_path, ema=ema))
    best, newest = (Checkpoints(tmp_path).weights(which) for which in ("best", "newest"))
    assert best.keys() == newest.keys() == {"layer.weight", "layer.bias"}
    assert torch.equal(newest["layer.weight"], left["weight"])
    assert not torch.equal(best["layer.weight"], newest["layer.weight"])
    assert same(Checkpoints(tmp_path).weights(), best)
    start = nn.Linear(3, 1)
    take_weights({"layer": start}, best)
    assert torch.equal(start.weight, best["layer.weight"])


def test_another_training_reads_weights_without_the_lock_the_settings_or_the_optimizer(tmp_path: Path) -> None:
    trained_into(tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
    with Checkpoints(tmp_path, settings={"another": "training"}).open():
        held = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
        assert Checkpoints(tmp_path, settings={"mine": 1}).weights("newest")
        assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")} == held
    assert {path.name for path in before} == {path.name for path in tmp_path.rglob("*")}


def test_a_folder_that_may_not_be_written_can_be_read(tmp_path: Path) -> None:
    trained_into(tmp_path / "run")
    places = [path for path in (tmp_path / "run").rglob("*") if path.is_dir()] + [tmp_path / "run"]
    for place in places:
        place.chmod(0o555)
    try:
        assert Checkpoints(tmp_path / "run").weights()
    finally:
        for place in places:
            place.chmod(0o755)


def test_a_damaged_checkpoint_is_named_and_no_older_one_taken_in_its_place(tmp_path: Path) -> None:
    trained_into(tmp_path)
    older, newest = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    content = newest / "modules.safetensors"
    content.write_bytes(content.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=rf"{newest.name}.*modules.safetensors has \d+ bytes.*remove it to use"):
        Checkpoints(tmp_path).weights("newest")
    for path in sorted(newest.iterdir()):
        path.unlink()
    newest.rmdir()
    assert torch.equal(
        Checkpoints(tmp_path).weights("newest")["layer.weight"],
        load_file(older / "modules.safetensors")["layer.weight"],
    )


def test_a_checkpoint_whose_state_was_changed_is_damaged_though_it_is_never_read(tmp_path: Path) -> None:
    trained_into(tmp_path)
    newest = max(path for path in tmp_path.iterdir() if path.is_dir())
    (newest / "state.pt").write_bytes(b"anything")
    with pytest.raises(CheckpointError, match=r"state\.pt has 8 bytes"):
        Checkpoints(tmp_path).weights()


def test_a_checkpoint_that_a_running_training_removes_meanwhile_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_into(tmp_path, windows=2)
    checkpoints = Checkpoints(tmp_path)
    (first,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    listed = checkpoints._list_entries()
    first.rename(tmp_path / "window-000000009")
    answers = iter([listed])
    looked = checkpoints._list_entries
    monkeypatch.setattr(checkpoints, "_list_entries", lambda: next(answers, None) or looked())
    assert checkpoints.weights("newest")


def test_a_missing_checkpoint_or_best_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        Checkpoints(tmp_path / "nowhere").weights()
    assert not (tmp_path / "nowhere").exists()
    trained_into(tmp_path / "run", stalls=False)
    with pytest.raises(NoBestWeightsError, match="no value was recorded"):
        Checkpoints(tmp_path / "run").weights("best")
    assert Checkpoints(tmp_path / "run").weights("newest")


def test_a_file_of_ones_own_is_a_source_too(tmp_path: Path) -> None:
    source, target = network(), network()
    save_file(copied_state(source), tmp_path / "mine.safetensors")
    take_weights(
        {"network": target}, {f"network.{name}": t for name, t in load_file(tmp_path / "mine.safetensors").items()}
    )
    assert same(copied_state(target), copied_state(source))


# --- shared storage


def sharing() -> nn.ModuleDict:
    """Two layers whose weights are different parameters of one storage."""
    layers = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    layers["b"].weight = nn.Parameter(layers["a"].weight.data)  # pyright: ignore[reportArgumentType]  a layer of torch
    return layers


def test_weights_in_one_memory_that_are_to_differ_are_refused() -> None:
    layers = sharing()
    before = copied_state(layers)
    with pytest.raises(
        WeightsMismatchError, match=r"sharing memory in the modules, but with different values: a\.weight and b\.weight"
    ):
        take_weights(layers, {"a.weight": torch.ones(2, 2), "b.weight": torch.zeros(2, 2)})
    assert same(copied_state(layers), before)
    take_weights(layers, {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2)})
    assert copied_state(layers)["b.weight"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_weights_of_a_module_within_another_have_one_name() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    modules: dict[str, nn.Module] = {"net": net, "norm": net[1]}
    weights = list_named_tensors(modules)
    assert {name.partition(".")[0] for name in weights} == {"net"}
    assert set(take_weights(modules, weights).reused) == set(weights)


def test_weights_may_be_offered_as_views_of_the_modules_themselves() -> None:
    layers = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    before = copied_state(layers)
    views = layers.state_dict()
    take_weights(layers, {"a.weight": views["b.weight"], "b.weight": views["a.weight"]})
    assert torch.equal(copied_state(layers)["a.weight"], before["b.weight"])
    assert torch.equal(copied_state(layers)["b.weight"], before["a.weight"])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused_by_name(value: float) -> None:
    layer = nn.Linear(2, 1)
    with pytest.raises(WeightsMismatchError, match=r"bias holds values that are not finite"):
        take_weights(layer, {"weight": torch.ones(1, 2), "bias": torch.tensor([value])})


def test_other_weights_than_the_best_or_the_newest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="which is 'last'; it must be 'best' or 'newest'"):
        Checkpoints(tmp_path).weights("last")  # pyright: ignore[reportArgumentType]  the mistake
