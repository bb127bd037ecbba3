"""Pages to look at and to listen to: one HTML file each, which loads nothing and runs nothing.

A page's template extends `media/base.html`, and shows its numbers by the macros of `media/parts.html`.
"""

import base64
import io
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from PIL import Image

from trainers.media.errors import PageError

UNKNOWN: Final = "\N{EN DASH}"
"""What stands for a number that is not known."""

MINUS: Final = "\N{MINUS SIGN}"

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, slots=True)
class LabelledFigure:
    """A number under its name.

    Attributes:
        name: what it is.
        value: in full, for programs; None where it is unknown.
        text: the same for people.
        note: how to read it.
    """

    name: str
    value: float | None
    text: str
    note: str = ""


def figure(name: str, value: float, show: Callable[[float], str], note: str = "") -> LabelledFigure:
    """A number as `show` writes it; one that is not finite is unknown."""
    if not math.isfinite(value):
        return LabelledFigure(name, None, UNKNOWN, note)
    return LabelledFigure(name, value, show(value), note)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def plain(value: float) -> str:
    """A number with three digits after the point."""
    return f"{value:.3f}".replace("-", MINUS)


def data_uri(kind: str, content: bytes) -> str:
    """Content of a media type, such as `image/png`, as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def as_light(drawn: Iterable[Drawn], weight: Callable[[Drawn], int], most: int) -> tuple[Drawn, ...]:
    """The first of what is drawn, as far as the page stays light; one at least if there is any.

    Args:
        drawn: in order; what is beyond is hardly drawn.
        weight: characters that one adds to the page.
        most: characters that all may add together.
    """
    kept: list[Drawn] = []
    total = 0
    for one in drawn:
        total += weight(one)
        if kept and total > most:
            break
        kept.append(one)
    return tuple(kept)


def png_uri(image: Image.Image, *, transparent: int | None = None) -> str:
    """An image as an address that holds it.

    Args:
        image: what is to be seen.
        transparent: the entry of its palette that lets the page shine through; None for none.
    """
    file = io.BytesIO()
    if transparent is None:
        image.save(file, format="PNG", optimize=True)
    else:
        image.save(file, format="PNG", optimize=True, transparency=transparent)
    return data_uri("image/png", file.getvalue())


def render(package: str, template: str, parts: Mapping[str, object]) -> str:
    """A page as HTML text; the same parts give the same text.

    Args:
        package: that holds the template, in its folder `templates`.
        template: its file's name. Everything that it shows is escaped, and a name that it does not know is an error.
        parts: what it shows, by the names that it has for them.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PrefixLoader({"media": PackageLoader("trainers.media"), "own": PackageLoader(package)}),
    )
    return environment.get_template(f"own/{template}").render(parts)


def check_file(path: Path) -> None:
    """Refuse now what could not be written later, after work that may take hours.

    Raises:
        PageError: the path is a folder, or in a folder that is not there or cannot be written.
    """
    if path.is_dir():
        raise PageError(f"{path} is a folder; name a file, such as {path / 'page.html'}")
    if not path.parent.is_dir():
        raise PageError(f"{path} cannot be written: there is no folder {path.parent}; make it, or name another")
    if not os.access(path.parent, os.W_OK):
        raise PageError(f"{path} cannot be written: {path.parent} is not yours to write to; name another folder")


def write_page(path: Path, text: str) -> None:
    """Write a page, whole or not at all, in place of an older one: as a draft beside it, flushed, then renamed.

    Raises:
        PageError: it cannot be written; what was there stays as it was.
    """
    try:
        _replace(path, text.encode())
    except OSError as error:
        raise PageError(f"{path} cannot be written ({error.strerror}); make room, or name another") from error


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
