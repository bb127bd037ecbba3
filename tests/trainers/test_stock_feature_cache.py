"""Features kept on disk: the same artifact, entries that are whole or absent, and several readers and writers."""

import mmap
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from threading import Barrier
from typing import NoReturn

import numpy as np
import pytest
from command_exits import exit_code
from market import bokeh_panel
from small_recipes import SMALL_RECIPE

from predictor.arrays import FloatArray
from predictor.bars import BarPanel
from predictor.errors import ConfigurationError
from predictor.features import FeatureSet, load_default_features
from predictor.jobs import ProcessRunner
from predictor.networks import Target
from predictor.windows import Pipeline
from trainers import StockTrainer
from trainers.progress import no_progress
from trainers.stock import StockRecipe
from trainers.stock.audit.audit import ShuffledTraining
from trainers.stock.backtest.refits import Fold, RefitMaterial, make_tradable
from trainers.stock.command import stock
from trainers.stock.data import NO_COVARIATE_FILES, History
from trainers.stock.evaluation.comparison import SeedRefits
from trainers.stock.feature_cache import Arrays, ArrayShape, FeatureCache
from trainers.stock.model_fit import fit_pipeline
from trainers.stock.splits import RollingSplits
from trainers.stock.training import train_in_memory
from trainers.stock.training_data import TrainingMaterial

SHORT = replace(SMALL_RECIPE, parts=RollingSplits(selection=40, calibration=60))
SHAPES = {"numbers": ArrayShape(np.float64, (4, 3)), "flags": ArrayShape(np.bool_, (4,))}


def bars() -> BarPanel:
    return bokeh_panel("AAPL", "GOOG").last(400)


def files(cache: FeatureCache | None) -> dict[str, bytes]:
    """The files of a small artifact."""
    return train_in_memory(TrainingMaterial(bars(), load_default_features(), cache=cache), SHORT, consume=iter)


def history(panel: BarPanel, features: FeatureSet, recipe: StockRecipe, cache: FeatureCache | None) -> History:
    pipeline = fit_pipeline(panel, features, recipe, recipe.splits(panel.sessions), cache=cache)
    return History(panel, pipeline, cache=cache)


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("computed again")


def cache_in(folder: Path, notices: list[str] | None = None) -> FeatureCache:
    return FeatureCache(folder=folder, tell=[].append if notices is None else notices.append)


def entries(folder: Path) -> Sequence[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_dir()]


def computed(folder: Path) -> Sequence[Path]:
    """The entries that are not bars."""
    return [entry for entry in entries(folder) if not (entry / "close.npy").exists()]


def blocks() -> Iterator[Arrays]:
    """Two blocks of the rows of `SHAPES`."""
    for first in (0, 2):
        yield {"numbers": np.arange(6.0).reshape(2, 3) + 6 * first, "flags": np.array([True, first > 0])}


def read(cache: FeatureCache, key: str = "a") -> Arrays:
    """An entry that is already there."""
    return cache.load_arrays({"key": key}, SHAPES, refuse)


def assert_whole(arrays: Arrays) -> None:
    np.testing.assert_array_equal(arrays["numbers"][:, 0], [0, 3, 12, 15])
    np.testing.assert_array_equal(arrays["flags"], [True, False, True, True])


# --- trainings


def test_a_training_gives_the_same_bytes_from_memory_and_from_a_new_and_an_old_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = files(None)
    assert files(cache_in(tmp_path)) == expected
    monkeypatch.setattr(Pipeline, "observed_blocks", refuse)
    monkeypatch.setattr(FeatureSet, "columns", refuse)
    monkeypatch.setattr(Target, "labels", refuse)
    assert files(cache_in(tmp_path)) == expected


def test_a_training_on_mapped_bars_gives_the_same_bytes(tmp_path: Path) -> None:
    mapped = cache_in(tmp_path).map_bars(bars())
    assert isinstance(mapped.close.base, mmap.mmap)
    assert isinstance(mapped.until(session(-100)).close, np.memmap)
    assert train_in_memory(TrainingMaterial(mapped, load_default_features()), SHORT, consume=iter) == files(None)


def test_spilled_columns_are_whole_and_leave_no_file(tmp_path: Path) -> None:
    columns = [bars().close, bars().volume]
    blocks = [(slice(row, row + 1), [values[row : row + 1] for values in columns]) for row in range(2)]
    np.testing.assert_array_equal(list(cache_in(tmp_path).spill_columns(2, bars(), blocks)), columns)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("change", "count"), [("bars", 6), ("features", 5), ("split", 5), ("target", 4)])
def test_another_input_gets_entries_of_its_own(tmp_path: Path, change: str, count: int) -> None:
    cache, features = cache_in(tmp_path), load_default_features()
    history(bars(), features, SHORT, cache)
    panel = bars().last(399) if change == "bars" else bars()
    if change == "features":
        features = replace(features, observed=features.observed[:-1])
    recipe = replace(SHORT, parts=RollingSplits(selection=41, calibration=60)) if change == "split" else SHORT
    if change == "target":
        recipe = replace(SHORT, target=replace(SHORT.target, lag=1 - SHORT.target.lag))
    plain = history(panel, features, recipe, None)
    cached = history(panel, features, recipe, cache)
    np.testing.assert_array_equal(cached.stored.observed, plain.stored.observed)
    np.testing.assert_array_equal(cached.stored.mask, plain.stored.mask)
    np.testing.assert_array_equal(cached.labels, plain.labels)
    assert len(computed(tmp_path)) == count


def test_the_trainer_and_the_command_read_the_same_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel, cache, out = bars(), tmp_path / "cache", tmp_path / "1"
    panel.write_csv(tmp_path / "bars.csv")
    trainer = StockTrainer(
        model="har", horizons=[1], device="cpu", splits="rolling:40,60", feature_cache=cache, quiet=True
    )
    trainer.fit(tmp_path / "bars.csv").close()
    assert len(entries(cache)) == 4
    monkeypatch.setattr(Pipeline, "observed_blocks", refuse)
    flags = ("--model", "har", "--horizons", "1", "--device", "cpu", "--splits", "rolling:40,60")
    bars_file = tmp_path / "bars.csv"
    assert exit_code(stock, "--bars", bars_file, "--feature-cache", cache, "--out", out, *flags) == 0
    trainer.save(tmp_path / "2")
    assert [(out / name).read_bytes() for name in ("manifest.json", "weights.safetensors")] == [
        (tmp_path / "2" / name).read_bytes() for name in ("manifest.json", "weights.safetensors")
    ]


def walk(cache: FeatureCache | None) -> FloatArray:
    """Forecasts of a fold of a walk forward."""
    fold = Fold(number=1, first=session(-20), last=session(-5), learn_first=session(0), learn_last=session(-25))
    material = RefitMaterial(bars=bars(), features=load_default_features(), recipe=make_tradable(SHORT), cache=cache)
    return material.worker()(fold).values


def train_from_a_seed(cache: FeatureCache | None) -> FloatArray:
    """Forecasts of a training run from another seed."""
    splits = SHORT.splits(bars().sessions)
    refits = SeedRefits(
        bars=bars(),
        features=load_default_features(),
        recipe=SHORT,
        splits=splits,
        covariates=NO_COVARIATE_FILES,
        edges=None,
        windows=history(bars(), load_default_features(), SHORT, None).windows(splits.calibration),
        cache=cache,
        consume=iter,
    )
    return refits.worker()(1)


def train_on_shuffled_labels(cache: FeatureCache | None) -> FloatArray:
    """Forecasts of a training run on shuffled labels."""
    training = ShuffledTraining(
        bars=bars(),
        sessions=bars().sessions[-5:],
        features=load_default_features(),
        recipe=SHORT,
        splits=SHORT.splits(bars().sessions),
        covariates=NO_COVARIATE_FILES,
        edges=None,
        cache=cache,
        track_steps=no_progress,
        consume=iter,
    )
    return training.worker()(0).values


def session(position: int) -> int:
    return int(bars().sessions[position])


@pytest.mark.parametrize("refit", [walk, train_from_a_seed, train_on_shuffled_labels])
def test_a_refit_forecasts_the_same_with_features_on_disk(
    refit: Callable[[FeatureCache | None], FloatArray], tmp_path: Path
) -> None:
    np.testing.assert_array_equal(refit(cache_in(tmp_path)), refit(None))
    assert len(computed(tmp_path)) == 3


def test_a_history_in_another_process_reads_features_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = history(bars(), load_default_features(), SHORT, cache_in(tmp_path))
    monkeypatch.setattr(Pipeline, "observed_blocks", refuse)
    np.testing.assert_array_equal(copy(sent).stored.observed, sent.stored.observed)


# --- bars in other processes


def send(panel: BarPanel) -> Callable[[], BarPanel]:
    """Send bars as to another process, and return what receives them."""
    here, there = Pipe()
    here.send(panel)
    return there.recv


def sent_bytes(panel: BarPanel) -> int:
    return len(ForkingPickler.dumps(panel))


def assert_equal_bars(panel: BarPanel, expected: BarPanel) -> None:
    assert (panel.symbols, panel.columns) == (expected.symbols, expected.columns)
    np.testing.assert_array_equal(panel.sessions, expected.sessions)
    for name in expected.columns:
        np.testing.assert_array_equal(getattr(panel, name), getattr(expected, name))


def cut(panel: BarPanel, part: str) -> BarPanel:
    match part:
        case "all":
            return panel
        case "sessions":
            return panel.between(session(10), session(-7)).last(300)
        case "symbol":
            return panel.rows(slice(1, 2)).until(session(-3))
        case "reversed":
            return panel.rows(slice(None, None, -1))
        case _:
            return panel.without_volumes(np.eye(2, 400, dtype=np.bool_))


@pytest.mark.parametrize("part", ["all", "sessions", "symbol"])
def test_another_process_maps_the_same_part_of_mapped_bars(tmp_path: Path, part: str) -> None:
    panel = cut(cache_in(tmp_path).map_bars(bars()), part)
    received = send(panel)()
    assert_equal_bars(received, cut(bars(), part))
    assert received.close.base is not None
    assert isinstance(received.close.base.base, mmap.mmap)
    assert not received.close.flags.writeable
    assert max(map(sent_bytes, (panel, received))) < panel.close.nbytes


@pytest.mark.parametrize("part", ["reversed", "one column in memory"])
def test_bars_that_are_not_a_part_of_mapped_ones_are_sent_by_value(tmp_path: Path, part: str) -> None:
    assert_equal_bars(send(cut(cache_in(tmp_path).map_bars(bars()), part))(), cut(bars(), part))


@pytest.mark.parametrize("change", ["removed", "damaged"])
def test_bars_that_are_removed_or_damaged_before_a_process_reads_them_are_an_error(tmp_path: Path, change: str) -> None:
    receive = send(cache_in(tmp_path).map_bars(bars()))
    (entry,) = entries(tmp_path)
    if change == "removed":
        shutil.rmtree(entry)
    else:
        content = bytearray((entry / "low.npy").read_bytes())
        content[-1] ^= 1
        (entry / "low.npy").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"the bars in .*\.npy were removed or changed before another process"):
        receive()


def count_mapped(panel: BarPanel) -> Callable[[int], int]:
    return lambda _job: sum(isinstance(getattr(panel, name).base.base, mmap.mmap) for name in panel.columns)


def test_a_process_for_jobs_maps_bars(tmp_path: Path) -> None:
    panel = cache_in(tmp_path).map_bars(bars())
    assert list(ProcessRunner(1).run(partial(count_mapped, panel), [0])) == [(0, len(panel.columns))]


@pytest.mark.skipif(not hasattr(shutil, "chown"), reason="an open file cannot be removed on Windows")
def test_mapped_bars_of_a_removed_cache_are_sent_by_value(tmp_path: Path) -> None:
    panel = cache_in(tmp_path / "cache").map_bars(bars())
    shutil.rmtree(tmp_path / "cache")
    assert_equal_bars(send(panel)(), bars())


def test_bars_without_suspects_are_mapped_too(tmp_path: Path) -> None:
    close = np.array(bars().close)
    close[0, 200] *= 50
    panel = replace(bars(), close=close, high=np.maximum(bars().high, close))
    expected, found = (
        history(panel, load_default_features(), SHORT, cache).bars for cache in (None, cache_in(tmp_path))
    )
    assert np.isnan(found.close[0, 200])
    assert_equal_bars(found, expected)
    assert isinstance(found.close, np.memmap)


def test_columns_of_mapped_bars_are_sent_to_a_cluster_as_plain_arrays(tmp_path: Path) -> None:
    """Ray reads a plain contiguous array without a copy."""
    whole = cache_in(tmp_path).map_bars(bars())
    for panel in (whole, whole.until(session(-10))):
        copied = copy(panel)
        assert_equal_bars(copied, panel)
        assert type(copied.close) is np.ndarray
        assert copied.close.flags.c_contiguous


# --- entries


def test_an_entry_is_computed_once_and_then_mapped(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "new" / "folder")
    assert_whole(cache.load_arrays({"key": "a"}, SHAPES, blocks))
    found = read(cache)
    assert_whole(found)
    assert isinstance(found["numbers"], np.memmap)


def test_writing_to_the_arrays_does_not_change_the_entry(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.load_arrays({"key": "a"}, SHAPES, blocks)["numbers"][:] = 7.0
    assert_whole(read(cache))


@pytest.mark.parametrize("damage", ["byte", "truncated", "no record", "no array", "record", "other type"])
def test_a_damaged_entry_is_computed_again_with_a_notice(tmp_path: Path, damage: str) -> None:
    notices: list[str] = []
    cache = cache_in(tmp_path, notices)
    cache.load_arrays({"key": "a"}, SHAPES, blocks)
    (entry,) = entries(tmp_path)
    array = entry / "numbers.npy"
    shapes = SHAPES
    match damage:
        case "byte":
            content = bytearray(array.read_bytes())
            content[-1] ^= 1
            array.write_bytes(content)
        case "truncated":
            array.write_bytes(array.read_bytes()[:-8])
        case "no record":
            (entry / "entry.json").unlink()
        case "no array":
            array.unlink()
        case "record":
            (entry / "entry.json").write_bytes(b"{}")
        case _:
            shapes = {**SHAPES, "flags": ArrayShape(np.uint8, (4,))}
    assert_whole(
        cache.load_arrays({"key": "a"}, shapes, lambda: ({**each, "flags": each["flags"]} for each in blocks()))
    )
    (notice,) = notices
    assert f"the features in {entry} are damaged and are computed again: " in notice
    assert notices == [notice]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)

    def fail() -> Iterator[Arrays]:
        yield next(blocks())
        raise ConfigurationError("a feature fails")

    with pytest.raises(ConfigurationError, match="a feature fails"):
        cache.load_arrays({"key": "a"}, SHAPES, fail)
    assert entries(tmp_path) == []


def test_what_a_killed_writer_left_is_removed_and_not_read(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    cache.load_arrays({"key": "a"}, SHAPES, blocks)
    (entry,) = entries(tmp_path)
    left = entry.rename(tmp_path / f".draft-{entry.name}-x")
    assert_whole(cache.load_arrays({"key": "a"}, SHAPES, blocks))
    assert not left.exists()
    assert entries(tmp_path) == [entry]


def test_of_several_writers_one_computes(tmp_path: Path) -> None:
    together, writers = Barrier(4), list[int]()

    def compute() -> Iterator[Arrays]:
        writers.append(1)
        return blocks()

    def use(_: int) -> None:
        together.wait(10)
        assert_whole(cache_in(tmp_path).load_arrays({"key": "a"}, SHAPES, compute))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert writers == [1]


def test_a_cache_that_is_removed_while_it_is_written_is_written_again(tmp_path: Path) -> None:
    folder, attempts = tmp_path / "cache", list[int]()

    def compute() -> Iterator[Arrays]:
        attempts.append(1)
        if len(attempts) == 1:
            shutil.rmtree(folder)
        return blocks()

    assert_whole(cache_in(folder).load_arrays({"key": "a"}, SHAPES, compute))
    assert len(attempts) == 2


@pytest.mark.skipif(not hasattr(shutil, "chown"), reason="an open file cannot be removed on Windows")
def test_arrays_survive_the_removal_of_the_cache(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    found = cache.load_arrays({"key": "a"}, SHAPES, blocks)
    shutil.rmtree(tmp_path / "cache")
    assert_whole(found)
    assert_whole(cache.load_arrays({"key": "a"}, SHAPES, blocks))


def test_a_file_in_place_of_the_folder_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not a folder"):
        cache_in(tmp_path / "file")
