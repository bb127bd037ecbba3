"""A folder of bars and computed features, which trainings and processes map instead of keeping and computing them."""

import hashlib
import mmap
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from hashlib import file_digest
from importlib.metadata import version
from math import inf
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from predictor import canonical
from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.canonical import Json, Record
from predictor.covariates import CovariateSource
from predictor.draft_folder import publish_folder, remove_drafts
from predictor.errors import ArtifactError, ConfigurationError
from predictor.features import FeatureSet, FittedFeatures
from predictor.features.fitted_features import Scaling
from predictor.features.operators import OPERATOR_SET
from predictor.file_lock import lock_file
from predictor.networks import DailySeries
from predictor.replacement import check_folder
from predictor.windows import ObservedArrays, Pipeline

FORMAT: Final = 1
RECORD: Final = "entry.json"
MAX_WRITES: Final = 3
"""Most times that an entry is computed for one reader, if it is removed while or after it is written."""
BAR_FIELDS: Final = ("open", "high", "low", "close", "volume", "adj_close", "split_ratio", "cash_dividend")

Arrays = Mapping[str, NDArray[Any]]


def hash_bars(bars: BarPanel) -> str:
    """SHA-256 over symbols, sessions and every column."""
    digest = hashlib.sha256("\0".join(bars.symbols).encode())
    digest.update(np.ascontiguousarray(bars.sessions).data)
    for name in BAR_FIELDS:
        column: NDArray[np.float64] | None = getattr(bars, name)
        digest.update(name.encode())
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Type and shape of an array."""

    dtype: DTypeLike
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCache:
    """A folder with an entry per bars and expressions; entries can be removed at any time.

    An entry is a folder of .npy files and a record of their digests. It appears atomically and never changes. Its
    arrays are memory-mapped, so that processes share them and the system can drop them from memory.

    Raises:
        ConfigurationError: On construction, if the folder cannot be written.
    """

    folder: Path
    tell: Callable[[str], None]
    """Receives a notice for each damaged entry."""

    def __post_init__(self) -> None:
        check_folder(self.folder)

    def load_scaling(
        self, bars: BarPanel, features: FeatureSet, covariates: CovariateSource, fit: Callable[[], Scaling]
    ) -> Scaling:
        """Load the scaling of the observed features.

        `fit` computes it from `bars`; it is not called if the cache has it.
        """

        def compute() -> Iterator[Arrays]:
            fitted = fit()
            yield {"center": fitted.center, "scale": fitted.scale, "clip": np.array([fitted.clip])}

        per_feature = ArrayShape(np.float64, (len(features.observed),))
        arrays = self.load_arrays(
            {"kind": "scaling", **_identify(bars, features, covariates)},
            {"center": per_feature, "scale": per_feature, "clip": ArrayShape(np.float64, (1,))},
            compute,
        )
        return Scaling(center=arrays["center"], scale=arrays["scale"], clip=float(arrays["clip"][0]))

    def load_observed(
        self,
        bars: BarPanel,
        features: FittedFeatures,
        covariates: CovariateSource,
        blocks: Callable[[], Iterator[ObservedArrays]],
    ) -> ObservedArrays:
        """Load the scaled features of a history and their mask, [S, T, F] each.

        `blocks` computes the features of a few symbols at a time; it is not called if the cache has them.
        """
        shape = (len(bars.symbols), len(bars.sessions), len(features.features.observed))
        arrays = self.load_arrays(
            {"kind": "observed", "schema": features.schema_hash, **_identify(bars, features.features, covariates)},
            {"observed": ArrayShape(np.float32, shape), "mask": ArrayShape(np.bool_, shape)},
            lambda: ({"observed": observed, "mask": mask} for observed, mask in blocks()),
        )
        return arrays["observed"], arrays["mask"]

    def load_targets(self, bars: BarPanel, pipeline: Pipeline) -> tuple[FloatArray, DailySeries]:
        """Load the labels [S, T, H] of a history, and the series that its levels are computed from, [S, T] each."""
        target, normaliser = pipeline.target, pipeline.normaliser
        count = len(normaliser.series(target, bars.rows(slice(1)).adjusted()))
        symbols, sessions = bars.close.shape
        arrays = self.load_arrays(
            {
                "kind": "targets",
                "bars": hash_bars(bars),
                "target": str(target),
                "series": f"{count} of {type(normaliser).__name__}",
            },
            {
                "labels": ArrayShape(np.float64, (symbols, sessions, len(target.horizons))),
                "series": ArrayShape(np.float64, (symbols, count, sessions)),
            },
            lambda: (
                {"labels": target.labels(adjusted), "series": np.stack(normaliser.series(target, adjusted), axis=1)}
                for _, adjusted in bars.adjusted_blocks()
            ),
        )
        return arrays["labels"], tuple(arrays["series"].swapaxes(0, 1))

    def map_bars(self, bars: BarPanel) -> BarPanel:
        """The same bars, memory-mapped: they take no memory that the system cannot drop."""
        columns = {name: np.asarray(getattr(bars, name)) for name in bars.columns}
        shape = ArrayShape(np.float64, bars.close.shape)
        key: dict[str, Json] = {"kind": "bars", "bars": hash_bars(bars)}
        return bars.with_columns(self.load_arrays(key, dict.fromkeys(columns, shape), lambda: [columns]))

    def spill_columns(
        self, count: int, bars: BarPanel, blocks: Iterable[tuple[slice, Iterable[FloatArray]]]
    ) -> Iterator[FloatArray]:
        """Transpose blocks of a few symbols into whole columns [S, T], through a temporary file to save memory.

        Each block is the rows of its symbols and their columns.
        """
        sessions = bars.close.shape[1]
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder) as file:
            for rows, block in blocks:
                for number, values in enumerate(block):
                    file.seek((number * len(bars.symbols) + rows.start) * sessions * values.itemsize)
                    file.write(np.ascontiguousarray(values).data)
            file.seek(0)
            for _ in range(count):
                yield np.fromfile(file, np.float64, bars.close.size).reshape(bars.close.shape)

    def load_arrays(
        self, key: Mapping[str, Json], shapes: Mapping[str, ArrayShape], compute: Callable[[], Iterable[Arrays]]
    ) -> Arrays:
        """Load the arrays of an entry, memory-mapped; if it is missing or damaged, it is computed and written first.

        The key determines the values. `compute` returns consecutive rows of all arrays, by name.

        Raises:
            ConfigurationError: The folder cannot be written; the message says why.
        """
        libraries: dict[str, Json] = {name: version(name) for name in ("quantra", "numpy")}
        content = canonical.to_bytes({"format": FORMAT, "operators": OPERATOR_SET, **libraries, **key})
        name = hashlib.sha256(content).hexdigest()
        try:
            for _ in range(MAX_WRITES):
                self.folder.mkdir(parents=True, exist_ok=True)
                with lock_file(self.folder / f"{name}.lock", patience=inf):
                    if (arrays := self._open(name, shapes)) is not None:
                        return arrays
                    with suppress(FileNotFoundError):  # the folder was removed meanwhile
                        self._write(name, shapes, compute)
        except OSError as error:
            raise ConfigurationError(
                f"the feature cache {self.folder} cannot be used: {error.strerror or error}; repair this, choose "
                "another folder, or train without a cache"
            ) from error
        raise ConfigurationError(
            f"the feature cache {self.folder} was removed or changed {MAX_WRITES} times while it was written; stop "
            "what changes it, and train again"
        )

    def _open(self, name: str, shapes: Mapping[str, ArrayShape]) -> Arrays | None:
        """Verify and map an entry; None if it is missing, or damaged and therefore removed."""
        entry = self.folder / name
        if not entry.exists():
            return None
        try:
            record = Record.from_bytes((entry / RECORD).read_bytes(), RECORD)
            return {
                column: _open_array(entry / f"{column}.npy", record.text(column), shape)
                for column, shape in shapes.items()
            }
        except (OSError, ValueError, ArtifactError) as error:
            self.tell(f"the features in {entry} are damaged and are computed again: {error}")
            shutil.rmtree(entry, ignore_errors=True)
            return None

    def _write(self, name: str, shapes: Mapping[str, ArrayShape], compute: Callable[[], Iterable[Arrays]]) -> None:
        """Write an entry atomically, after removing what killed processes left of it."""
        remove_drafts(self.folder, name)
        with publish_folder(self.folder / name) as draft:
            _write_arrays(draft, shapes, compute())
            digests: dict[str, Json] = {column: _compute_digest(draft / f"{column}.npy") for column in shapes}
            (draft / RECORD).write_bytes(canonical.to_bytes(digests))


def open_cache(folder: str | Path | None, tell: Callable[[str], None]) -> FeatureCache | None:
    """The cache in this folder; None without a folder."""
    return None if folder is None else FeatureCache(folder=Path(folder), tell=tell)


def map_bars(bars: BarPanel, cache: FeatureCache | None) -> BarPanel:
    """The bars, memory-mapped if there is a cache."""
    is_mapped = all(_find_mapped(getattr(bars, name)) is not None for name in bars.columns)
    return bars if cache is None or is_mapped else cache.map_bars(bars)


def release_bars(bars: BarPanel) -> None:
    """Drop mapped bars from memory; what is used later is read from their file again."""
    for name in bars.columns:
        mapped = _find_mapped(getattr(bars, name))
        pages: object = None if mapped is None else mapped.base
        if sys.platform != "win32" and isinstance(pages, mmap.mmap):
            pages.madvise(mmap.MADV_DONTNEED)


def _find_mapped(column: FloatArray) -> np.memmap[Any, Any] | None:
    """The mapped array that a column is a slice of; None for a column in memory."""
    for array in (column, column.base):
        if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.strides == column.strides:
            return array
    return None


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """A column of mapped bars, as sent to another process of this machine, which maps it too."""

    file: Path
    digest: str
    rows: slice
    sessions: slice

    @classmethod
    def of(cls, column: FloatArray, array: np.memmap[Any, Any]) -> Self:
        """Refer to a part of a mapped array.

        Raises:
            FileNotFoundError: The entry was removed.
        """
        file = Path(str(array.filename))
        digest = Record.from_bytes((file.parent / RECORD).read_bytes(), RECORD).text(file.stem)
        row, session = divmod((column.ctypes.data - array.ctypes.data) // column.itemsize, array.shape[1])
        symbols, sessions = column.shape
        return cls(file, digest, slice(row, row + symbols), slice(session, session + sessions))

    def open(self) -> FloatArray:
        """Verify and map the file.

        Raises:
            ConfigurationError: It was removed or changed.
        """
        try:
            return _map_file(self.file, self.digest)[self.rows, self.sessions]
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the bars in {self.file} were removed or changed before another process could read them: {error}; "
                "run the command again"
            ) from error


def _open_bars(empty: BarPanel, columns: Mapping[str, ColumnReference]) -> BarPanel:
    return empty.with_columns({name: column.open() for name, column in columns.items()})


def _reduce_bars(bars: BarPanel) -> str | tuple[Any, ...]:
    """What `multiprocessing` sends of bars: references if all columns are mapped, else their values."""
    columns = {name: getattr(bars, name) for name in bars.columns}
    mapped = {name: array for name, column in columns.items() if (array := _find_mapped(column)) is not None}
    if len(mapped) == len(columns):
        with suppress(FileNotFoundError):  # the entry was removed, but is still mapped here
            references = {name: ColumnReference.of(columns[name], array) for name, array in mapped.items()}
            return _open_bars, (bars.with_columns(dict.fromkeys(columns, np.empty(0))), references)
    return bars.__reduce_ex__(2)


ForkingPickler.register(BarPanel, _reduce_bars)


def _identify(bars: BarPanel, features: FeatureSet, covariates: CovariateSource) -> dict[str, Json]:
    """What determines the values of features, besides their scaling."""
    return {
        "bars": hash_bars(bars),
        "expressions": [feature.expression for feature in features.observed],
        "covariates": covariates.digest() if features.covariates.observed else "",
    }


def _write_arrays(folder: Path, shapes: Mapping[str, ArrayShape], blocks: Iterable[Arrays]) -> None:
    """Write arrays as .npy files, one block after the other."""
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.npy").open("wb")) for name in shapes}
        for name, array in shapes.items():
            header = {"descr": np.dtype(array.dtype).str, "fortran_order": False, "shape": array.shape}
            np.lib.format.write_array_header_1_0(files[name], header)
        for block in blocks:
            for name, file in files.items():
                file.write(np.ascontiguousarray(block[name]).data)


def _compute_digest(file: Path) -> str:
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _open_array(file: Path, digest: str, expected: ArrayShape) -> NDArray[Any]:
    """Verify and map an array. The mapping is private to this process: writing to it never changes the file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It differs from what was written.
    """
    array = _map_file(file, digest)
    if (array.dtype, array.shape) != (np.dtype(expected.dtype), expected.shape):
        raise ValueError(f"{file.name} holds {array.dtype} {list(array.shape)}")
    return array


def _map_file(file: Path, digest: str) -> NDArray[Any]:
    if _compute_digest(file) != digest:
        raise ValueError(f"{file.name} does not match its digest")
    return np.load(file, mmap_mode="c")
