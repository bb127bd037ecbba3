"""Damaged and forged artifacts: each raises an ArtifactError that names the file and the cause.

`rewrite` corrects the digests where a forgery must reach the checks behind them.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from artifacts import save_artifact, save_small_artifact, small_artifact
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from predictor import artifact
from predictor.artifact import CONTENTS, DIGEST, MANIFEST, REPLACE_ADVICE
from predictor.errors import ArtifactError
from predictor.registry import Runtime, load_model

WEIGHTS, FEATURES, ARRAYS = "weights.safetensors", "features.json", "golden/arrays.safetensors"
EVERY_FILE = (MANIFEST, DIGEST, *CONTENTS)
Entry = dict[str, Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_artifact(tmp_path_factory.mktemp("sound") / "1")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "1"))


def rewrite(folder: Path, name: str, data: bytes) -> None:
    """Replace a file and correct all digests, as a forger would."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    if name != MANIFEST:
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / MANIFEST).write_text(json.dumps(manifest))
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    (folder / DIGEST).write_text(f"{digest}  {MANIFEST}\n")


def forge_manifest(folder: Path, change: Callable[[Entry], object]) -> None:
    """Change values in the manifest and correct the digests."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    change(manifest)
    text = json.dumps(manifest).encode()
    (folder / MANIFEST).write_bytes(text)
    (folder / DIGEST).write_text(f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n")


def forge_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change tensors and correct the digests."""
    weights = load_tensors((folder / WEIGHTS).read_bytes())
    change(weights)
    rewrite(folder, WEIGHTS, save_tensors(weights))


def load_error(folder: Path) -> str:
    """The error message when the artifact is loaded as a served model."""
    with pytest.raises(ArtifactError) as caught:
        load_model(folder, ("small", 1), Runtime(torch.device("cpu"), 256))
    return caught.value.message


def test_the_forgers_tools_alone_do_no_damage(folder: Path) -> None:
    rewrite(folder, WEIGHTS, (folder / WEIGHTS).read_bytes())
    forge_manifest(folder, lambda manifest: manifest)
    assert load_model(folder, ("small", 1), Runtime(torch.device("cpu"), 256)).identity.name == "small"


# --- accidents


@pytest.mark.parametrize("name", EVERY_FILE)
def test_one_flipped_bit_anywhere_is_found(folder: Path, name: str) -> None:
    path, random = folder / name, np.random.default_rng(7)
    whole = path.read_bytes()
    for _ in range(25):
        at, bit = int(random.integers(len(whole))), int(random.integers(8))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError) as caught:
            artifact.load(folder)
        assert caught.value.message.startswith(f"{MANIFEST if name == DIGEST else name}: ")
        assert "SHA-256" in caught.value.message


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_file_cut_anywhere_is_found(folder: Path, name: str) -> None:
    path, random = folder / name, np.random.default_rng(8)
    whole = path.read_bytes()
    for length in (0, 1, len(whole) - 1, *random.integers(len(whole), size=10).tolist()):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError) as caught:
            artifact.load(folder)
        assert caught.value.message.startswith(f"{MANIFEST if name == DIGEST else name}: ")


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert load_error(folder) == f"{name}: the file is missing; {REPLACE_ADVICE}"


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_link_in_place_of_a_file_is_named(folder: Path, name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    assert load_error(folder).startswith(f"{name}: is a link")


def test_a_link_in_place_of_the_golden_folder_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "golden").rename(tmp_path / "elsewhere")
    (folder / "golden").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert load_error(folder) == "golden: is a link; an artifact holds its files, not links to them"


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_folder_in_place_of_a_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    assert load_error(folder) == f"{name}: the file is missing; {REPLACE_ADVICE}"


def test_a_stranger_file_is_named(folder: Path) -> None:
    (folder / "golden" / "more.py").write_text("print()")
    assert load_error(folder) == "golden/more.py: does not belong to the artifact"


def test_a_stranger_folder_is_named(folder: Path) -> None:
    (folder / "cache").mkdir()
    assert load_error(folder) == "cache: does not belong to the artifact"


def test_a_link_to_a_folder_is_a_stranger(folder: Path, tmp_path: Path) -> None:
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    assert load_error(folder) == "linked: does not belong to the artifact"


@pytest.mark.parametrize("name", [name for name in EVERY_FILE if name.endswith(".json")])
def test_a_text_larger_than_any_is_not_read(folder: Path, name: str) -> None:
    with (folder / name).open("r+b") as file:
        file.truncate(17 << 20)
    assert load_error(folder) == f"{name}: is larger than {16 << 20} bytes"


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = Path.read_bytes

    def broken(path: Path) -> bytes:
        if path.name == WEIGHTS:
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", broken)
    assert load_error(folder) == f"{WEIGHTS}: cannot be read: Permission denied"


# --- forged weights


def _poisoned(weights: dict[str, Tensor]) -> None:
    weights["context.mix.bias"][3] = torch.nan


def _endless(weights: dict[str, Tensor]) -> None:
    weights["context.mix.bias"][3] = torch.inf


FORGED_WEIGHTS: Sequence[tuple[Callable[[dict[str, Tensor]], object], str]] = [
    (lambda w: w.update(extra=torch.zeros(1)), "unknown weights extra"),
    (lambda w: w.pop("context.mix.bias"), "missing weights context.mix.bias"),
    (
        lambda w: w.update({"context.mix.bias": torch.zeros(9)}),
        "context.mix.bias is torch.float32 [9], expected torch.float32 [8]",
    ),
    (lambda w: w.update({"context.mix.bias": torch.zeros(0)}), "context.mix.bias is torch.float32 [0]"),
    (lambda w: w.update({"context.mix.bias": w["context.mix.bias"].double()}), "context.mix.bias is torch.float64"),
    (lambda w: w.update({"context.mix.bias": w["context.mix.bias"].bfloat16()}), "context.mix.bias is torch.bfloat16"),
    (_poisoned, "context.mix.bias holds a value that is not finite"),
    (_endless, "context.mix.bias holds a value that is not finite"),
]


@pytest.mark.parametrize(("change", "cause"), FORGED_WEIGHTS)
def test_weights_of_another_network_are_refused(
    folder: Path, change: Callable[[dict[str, Tensor]], object], cause: str
) -> None:
    forge_weights(folder, change)
    message = load_error(folder)
    assert message.startswith(f"{WEIGHTS}: ")
    assert cause in message


# --- forged graphs


@pytest.fixture(scope="module")
def sound_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_artifact(tmp_path_factory.mktemp("sound") / "1", "graph")


@pytest.fixture
def graph(sound_graph: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_graph, tmp_path / "1"))


def _edge(stock: int, neighbour: int) -> Callable[[dict[str, Tensor]], None]:
    def change(weights: dict[str, Tensor]) -> None:
        weights["neighbours"][stock, 0] = neighbour

    return change


FORGED_EDGES: Sequence[tuple[Callable[[dict[str, Tensor]], object], str]] = [
    (_edge(0, 4), "neighbours: an edge leads to stock 4, but there are 4"),
    (_edge(1, 2**62), "neighbours: an edge leads to stock 4611686018427387904"),
    (_edge(2, -2), "neighbours: an edge leads to stock -2"),
    (_edge(3, 3), "neighbours: an edge leads from a stock to itself"),
    (lambda w: w["weights"][0].fill_(torch.nan), "weights holds a value that is not finite"),
    (lambda w: w.update(neighbours=w["neighbours"].float()), "neighbours is torch.float32 [4, 2]"),
    (lambda w: w.update(neighbours=w["neighbours"][:3]), "neighbours is torch.int64 [3, 2]"),
    (lambda w: w.pop("neighbours"), "missing weights neighbours"),
]


@pytest.mark.parametrize(("change", "cause"), FORGED_EDGES)
def test_edges_that_cannot_be_are_refused(
    graph: Path, change: Callable[[dict[str, Tensor]], object], cause: str
) -> None:
    forge_weights(graph, change)
    assert load_error(graph).startswith(f"{WEIGHTS}: {cause}")


@pytest.mark.parametrize(
    ("universe", "cause"),
    [
        (["AAPL", "GOOG", "IBM"], "[4, 2], expected torch."),
        (["AAPL", "GOOG", "IBM", "AAPL"], "universe: AAPL appears twice"),
        ([], "universe has 0 symbols, but network 'graph' needs at least one"),
        ([1, 2, 3, 4], "universe"),
    ],
)
def test_a_universe_that_cannot_be_is_refused(graph: Path, universe: list[object], cause: str) -> None:
    forge_manifest(graph, _set("universe", value=universe))
    assert cause in load_error(graph)


@pytest.mark.parametrize("length", [10**10, 2**62])
@pytest.mark.parametrize("kind", ["graph", "tft"])
def test_an_encoder_that_no_memory_holds_is_refused_before_it_is_built(kind: str, length: int, tmp_path: Path) -> None:
    folder = save_small_artifact(tmp_path / kind, kind)
    forge_manifest(folder, _set("encoder_length", value=length))
    assert load_error(folder) == f"manifest.json: encoder length is {length} sessions, but must be 1 to 2500"


def _safetensors(header: bytes, *, claimed: int | None = None, body: bytes = b"") -> bytes:
    return (len(header) if claimed is None else claimed).to_bytes(8, "little") + header + body


def _entries(count: int) -> bytes:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return json.dumps({f"{k}": entry for k in range(count)}, separators=(",", ":")).encode()


FORGED_TENSORS: Mapping[str, tuple[bytes, str]] = {
    "empty file": (b"", "header claims"),
    "half a length": (b"\x08\x00", "header claims"),
    "header beyond the file": (_safetensors(b"{}", claimed=900), "header claims 900 bytes"),
    "header of 2^63 bytes": (_safetensors(b"{}", claimed=2**63), "header claims"),
    "header of 2 MiB": (_safetensors(b"{" + b" " * (2 << 20) + b"}"), "at most 1048576 are read"),
    "10 001 entries": (_safetensors(_entries(10_001)), "at most 10000 entries"),
    "no JSON": (_safetensors(b"[1,"), "is not strict JSON"),
    "nested too deep": (_safetensors(b"[" * 100_000 + b"]" * 100_000), "nested deeper"),
    "no object": (_safetensors(b"[]"), "must be an object"),
    "a name twice": (_safetensors(b'{"a":1,"a":2}'), "appears twice"),
    "no entries": (_safetensors(b'{"a":7}'), ""),
    "body too short": (
        _safetensors(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', body=b"\0" * 4),
        "",
    ),
    "overlapping tensors": (
        _safetensors(
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}',
            body=b"\0" * 6,
        ),
        "",
    ),
    "unknown numbers": (
        _safetensors(b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', body=b"\0" * 4),
        "",
    ),
    "numbers that few know": (
        _safetensors(b'{"a":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]}}', body=b"\0" * 4),
        "",
    ),
}


@pytest.mark.parametrize("name", [WEIGHTS, ARRAYS])
@pytest.mark.parametrize("forgery", FORGED_TENSORS)
def test_a_forged_tensor_file_is_refused(folder: Path, name: str, forgery: str) -> None:
    data, cause = FORGED_TENSORS[forgery]
    rewrite(folder, name, data)
    message = load_error(folder)
    assert message.startswith(f"{name}: ")
    assert cause in message


# --- forged texts


def _set(*path: str, value: object) -> Callable[[Entry], None]:
    def change(manifest: Entry) -> None:
        place = manifest
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


FORGED_MANIFESTS: Sequence[tuple[Callable[[Entry], object], str]] = [
    (_set("format", value="other"), "format is 'other', expected 'quantra-artifact'"),
    (_set("format_version", value=3), "format version is 3, this program reads 2; update quantra"),
    (_set("format_version", value="1"), "format_version"),
    (_set("network", "kind", value="prophet"), "unknown network kind 'prophet'"),
    (_set("network", "kind_version", value=9), "network 'lstm' is version 9"),
    (_set("network", "config", "depth", value=1), "has no setting 'depth'"),
    (_set("network", "config", "hidden", value="8"), "hidden is '8'"),
    (_set("network", "config", "hidden", value=10**12), "hidden is 1000000000000"),
    (_set("network", "config", "hidden", value=[8]), "network config must hold only numbers, texts and booleans"),
    (_set("network", "config", value=[]), "config must be an object"),
    (_set("network", "arithmetic", "norm_epsilon", value=1e-6), "network.arithmetic is not that of 'lstm' version 1"),
    (_set("network", "arithmetic", "gates", value="forget first"), "network.arithmetic is not that of"),
    (_set("calendar", "last", value=20991231), "calendar is {'first': 20000101, 'last': 20991231"),
    (_set("stranger", value=1), "stranger"),
    (_set("target", "stranger", value=1), "stranger"),
    (_set("target", "kind", value="price"), "'price'"),
    (_set("target", "horizons", value=[5, 1]), "horizons are [5, 1]"),
    (_set("target", "lag", value=True), "lag"),
    (_set("quantiles", value=[0.9, 0.5, 0.1]), "ascending levels"),
    (_set("normaliser", "decay", value=7), "decay is 7"),
    (_set("normaliser", "window", value=10**15), "golden instance"),
    (_set("encoder_length", value=0), "encoder length is 0"),
    (_set("encoder_length", value=10**15), "encoder length is 1000000000000000 sessions, but must be 1 to 2500"),
    (_set("conformal", "offsets", value=[[0, 0, 0]]), "4 rows of 3 numbers"),
    (_set("conformal", "offsets", value=[0, 0, 0, 0]), "offsets"),
    (_set("baseline", "scale", value=0), "baseline.scale is 0, expected a list"),
    (_set("baseline", "scale", value=[0, 0, 0, 0]), "scale 0"),
    (_set("baseline", "scale", value=[0.02]), "scale must have 4 numbers each"),
    (_set("minimum", "encoder_share", value=0), "encoder_share is 0 and"),
    (_set("minimum", "values", value=0), "and values is 0,"),
    (_set("minimum", "encoder_share", value=1), "golden instance"),
    (_set("normaliser", "kind", value="guess"), "is 'guess', but must be 'window' or 'fitted'"),
    (_set("normaliser", "kind", value="fitted"), "har_share"),
    (_set("baseline", "known", value=[0.0]), "golden instance"),
    (_set("card", value=[]), "card must be an object"),
    (_set("universe", value=["AAPL"]), "universe has 1 symbols, but network 'lstm' needs none"),
    (_set("schema_hash", value="0" * 64), "schema_hash is 0000"),
    (_set("files", "../../etc/passwd", value={"bytes": 1, "sha256": ""}), "lists files"),
    (_set("files", WEIGHTS, "mode", value=1), "mode"),
    (lambda manifest: manifest.pop("card"), "card"),
    (lambda manifest: manifest["files"].pop(WEIGHTS), "lists files"),
]


@pytest.mark.parametrize(("change", "cause"), FORGED_MANIFESTS)
def test_a_forged_manifest_is_refused(folder: Path, change: Callable[[Entry], object], cause: str) -> None:
    forge_manifest(folder, change)
    assert cause in load_error(folder)


FORGED_SCALES: Sequence[tuple[Callable[[Entry], object], str]] = [
    (_set("normaliser", "kind", value="window"), "decay"),
    (_set("normaliser", "har_share", value=2), "share of HAR is 2"),
    (_set("normaliser", "window", value=10**15), "must be 60 to 2500"),
    (_set("normaliser", "window", value=138), "golden instance"),
    (_set("normaliser", "floor", value=1), "floor is 1"),
    (_set("normaliser", "har", "sessions", value=[1, 5, 22, 10**9]), "must be 1000000000 to 2500"),
    (_set("normaliser", "har", "sessions", value=[5, 1, 22, 60]), "but must ascend from at least 1"),
    (_set("normaliser", "har", "intercepts", value=[0.1]), "HAR has 1 intercepts"),
    (_set("normaliser", "har", "intercepts", value=[0.1, 0.1, 0.1, 0.2]), "golden instance"),
    (_set("normaliser", "har", "weights", value=[[0.1] * 4]), "HAR has 4 intercepts for 1 horizons"),
    (_set("normaliser", "har", "stranger", value=1), "stranger"),
    (_set("normaliser", "garch", "alpha", value=0.2), "their sum below 1"),
    (_set("normaliser", "garch", "reversion", value=[1, 1]), "must be 4 numbers, one per horizon"),
    (lambda manifest: manifest["normaliser"].pop("garch"), "share of HAR is 0.6"),
]


@pytest.fixture(scope="module")
def fitted_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact whose scale is a mix of HAR and GARCH."""
    return save_artifact(tmp_path_factory.mktemp("fitted") / "1", small_artifact(fitted=True))


@pytest.mark.parametrize(("change", "cause"), FORGED_SCALES)
def test_a_forged_scale_is_refused(
    fitted_artifact: Path, tmp_path: Path, change: Callable[[Entry], object], cause: str
) -> None:
    folder = Path(shutil.copytree(fitted_artifact, tmp_path / "1"))
    forge_manifest(folder, change)
    assert cause in load_error(folder)


SPOILED_TEXTS: Sequence[tuple[Callable[[bytes], bytes], str]] = [
    (lambda text: text.replace(b"{", b'{"twice": 1, "twice": 2, ', 1), "twice"),
    (lambda text: text.replace(b"{", b'{"number": NaN, ', 1), "NaN"),
    (lambda text: text.replace(b"{", b'{"number": 1e999, ', 1), ""),
    (lambda text: b"\xef\xbb\xbf" + text, ""),
    (lambda text: text.replace(b"{", b'{"text": "\xff", ', 1), ""),
    (lambda text: text.replace(b"{", b'{"unknown": 1, ', 1), "unknown"),
    (lambda _: b"[]", ""),
    (lambda _: b"", ""),
    (lambda _: b"[" * 200_000, ""),
]


@pytest.mark.parametrize("name", [name for name in EVERY_FILE if name.endswith(".json")])
@pytest.mark.parametrize(("spoil", "cause"), SPOILED_TEXTS)
def test_json_that_two_readers_could_understand_differently_is_refused(
    folder: Path, name: str, spoil: Callable[[bytes], bytes], cause: str
) -> None:
    text = spoil((folder / name).read_bytes())
    if name == MANIFEST:
        (folder / MANIFEST).write_bytes(text)
        (folder / DIGEST).write_text(f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n")
    else:
        rewrite(folder, name, text)
    message = load_error(folder)
    assert message.startswith(name)
    assert cause in message


def test_an_invalid_fitted_number_is_refused(folder: Path) -> None:
    features = json.loads((folder / FEATURES).read_bytes())
    features["scaling"]["scale"][0] = 0.0
    text = json.dumps(features).encode()
    rewrite(folder, FEATURES, text)
    assert load_error(folder).startswith(f"{FEATURES}: ")


def test_golden_arrays_of_another_shape_are_refused(folder: Path) -> None:
    arrays = artifact.load(folder).golden.arrays
    rewrite(folder, ARRAYS, save_arrays({**arrays, "stage.units": np.zeros((1, 1), np.float32)}))
    assert "stage units has shape (5, 4, 3), recorded was (1, 1)" in load_error(folder)


def test_a_missing_golden_array_is_named(folder: Path) -> None:
    arrays = dict(artifact.load(folder).golden.arrays)
    del arrays["bars.close"]
    rewrite(folder, ARRAYS, save_arrays(arrays))
    assert load_error(folder) == f"{ARRAYS}: golden instance: array 'bars.close' is missing"


def test_golden_bars_that_no_market_made_are_refused(folder: Path) -> None:
    arrays = dict(artifact.load(folder).golden.arrays)
    rewrite(folder, ARRAYS, save_arrays({**arrays, "bars.high": -arrays["bars.high"].astype(np.float64)}))
    assert load_error(folder).startswith(f"{ARRAYS}: golden instance: is rejected: ODD")
