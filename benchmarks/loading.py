"""Import time, install size, start time of `serve`, and loading an artifact on another processor.

A process with the vector instructions of NumPy and torch switched off simulates the other processor.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Row, at_most, parse_arguments, publish, shown

ROOT = Path(__file__).parents[1]
IMPORT_REACH_S, PACKAGES_REACH, SERVING_REACH_S = 0.3, 22, 5.0

OTHER_PROCESSOR = {
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX2 FMA3",
    "ATEN_CPU_CAPABILITY": "default",
}


def import_time() -> Row:
    """`import predictor` in a fresh interpreter, less the start of an empty interpreter."""
    rounds = [(_seconds("pass"), _seconds("import predictor")) for _ in range(9)]
    value = statistics.median(full - empty for empty, full in rounds)
    return at_most("import predictor, s", value, IMPORT_REACH_S, detail="median of 9 pairs, less an empty interpreter")


def core_packages() -> Row:
    """Packages of an install without extras, as pip resolves them for an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--constraint", str(ROOT / "constraints.txt"), "--report", str(report), str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)
        names = sorted(item["metadata"]["name"] for item in json.loads(report.read_text())["install"])
    return at_most("packages of the core install", len(names), PACKAGES_REACH, detail=" ".join(names))


def time_to_serving(models: Path) -> Row:
    """Time from the start of the process to its ready line, which it prints when health is SERVING."""
    seconds = [_serving_once(models) for _ in range(5)]
    detail = "median of 5 starts, one small LSTM, golden instance included"
    return at_most("serve to SERVING, s", statistics.median(seconds), SERVING_REACH_S, detail=detail)


def other_processor(models: Path) -> Row:
    """Load an artifact of this machine with the vector instructions of NumPy and torch switched off."""
    program = f"from predictor import Forecaster; Forecaster.load({str(models / 'small' / '1')!r})"
    environment = {**os.environ, **OTHER_PROCESSOR}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    detail = "golden instance within its tolerance" if ran.returncode == 0 else ran.stderr.strip().splitlines()[-1]
    return at_most("load on another processor, exit code", ran.returncode, 0, detail=detail)


def _seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


def _serving_once(models: Path) -> float:
    command = [sys.executable, "-m", "predictor.server", "--models", str(models), "--listen", "127.0.0.1:0"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["ready"]
        taken = time.perf_counter() - start
        server.terminate()
    return taken


def main() -> int:
    """Measure everything; `--quick` skips the install."""
    arguments = parse_arguments(__doc__ or "")
    sys.path.insert(0, str(ROOT / "tests"))
    from artifacts import small_models

    with tempfile.TemporaryDirectory() as folder:
        models = small_models(Path(folder))
        size = sum(p.stat().st_size for p in models.rglob("*") if p.is_file()) / 1024
        rows = [import_time(), time_to_serving(models), other_processor(models)]
        rows.append(shown("size of a small artifact, kB", size, detail="LSTM of width 8"))
    if not arguments.quick:
        rows.append(core_packages())
    return publish(rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
