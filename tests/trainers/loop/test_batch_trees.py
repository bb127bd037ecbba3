"""Batch trees: moved with their types, split only where that is correct, and refused if they hide tensors.

The device `meta` stands in for a GPU, so that a tensor left behind shows by its device.
"""

from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, Self

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from trainers.loop import ContractError, IterableSource, Loop, Loss, Phase, ResidentSource, SampleSplitter
from trainers.loop.data.tree import check_tree, describe, map_tensors, move

META = torch.device("meta")


class Named(NamedTuple):
    x: Tensor
    note: str


class Edges(NamedTuple):
    """A field may have any name, also that of a method."""

    of: Tensor
    to: Tensor


@dataclass(frozen=True)
class Frozen:
    x: Tensor
    note: str = "a note"


@dataclass
class Counted:
    x: Tensor
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.x)


@dataclass(frozen=True, slots=True)
class SelfMoving:
    """A dataclass with its own `to` method, which is used."""

    x: Tensor
    moves: int = 0

    def to(self, device: torch.device) -> "SelfMoving":
        return SelfMoving(self.x.to(device), self.moves + 1)


class Labelled(dict[str, Any]):
    """A dict with an attribute."""

    label = "none"


class Encoding(UserDict[str, Any]):
    """An encoding that moves itself in place, like those of transformers."""

    def to(self, device: torch.device) -> Self:
        self.data = {name: tensor.to(device) for name, tensor in self.data.items()}
        return self


class Data:
    """A graph object with opaque attributes."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: torch.device) -> "Data":
        return Data(self.x.to(device))


class Plain:
    def __init__(self, x: object) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: object) -> None:
        self.x = x


def rows() -> Tensor:
    return torch.arange(4.0)


def labelled() -> Labelled:
    batch = Labelled(x=rows())
    batch.label = "west"
    return batch


def device_of(tree: Any) -> str:
    """Device of the batch's x."""
    return (tree["x"] if isinstance(tree, dict | UserDict | MappingProxyType) else tree.x).device.type


MOVED: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"x": rows()},
    "OrderedDict": lambda: OrderedDict[str, Any](b=1, x=rows()),
    "defaultdict": lambda: defaultdict[str, Any](list, x=rows()),
    "UserDict": lambda: UserDict(x=rows()),
    "a dict of one's own": labelled,
    "MappingProxyType": lambda: MappingProxyType({"x": rows()}),
    "NamedTuple": lambda: Named(rows(), "a note"),
    "frozen dataclass": lambda: Frozen(rows()),
    "dataclass with a computed field": lambda: Counted(rows()),
    "dataclass with .to": lambda: SelfMoving(rows()),
    "UserDict with .to": lambda: Encoding(x=rows()),
    "object with .to": lambda: Data(rows()),
}


@pytest.mark.parametrize("make", MOVED.values(), ids=MOVED.keys())
def test_a_batch_is_moved_and_keeps_its_type(make: Callable[[], Any]) -> None:
    check_tree(make())
    (moved,), before = move([make()], META), make()
    assert type(moved) is type(before)
    assert device_of(moved) == "meta"


def test_what_a_batch_holds_besides_its_tensors_is_kept() -> None:
    moved = move(MOVED["defaultdict"](), META)
    assert moved["new"] == []
    assert list(move(MOVED["OrderedDict"](), META)) == ["b", "x"]
    assert move(labelled(), META).label == "west"
    assert move(Counted(rows()), META).count == 4
    assert move(SelfMoving(rows()), META).moves == 1


def test_a_batch_of_dicts_is_not_changed_when_it_is_moved() -> None:
    for make in (MOVED["UserDict"], MOVED["OrderedDict"], labelled):
        batch = make()
        move(batch, META)
        assert device_of(batch) == "cpu"


def packed() -> PackedSequence:
    return pack_sequence([torch.ones(2, 3), torch.ones(1, 3)])


def test_packed_sequences_move_themselves() -> None:
    moved: dict[str, Any] = move({"words": packed(), "y": rows()}, META)
    assert isinstance(moved["words"], PackedSequence)
    assert moved["words"].data.device.type == moved["y"].device.type == "meta"


def test_a_field_named_to_is_no_method() -> None:
    moved = move(Edges(rows(), rows()), META)
    assert moved.of.device.type == moved.to.device.type == "meta"


def recursive() -> SimpleNamespace:
    loop = SimpleNamespace()
    loop.itself = loop
    loop.x = rows()
    return loop


HIDDEN: dict[str, Callable[[], Any]] = {
    "SimpleNamespace": lambda: SimpleNamespace(mask=rows()),
    "Plain": lambda: Plain(rows()),
    "Slotted": lambda: Slotted({"deep": [rows()]}),
    "set": lambda: {rows()},
    "frozenset": lambda: frozenset({rows()}),
    "deque": lambda: deque([rows()]),
    "sort": lambda: torch.sort(rows()),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_immovable_tensors_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ContractError, match=rf"^batch\['a'\]\[1\] is a {kind} that holds tensors"):
        check_tree({"a": (1, HIDDEN[kind]())})


def test_an_object_that_refers_to_itself_is_looked_at_only_so_deep() -> None:
    with pytest.raises(ContractError, match="SimpleNamespace that holds tensors"):
        check_tree(recursive())


@pytest.mark.parametrize(
    "leaf",
    [SimpleNamespace(name="a"), "text", 3, None, {1, 2}, Plain(nn.Linear(2, 2)), Plain(torch), rows, torch.Size([3])],
)
def test_things_without_tensors_stay_what_they_are(leaf: object) -> None:
    batch = {"x": rows(), "leaf": leaf}
    check_tree(batch)
    assert move(batch, META)["leaf"] is leaf


@dataclass
class Masked:
    mask: object


def train_on(batches: list[Any], *, scored: list[Any]) -> None:
    """Validate on some batches and train on others; the network ignores them."""
    net = nn.Linear(1, 1)

    def loss(_: Any) -> Loss:
        return Loss(net(torch.ones(1, 1)).mean(), 1)

    phase = Phase("main", loss, net.parameters(), torch.optim.SGD(net.parameters()))
    with Loop([phase], modules={"net": net}, device="cpu").running() as run:
        run.validate(loss, IterableSource(scored))
        list(run.epochs(IterableSource(batches), max_epochs=1))


def test_on_any_machine_a_training_refuses_them_and_says_where() -> None:
    batches = [(rows(),), (rows(),), {"x": Masked(SimpleNamespace(y=rows()))}]
    with pytest.raises(ContractError, match=r"^batch\['x'\]\.mask is a SimpleNamespace") as refused:
        train_on(batches, scored=[(rows(),)])
    assert "phase 'main', epoch 0, window 2" in str(refused.value)


def test_a_validation_refuses_them_too() -> None:
    with pytest.raises(ContractError, match=r"batch is a deque that holds tensors.*'validation'"):
        train_on([rows()], scored=[deque([rows()])])


# --- cut -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["OrderedDict", "defaultdict", "UserDict", "frozen dataclass", "dataclass with .to"])
def test_containers_are_cut_and_keep_their_type(kind: str) -> None:
    batch = MOVED[kind]()
    assert SampleSplitter().samples(batch) == 4
    micro_batch = SampleSplitter().cut(batch, 1, 3)
    assert type(micro_batch) is type(batch)
    assert (micro_batch["x"] if isinstance(micro_batch, dict | UserDict) else micro_batch.x).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("make", [packed, MOVED["UserDict with .to"], MOVED["object with .to"]])
def test_batches_with_an_object_that_moves_itself_are_not_cut(make: Callable[[], Any]) -> None:
    assert SampleSplitter().samples(make()) == 1
    assert SampleSplitter().samples((make(), rows())) == 1


def test_a_packed_sequence_whose_tensors_are_of_one_length_is_not_cut() -> None:
    assert SampleSplitter().samples(pack_sequence([torch.ones(3, 3)])) == 1


def test_data_that_stays_in_memory_keeps_its_type_and_must_be_taken_apart() -> None:
    (batch,) = ResidentSource.of(OrderedDict(x=rows()), batch_size=4).batches(0)
    assert type(batch) is OrderedDict
    with pytest.raises(ContractError, match=r"batch\[0\] PackedSequence"):
        ResidentSource.of((packed(), rows()), batch_size=2)


def test_a_description_names_what_moves_itself() -> None:
    assert describe((rows(), Data(rows()))) == "batch[0] float32[4], batch[1] Data"


def test_mapping_the_tensors_of_an_object_that_moves_itself_leaves_it_alone() -> None:
    data = Data(rows())
    assert map_tensors([data, rows()], lambda tensor: tensor + 1)[0] is data


@dataclass(frozen=True)
class ScalingBatch:
    """A batch class that computes in its constructor and is completed afterwards."""

    pixels: Tensor
    unit: InitVar[float] = 255.0
    mask: Tensor = field(init=False, default_factory=lambda: torch.ones(4))
    late: Tensor = field(init=False)

    def __post_init__(self, unit: float) -> None:
        object.__setattr__(self, "pixels", self.pixels / unit)


def test_a_dataclass_is_not_reconstructed_when_its_tensors_are_mapped() -> None:
    batch = ScalingBatch(torch.full((4,), 255.0))
    object.__setattr__(batch, "mask", torch.zeros(4))
    same = map_tensors(batch, Tensor.clone)
    assert same.pixels.tolist() == [1.0] * 4
    assert same.mask.tolist() == [0.0] * 4
    assert not hasattr(same, "late")
    assert batch.pixels is not same.pixels


def test_a_dataclass_that_computes_its_fields_is_not_cut() -> None:
    assert SampleSplitter().samples(Frozen(rows())) == 4
    assert SampleSplitter().samples(Counted(rows())) == 1
    assert SampleSplitter().samples([ScalingBatch(torch.ones(4))]) == 1
    with pytest.raises(ContractError, match=r"its __post_init__|tensors of one common first dimension"):
        ResidentSource.of(Counted(rows()), batch_size=2)


class ReturnlessBatch:
    """A batch whose `to` returns None."""

    def __init__(self) -> None:
        self.x = torch.ones(2)

    def to(self, device: torch.device) -> None:
        self.x = self.x.to(device)


def test_what_moves_itself_and_returns_nothing_is_named() -> None:
    with pytest.raises(ContractError, match=r"the method \.to\(device\) of a ReturnlessBatch returned None"):
        move([ReturnlessBatch()], META)
