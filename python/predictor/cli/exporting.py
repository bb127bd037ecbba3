"""`quantra export`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from predictor.cli.machine import write_json
from predictor.cli.options import ArtifactArgument, AsJson
from predictor.interruption import loading

if TYPE_CHECKING:
    from predictor.export import Exported, Port

EXAMPLE: Final = "Example: quantra export models/demo/1 --onnx demo.onnx"

_KEPT: Final = ("kind", "target_kind", "lag", "horizons", "quantiles", "schema_hash", "weights_hash")
"""What is shown of the file's metadata."""


def export(
    *,
    artifact: ArtifactArgument,
    onnx: Annotated[Path, typer.Option(metavar="FILE", help="What to write; it must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Write a model as an ONNX file, from the network's inputs to calibrated quantiles.

    The file is run against the model itself before it is put in place. Needs the extra `onnx`.
    """
    with loading():
        from predictor.export import export_onnx  # brings torch, which --help need not wait for

    made = export_onnx(artifact, onnx)
    if as_json:
        write_json({**asdict(made), "file": str(made.file)})
        return
    _tell(made, Console(highlight=False))


def _tell(made: "Exported", console: Console) -> None:
    answers = f"✓ its answers differ from the model's by {made.difference:.1e} at most"
    console.print(f"Wrote {made.file}, {made.size} bytes, ONNX opset {made.opset}.", soft_wrap=True, markup=False)
    console.print(Text(answers, style="green"))
    for title, ports in (("inputs", made.inputs), ("outputs", made.outputs)):
        console.print(_ports(title, ports))
    if made.absent:
        console.print(f"The model has no {' and no '.join(made.absent)} features: the graph takes none.")
    table = _table("metadata")
    for key in _KEPT:
        table.add_row(key, Text(made.metadata[key]))
    console.print(table)


def _ports(title: str, ports: "tuple[Port, ...]") -> Table:
    table = _table(title)
    for port in ports:
        table.add_row(port.name, Text(f"{port.dtype} {list(port.shape)}".replace("'", "")))
    return table


def _table(title: str) -> Table:
    table = Table(title=Text(f"\n{title}"), title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    return table
