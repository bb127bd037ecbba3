"""`quantra alias`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from predictor.cli.machine import write_json
from predictor.cli.messages import warned_of_aliases
from predictor.cli.options import AsJson
from predictor.errors import ModelNotFoundError
from predictor.interruption import loading

EXAMPLE: Final = "Example: quantra alias demo champion 2 --models models"


def alias(
    *,
    name: Annotated[str, typer.Argument(help="The model.")],
    alias: Annotated[str, typer.Argument(help="Such as champion, which a plain NAME means.")],
    version: Annotated[int, typer.Argument(min=0, help="The version that the alias names from now on.")],
    models: Annotated[Path, typer.Option(metavar="DIR", help="Folder of NAME/VERSION artifacts.")] = Path("models"),
    as_json: AsJson = False,
) -> None:
    """Let an alias name a version of a model. A server reads aliases when it starts."""
    with loading():
        from predictor.registry import set_alias  # brings torch, which --help need not wait for

    line = models / name
    if not line.is_dir() or line.parent != models:
        there = sorted(p.name for p in models.iterdir() if p.is_dir()) if models.is_dir() else []
        known = f"there are {there}" if there else "it holds no model; name another folder by --models"
        raise ModelNotFoundError(f"there is no model {name!r} in {models}; {known}")
    set_alias(line, alias, version)
    problems = warned_of_aliases(line)
    if as_json:
        write_json({"model": name, "alias": alias, "version": version, "problems": problems})
    else:
        typer.echo(f"{name}@{alias} is version {version} now.")
