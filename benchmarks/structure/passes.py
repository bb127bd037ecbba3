"""In how many own files Python runs a function while a model predicts, explains or trains; see `recording`."""

import json
from pathlib import Path

from benchmarks.structure import trainings
from benchmarks.structure.checkout import Checkout
from benchmarks.structure.table import Line, at_most

NAMES = {
    "predict": "own files in one warm predict",
    "served": "own files in one predict over gRPC, server's side",
    "explain": "own files in one explanation",
    "window": "own files in one training window",
}
REACH = {"predict": 30, "served": 37, "explain": 33, "window": 15}
LSTM = ("--model", "lstm", "--epochs", "1")


def rows(before: Checkout, now: Checkout, folder: Path) -> list[Line]:
    """Both run the same artifact, an LSTM that the code before has trained in `folder`."""
    trainings.write_files(folder)
    artifact = trainings.train(before, folder, "lstm", LSTM)
    files = [_files(checkout, artifact) for checkout in (before, now)]
    return [
        at_most(name, (len(files[0][key]), len(files[1][key])), REACH[key], ", ".join(files[1][key]))
        for key, name in NAMES.items()
    ]


def _files(checkout: Checkout, artifact: Path) -> dict[str, list[str]]:
    folder = artifact.parents[2]
    arguments = ["-m", "benchmarks.structure.recording", str(checkout.python), str(artifact), trainings.BARS]
    return json.loads(checkout.run(arguments, folder))
