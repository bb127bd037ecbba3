"""What `benchmarks.structure` counts, on texts small enough to count by hand."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.structure.answers import facts
from benchmarks.structure.docstrings import array_functions, without_shape
from benchmarks.structure.imports import circles
from benchmarks.structure.moves import Move, moves, reaches_past
from benchmarks.structure.sources import array_types, classes_defined_twice, lengths, long_functions, small_modules
from predictor import BarPanel

ROOT = Path(__file__).parents[2]


def function(name: str, lines: int, *, decorators: int = 0) -> str:
    """A function of so many lines from `def` on."""
    body = "\n".join("    pass" for _ in range(lines - 1))
    return "@decorated\n" * decorators + f"def {name}():\n{body}\n"


def test_a_function_is_long_from_its_def_on_whatever_decorates_it() -> None:
    texts = {
        "predictor/a.py": function("just_short", 50, decorators=3) + function("just_long", 51),
        "trainers/b.py": "class A:\n" + "\n".join(f"    {line}" for line in function("method", 60).splitlines()),
    }
    assert long_functions(texts) == ["predictor/a.py:just_long (51)", "trainers/b.py:method (60)"]


def test_a_public_class_of_the_same_name_counts_once_whatever_the_package() -> None:
    texts = {
        "predictor/a.py": "class Plan: ...\nclass _Hidden: ...\nclass Alone: ...",
        "trainers/b.py": "class Plan: ...\nclass _Hidden: ...\ndef f():\n    class Alone: ...",
        "trainers/c.py": "class Plan: ...",
    }
    assert classes_defined_twice(texts) == {"Plan": ["predictor/a.py", "trainers/b.py", "trainers/c.py"]}


def test_modules_of_forty_lines_are_small_but_those_that_only_export_or_start() -> None:
    texts = {
        "predictor/a.py": "x = 1\n" * 40,
        "predictor/b.py": "x = 1\n" * 41,
        "predictor/__init__.py": "",
        "trainers/__main__.py": "",
    }
    assert small_modules(texts) == ["predictor/a.py"]
    assert lengths(texts)["predictor/b.py"] == 41


ARRAYS: Mapping[str, str] = {
    "trainers/types.py": "FloatArray = NDArray[np.float64]\nRows: TypeAlias = tuple[Tensor, ...]\nNames = list[str]\n",
    "predictor/a.py": '''
def bracketed(x: FloatArray) -> int:
    """The middle of [N, T] values."""
def worded(x: Rows) -> int:
    """Rows of any shape."""
def silent(x: int) -> "Tensor | None":
    """A value."""
def of_names(x: Names) -> Names:
    """No array."""
def _private(x: Tensor) -> None:
    """A value."""
class Model:
    """Takes [N] values."""
    def __init__(self, x: Tensor) -> None: ...
    @property
    def weights(self) -> Tensor:
        """The weights."""
    def __call__(self, x: Tensor) -> Tensor: ...
''',
}


def test_array_types_are_found_by_what_they_are_made_of() -> None:
    assert [name for name, _ in array_types(ARRAYS)] == ["FloatArray", "Rows"]


def test_public_functions_of_arrays_name_a_shape_and_a_constructor_has_its_class_docstring() -> None:
    names = [place.split()[-1] for place in array_functions(ARRAYS, "predictor")]
    assert names == ["bracketed", "worded", "silent", "__init__", "__call__"]
    assert [place.split()[-1] for place in without_shape(ARRAYS, "predictor")] == ["silent", "__call__"]


def test_modules_that_reach_one_another_are_a_circle() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]
    assert circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_moves_are_the_rows_of_a_table_with_one_file_on_either_side() -> None:
    page = "| then | now |\n|---|---|\n| `a/b.py` | `a/c.py` |\n| `a/d.py` | `a/d.py` |\n| `a/e.py` | taken away |\n"
    assert moves(page) == [Move("a/b.py", "a/c.py")]


def test_the_history_of_a_file_that_is_nowhere_reaches_nothing() -> None:
    assert not reaches_past("HEAD", "python/predictor/oracle.py")


def panel(*, close: float) -> BarPanel:
    """One stock, two sessions."""
    column = np.array([[10.0, close]])
    return BarPanel(
        symbols=("A",),
        sessions=np.array([20240102, 20240103], np.int32),
        open=column,
        high=column,
        low=column,
        close=column,
        volume=column,
    )


def test_answers_that_differ_by_a_bit_differ() -> None:
    same, again, other = (dict(facts(panel(close=close), "bars")) for close in (10.5, 10.5, np.nextafter(10.5, 11)))
    assert same == again
    assert {name for name in same if same[name] != other[name]} == {
        f"bars.{column}" for column in ("open", "high", "low", "close", "volume")
    }


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(TypeError, match="bars\\[0\\]: cannot compare a object"):
        list(facts([object()], "bars"))


def test_a_file_counts_if_a_function_of_it_runs_in_any_thread_while_recording(tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text("def f():\n    import loaded\n    return loaded")
    (tmp_path / "loaded.py").write_text("x = 1\nfrom dataclasses import dataclass\n@dataclass\nclass D:\n    x: int")
    (tmp_path / "threaded.py").write_text("def f(): ...")
    (tmp_path / "early.py").write_text("def f(): ...")
    program = """
import sys, threading
from pathlib import Path
from benchmarks.structure.recording import Recorder

recorder = Recorder(Path(sys.argv[1]))
sys.path.insert(0, sys.argv[1])
import asked, early, threaded

early.f()
recorder.begin()
asked.f().D(1)
thread = threading.Thread(target=threaded.f)
thread.start()
thread.join()
print(recorder.end())
early.f()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['asked.py', 'threaded.py']"
