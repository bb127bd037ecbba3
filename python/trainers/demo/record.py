"""What the demo's models were made of, so that a second demo trains again only if something else would come out."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final, Self

from predictor import artifact, canonical
from predictor.bars import BarPanel
from predictor.canonical import Json
from predictor.errors import ArtifactError
from predictor.features import FeatureSet
from predictor.inference import choose_device
from trainers.stock import StockRecipe
from trainers.stock.card import bars_hash, features_identity, libraries_card

_PACKAGES: Final = Path(__file__).parents[2]
"""Where this program's own packages are."""
_OWN: Final = ("predictor", "trainers")


@dataclass(frozen=True, slots=True)
class DemoInputs:
    """All that decides the bytes of a model; times and paths are none of it."""

    content: Mapping[str, Json]

    @classmethod
    def of(cls, bars: BarPanel, features: FeatureSet, recipe: StockRecipe) -> Self:
        """What a training of these would be made of by this program, with these packages."""
        return cls(
            {
                "recipe": recipe.settings(),
                "features": features_identity(features),
                "bars": bars_hash(bars),
                "libraries": libraries_card(),
                "python": python_version(),
                "device": str(choose_device("auto")),
                "quantra": version("quantra"),
                "program": program_hash(),
            }
        )

    def keep(self, records: Path, model: Path) -> None:
        """Write down what the model in this folder was made of, and which one it is."""
        made = {**self.content, "manifest": _manifest_hash(model)}
        _record_of(records, model).write_bytes(canonical.to_bytes(made))

    def made(self, records: Path, model: Path) -> bool:
        """Whether the model in this folder is what a training would make now."""
        wanted = {**self.content, "manifest": _manifest_hash(model)}
        try:
            return _record_of(records, model).read_bytes() == canonical.to_bytes(wanted)
        except OSError:
            return False


def program_hash() -> str:
    """SHA-256 over the names and contents of this program's own modules."""
    digest = hashlib.sha256()
    for path in sorted(path for package in _OWN for path in (_PACKAGES / package).rglob("*.py")):
        digest.update(path.relative_to(_PACKAGES).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _record_of(records: Path, model: Path) -> Path:
    return records / f"{model.name}.made.json"


def _manifest_hash(model: Path) -> str:
    """Of an artifact, all of whose files are verified; empty where there is none that is whole."""
    try:
        return artifact.load(model).manifest_hash
    except ArtifactError:
        return ""
