"""The run folder of a backtest, which stores forecasts by fold so that an interrupted backtest can continue.

    settings.json                    settings of the forecasts and their digest
    forecasts/0001.safetensors       one file per fold

Strategy and costs are not part of the settings: they may change without new trainings.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import numpy as np

from predictor import canonical
from predictor.artifact.artifact import read_arrays, write_arrays
from predictor.canonical import Json, Record
from predictor.errors import ArtifactError, ConfigurationError
from predictor.networks import TargetKind
from predictor.replacement import replace_file
from trainers.stock.backtest.folds import Fold
from trainers.stock.backtest.forecasts import DailyForecasts

SETTINGS: Final = "settings.json"
FORECASTS: Final = "forecasts"


@final
class ForecastStore:
    """The forecasts of one backtest's folds, in its run folder.

    Args:
        folder: The run folder, created if missing.
        settings: All settings that determine the forecasts.
        resume: Continue an existing folder with the same settings.

    Raises:
        ConfigurationError: The folder cannot be written, exists without `resume`, or has other settings.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Json], *, resume: bool) -> None:
        self.folder = folder
        self.digest = hashlib.sha256(canonical.to_bytes(settings)).hexdigest()
        path = folder / SETTINGS
        if path.is_file():
            _check_same(path, settings, self.digest, resume=resume)
        elif folder.exists() and any(folder.iterdir()):
            raise ConfigurationError(f"{folder} contains something other than a backtest; choose another --out")
        try:
            (folder / FORECASTS).mkdir(parents=True, exist_ok=True)
            replace_file(path, canonical.to_bytes({"digest": self.digest, "settings": settings}))
        except OSError as error:
            raise ConfigurationError(f"{folder} cannot be written: {error.strerror}; choose another --out") from error

    def holds(self, fold: Fold) -> bool:
        """Whether the fold's forecasts are stored."""
        return self._path(fold).is_file()

    def keep(self, fold: Fold, forecasts: DailyForecasts) -> None:
        """Store a fold's forecasts atomically."""
        arrays = {"sessions": forecasts.sessions, "values": forecasts.values}
        arrays |= {"horizons": np.array(forecasts.horizons), "levels": np.array(forecasts.levels)}
        if forecasts.scores is not None:
            arrays["scores"] = forecasts.scores
        kind = np.frombuffer(forecasts.kind.value.encode(), np.uint8)
        replace_file(self._path(fold), write_arrays(arrays | {"kind": kind}))

    def read(self, fold: Fold) -> DailyForecasts:
        """Read a fold's forecasts.

        Raises:
            ArtifactError: The file is missing or damaged.
        """
        path = self._path(fold)
        if not path.is_file():
            raise ArtifactError.of(f"{FORECASTS}/{path.name}", "the file is missing; run the backtest with --resume")
        arrays = read_arrays(path.read_bytes(), path.name)
        try:
            return DailyForecasts(
                sessions=arrays["sessions"].astype(np.int32),
                kind=TargetKind(arrays["kind"].astype(np.uint8).tobytes().decode()),
                horizons=tuple(arrays["horizons"].tolist()),
                levels=tuple(arrays["levels"].tolist()),
                values=arrays["values"].astype(np.float64),
                scores=arrays["scores"].astype(np.float64) if "scores" in arrays else None,
            )
        except (KeyError, ValueError) as error:
            raise ArtifactError.of(f"{FORECASTS}/{path.name}", f"is not a file of forecasts: {error}") from error

    def _path(self, fold: Fold) -> Path:
        return self.folder / FORECASTS / f"{fold.number:04d}.safetensors"


def _check_same(path: Path, settings: Mapping[str, Json], digest: str, *, resume: bool) -> None:
    if not resume:
        raise ConfigurationError(
            f"{path.parent} already has a backtest; continue it with --resume, or choose another --out"
        )
    record = Record.from_bytes(path.read_bytes(), SETTINGS)
    if record.text("digest") == digest:
        return
    made = record.record("settings")
    now = Record.from_bytes(canonical.to_bytes(settings), SETTINGS)
    keys = sorted({*made.keys(), *now.keys()})
    different = [key for key in keys if not (made.has(key) and now.has(key) and made.json(key) == now.json(key))]
    raise ConfigurationError(
        f"{path.parent} has a backtest with other settings: {', '.join(different)}; choose another --out"
    )
