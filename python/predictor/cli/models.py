"""The command `quantra models`, which lists the models of a folder or a server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from predictor.canonical import Json
from predictor.card import Card
from predictor.catalog import ModelInfo, ModelListing
from predictor.cli.options import AsJson
from predictor.cli.output import print_next_commands, quantra, write_json
from predictor.client import ClientCredentials, QuantraClient
from predictor.interruption import exit_on_interrupt
from predictor.report.templates import format_session
from predictor.skill import format_skill

if TYPE_CHECKING:
    from predictor.registry import AliasMove

_CHAMPION: Final = "champion"
_DEFAULT: Final = Path("models")
_HEADINGS: Final = ("model", "kind", "aliases", "trained to", "calendar ends", "size")
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def models(
    *,
    models: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of NAME/VERSION artifacts; by default models.")
    ] = None,
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="List the models of this server; also unix:PATH.")
    ] = "",
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use TLS: certificate authorities of the server, PEM.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate to show the server, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show which versions were champion, since when, and why.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the models of a folder or a server: versions, aliases, skill, dates and size.

    For a folder, only manifests are read; `quantra inspect` verifies a version.
    """
    if models is not None and server:
        raise typer.BadParameter("give either --models DIR or --server HOST:PORT")
    if models is None and not server:
        models = _DEFAULT
        if not models.is_dir():
            raise typer.BadParameter(f"there is no folder {models} here; give --models DIR or --server HOST:PORT")
    if history:
        if models is None:
            raise typer.BadParameter("--history reads a folder: give --models DIR instead of --server")
        _print_history(models, as_json=as_json)
        return
    if models is None:
        listings = _list_server_models(server, ClientCredentials(ca=tls_ca, cert=tls_cert, key=tls_key))
    elif tls_ca or tls_cert or tls_key:
        raise typer.BadParameter("--tls-ca, --tls-cert and --tls-key go with --server")
    else:
        with exit_on_interrupt():
            from predictor.registry import list_models  # imports torch, which --help does not need

        listings = list_models(models)
    if as_json:
        write_json({"models": [_encode_listing(listing) for listing in listings]})
        return
    console = Console(highlight=False)
    for line in _show_models(listings):
        console.print(line)
    print_next_commands(
        *(_suggest_for_folder(models, listings) if models is not None else _suggest_for_server(server, listings))
    )


def _print_history(models: Path, *, as_json: bool) -> None:
    """Print the moves of every model's aliases, oldest first."""
    with exit_on_interrupt():
        from predictor.registry import read_histories  # imports torch, which --help does not need

    histories = read_histories(models)
    if as_json:
        write_json(
            {"history": [{"model": name, **asdict(move)} for name, moves in histories.items() for move in moves]}
        )
        return
    console = Console(highlight=False)
    for line in _list_history(histories):
        console.print(line)
    print_next_commands(quantra("models", "--models", models))


def _list_history(histories: "Mapping[str, Sequence[AliasMove]]") -> Iterator[RenderableType]:
    """One line per move, and one below it for each gate that was overridden."""
    for name, moves in histories.items():
        for move in moves:
            before = "" if move.previous is None else f"{move.previous} -> "
            yield Text(f"{move.at}  {name}@{move.alias}: {before}{move.version}  {move.kind.value}: {move.reason}")
            for gate in move.gates:
                if gate.overridden:
                    line = Text(f"overridden gate {gate.name}: needed {gate.need}, had {gate.have}", style="yellow")
                    yield Padding(line, (0, 0, 0, 2))
        if not moves:
            yield Text(f"{name}: no recorded moves of its aliases", style="dim")


def _list_server_models(server: str, credentials: ClientCredentials) -> tuple[ModelListing, ...]:
    with QuantraClient(server, credentials=credentials) as client:
        return tuple(map(_summarise_model, client.models()))


def _summarise_model(info: ModelInfo) -> ModelListing:
    card = Card.from_json(info.card_json)
    return ModelListing(
        name=info.name,
        version=info.version,
        aliases=info.aliases,
        kind=info.kind,
        skill=card.skill,
        trained_to=card.trained_to,
        calendar_ends=info.calendar_ends,
    )


def _show_models(listings: Sequence[ModelListing]) -> Iterator[RenderableType]:
    """A heading, and two lines per version: its columns, then its skill or why it cannot be read."""
    rows = [_format_cells(listing) for listing in listings]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    yield Text(_align(_HEADINGS, widths), style="dim")
    for listing, row in zip(listings, rows, strict=True):
        yield Text(_align(row, widths), style="bold")
        status = Text(listing.problem or format_skill(listing.skill), style="red" if listing.problem else "")
        yield Padding(status, (0, 0, 0, 2))


def _format_cells(listing: ModelListing) -> tuple[str, ...]:
    dates = (format_session(day) or "unknown" for day in (listing.trained_to, listing.calendar_ends))
    return (
        f"{listing.name}@{listing.version}",
        listing.kind,
        ", ".join(listing.aliases),
        *dates,
        _format_size(listing.size),
    )


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _format_size(count: int | None) -> str:
    """In the largest unit that keeps it at 1 or more; empty if unknown."""
    if count is None:
        return ""
    unit, name = next(((size, name) for size, name in _UNITS if count >= size), _UNITS[-1])
    return f"{count / unit:.1f} {name}"


def _encode_listing(listing: ModelListing) -> Json:
    skill = None if listing.skill is None else {"verdict": listing.skill.verdict.value, "line": listing.skill.line}
    return {
        "name": listing.name,
        "version": listing.version,
        "aliases": listing.aliases,
        "kind": listing.kind,
        "skill": skill,
        "trained_to": listing.trained_to or None,
        "calendar_ends": listing.calendar_ends or None,
        "bytes": listing.size,
        "problem": listing.problem or None,
    }


def _suggest_for_folder(folder: Path, listings: Sequence[ModelListing]) -> Iterator[str]:
    readable = [listing for listing in listings if not listing.problem]
    if not readable:
        return
    last = readable[-1]
    yield quantra("inspect", folder / last.name / str(last.version))
    if not any(_CHAMPION in listing.aliases for listing in listings if listing.name == last.name):
        yield quantra("alias", last.name, _CHAMPION, last.version, "--models", folder)
    yield quantra("serve", "--models", folder)


def _suggest_for_server(server: str, listings: Sequence[ModelListing]) -> Iterator[str]:
    yield from (
        quantra("predict", "--server", server, "--model", listing.name, "--bars", "BARS") for listing in listings[:1]
    )
