"""What a checkpoint says of itself: where the training was, its settings, and what every file must be."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from trainers.loop.checkpoint.damage import DamagedError
from trainers.loop.checkpoint.settings import Json
from trainers.loop.checkpoint.sink import Mark

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The content of `meta.json`.

    Attributes:
        epoch: The epoch, counted from 0.
        window: Windows of that epoch that are done.
        windows: All windows since the start of the training.
        best: Whether the newest recorded value was the best one.
        settings: What identifies the training.
        torch: The version of torch that wrote it.
        files: All files but this one, by name.
    """

    epoch: int
    window: int
    windows: int
    best: bool
    settings: Mapping[str, Json]
    torch: str
    files: Mapping[str, Mark]

    def text(self) -> bytes:
        """The file: JSON with a digest of itself, so that a changed digit is noticed."""
        return _sealed(
            {
                "format": FORMAT,
                "epoch": self.epoch,
                "window": self.window,
                "windows": self.windows,
                "best": self.best,
                "settings": self.settings,
                "torch": self.torch,
                "files": {name: {"bytes": mark.bytes, "sha256": mark.sha256} for name, mark in self.files.items()},
            }
        )

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read what `text()` wrote.

        Raises:
            DamagedError: A single byte is different, or another version wrote it.
        """
        content = _unsealed(text)
        if content.get("format") != FORMAT:
            raise DamagedError(f"meta.json is of format {content.get('format')}; this version reads {FORMAT}")
        try:
            return cls(
                epoch=int(content["epoch"]),
                window=int(content["window"]),
                windows=int(content["windows"]),
                best=bool(content["best"]),
                settings=dict(content["settings"]),
                torch=str(content["torch"]),
                files={name: Mark(**mark) for name, mark in content["files"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"meta.json lacks something or has something else in its place: {error}") from error


def _sealed(content: Mapping[str, object]) -> bytes:
    digest = sha256(_rendered(content)).hexdigest()
    return _rendered({"content": content, "sha256": digest})


def _unsealed(text: bytes) -> dict[str, Any]:
    """Writing it again must give the same bytes: that is stricter than any reading of JSON."""
    try:
        found: Any = json.loads(text)
        content: dict[str, Any] = found["content"]
        same = _sealed(content) == text
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"meta.json is not the JSON that was written: {error}") from error
    if not same or not isinstance(content, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  it was just read
        raise DamagedError("meta.json does not match its own digest")
    return content


def _rendered(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode()
