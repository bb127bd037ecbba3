"""`quantra serve` and `quantra certs`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson
from predictor.cli.output import write_json
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.server import ServeFlags, logs
from predictor.server import serve as serve_models

if TYPE_CHECKING:
    from predictor.server.issued_certificates import IssuedCertificates


def certs(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; it may be missing.", show_default=False)],
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name or address of the server's. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make certificates for development: an authority, a server's and a client's.

    They are good for a year, for localhost, 127.0.0.1 and ::1. Nothing that is there is overwritten.
    """
    try:
        from predictor.server.issued_certificates import issue
    except ModuleNotFoundError:
        raise MissingPackageError.of("cryptography", "tls", "making certificates") from None
    issued = issue(folder, host or ())
    if as_json:
        write_json({path.name: str(path) for path in issued.all})
    else:
        typer.echo(advice(issued))


def advice(issued: "IssuedCertificates") -> str:
    """What can be done with them next."""
    ca, server, server_key, client, client_key = (
        shlex.quote(str(path))
        for path in (issued.ca, issued.server, issued.server_key, issued.client, issued.client_key)
    )
    return f"""{issued.folder} has an authority (ca.pem, ca.key), a certificate of a server and one of a client.
Whoever has ca.key can pose as any of them: keep it to yourself, and use it for nothing but development.

Serve with them, to callers that show the client's certificate:
    quantra serve --models models --tls-cert {server} --tls-key {server_key} --tls-client-ca {ca}
Ask from the command line:
    quantra predict --server 127.0.0.1:50051 --bars bars.csv --tls-ca {ca} --tls-cert {client} --tls-key {client_key}
Ask from Python:
    from pathlib import Path
    from predictor import BarPanel
    from predictor.client import ClientCredentials, QuantraClient
    ca, cert, key = map(Path, {[str(path) for path in (issued.ca, issued.client, issued.client_key)]})
    shown = ClientCredentials(ca=ca, cert=cert, key=key)
    with QuantraClient("127.0.0.1:50051", credentials=shown) as client:
        print(client.predict(BarPanel.read("bars.csv")))"""


@with_flags
def serve(*, flags: ServeFlags) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    Once calls are answered, one line of JSON with the port appears on standard output. The log goes to stderr.
    """
    try:
        settings = flags.settings()
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    logs.set_up(flags.log)
    raise typer.Exit(serve_models(settings, flags.log))
