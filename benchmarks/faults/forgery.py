"""Files that somebody made up, with every digest right: pickles that act, tensors that lie, archives that unpack."""

import hashlib
import io
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
META: Final = "meta.json"
CHUNK: Final = 1 << 20

# --- that acts when it is unpickled


def acting(marker: Path) -> bytes:
    """A pickle that makes a folder when it is read: protocol 0, by hand."""
    return b"cos\nmkdir\n(V" + str(marker).encode() + b"\ntR."


def archive_of(pickled: bytes, numbers: Mapping[str, int], method: int = ZIP_STORED) -> bytes:
    """The archive that torch reads, of this pickle and storages of so many zero bytes."""
    file = io.BytesIO()
    with ZipFile(file, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        for name, size in numbers.items():
            with archive.open(f"archive/data/{name}", "w", force_zip64=True) as member:
                for _ in range(size // CHUNK):
                    member.write(bytes(CHUNK))
                member.write(bytes(size % CHUNK))
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


# --- that claims more than it is


def one_tensor(elements: int, *, stride: int, stored: int) -> bytes:
    """The pickle of {"a": tensor} as torch writes it: float32, so many elements over a storage of `stored` numbers."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpu" + _integer(stored) + b"tQ"
    shape = _integer(elements) + b"\x85" + _integer(stride) + b"\x85"
    hooks = b"ccollections\nOrderedDict\n)R"
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + shape + b"\x89" + hooks + b"tR"
    return b"\x80\2}X\1\0\0\0a" + rebuilt + b"s."


def _integer(value: int) -> bytes:
    """LONG1, which takes any."""
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def expanded(elements: int) -> bytes:
    """A tensor of so many elements that are all one number."""
    return archive_of(one_tensor(elements, stride=0, stored=1), {"0": 4})


def compressed(size: int) -> bytes:
    """A tensor of so many bytes of zeros, compressed."""
    return archive_of(one_tensor(size // 4, stride=1, stored=size // 4), {"0": size}, ZIP_DEFLATED)


# --- tensors that lie

Entry = Mapping[str, object]


def tensors(entries: Mapping[str, Entry], body: bytes = b"", *, claimed: int | None = None) -> bytes:
    """A safetensors file of these entries, whatever they say."""
    header = json.dumps(entries, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header) if claimed is None else claimed) + header + body


def entry(dtype: str, shape: list[int], start: int, end: int) -> Entry:
    """What a header says of a tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def many_names(count: int) -> bytes:
    """A header of so many empty tensors."""
    return tensors({f"layer.{k}": entry("F32", [0], 0, 0) for k in range(count)})


def lying() -> Iterator[tuple[str, bytes]]:
    """Headers that say what cannot be, by what they say."""
    one = entry("F32", [1], 0, 4)
    yield "overlapping tensors", tensors({"a": one, "b": entry("F32", [1], 2, 6)}, b"\0" * 6)
    yield "a tensor beyond the file", tensors({"a": entry("F32", [1 << 20], 0, 4 << 20)}, b"\0" * 8)
    yield "2^62 elements in 4 bytes", tensors({"a": entry("F32", [1 << 62], 0, 4)}, b"\0" * 4)
    yield "a shape whose product wraps round", tensors({"a": entry("F32", [1 << 32, 1 << 32], 0, 0)})
    yield "an end before its start", tensors({"a": entry("F32", [1], 4, 0)}, b"\0" * 4)
    yield "a header of 2^63 bytes", tensors({"a": one}, b"\0" * 4, claimed=1 << 63)
    yield "a header beyond the file", tensors({"a": one}, b"\0" * 4, claimed=1 << 16)
    yield "no header at all", b"\1\0\0"
    yield "bytes that no one claims", tensors({"a": one}, b"\0" * 64)


def not_a_number(data: bytes) -> bytes:
    """The same tensors; the first float32 of the last of them is NaN."""
    length = struct.unpack("<Q", data[:8])[0]
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    places = [one["data_offsets"][0] for one in header.values() if one.get("dtype") == "F32"]
    at = 8 + length + max(places)
    return data[:at] + struct.pack("<f", float("nan")) + data[at + 4 :]


# --- whose digests are right


def into_artifact(folder: Path, name: str, data: bytes) -> None:
    """Put a file in the place of one of an artifact's, and make the digests right where they are not it themselves."""
    (folder / name).write_bytes(data)
    if name not in {MANIFEST, DIGEST}:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / MANIFEST).write_bytes(json.dumps(manifest).encode())
    if name != DIGEST:
        digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
        (folder / DIGEST).write_text(f"{digest}  {MANIFEST}\n", encoding="utf-8")


def into_checkpoint(folder: Path, name: str, data: bytes) -> None:
    """The same for a training's checkpoint."""
    (folder / name).write_bytes(data)
    if name == META:
        return
    content = json.loads((folder / META).read_bytes())["content"]
    content["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    sealed = {"content": content, "sha256": hashlib.sha256(_rendered(content)).hexdigest()}
    (folder / META).write_bytes(_rendered(sealed))


def _rendered(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode()
