"""The commands `quantra serve` and `quantra certs`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson
from predictor.cli.output import write_json
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.server import ServeFlags, logs
from predictor.server import serve as serve_models
from predictor.server.lifecycle_calls import LoadLifecycle

if TYPE_CHECKING:
    from predictor.server.issued_certificates import IssuedCertificates


def certs(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder to write into; if missing, it is created, and git ignores its files.",
            show_default=False,
        ),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name or address of the server. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make certificates for development: an authority, a server's and a client's.

    They are valid for a year, for localhost, 127.0.0.1 and ::1. Existing files are not overwritten.
    """
    try:
        from predictor.server.issued_certificates import issue
    except ModuleNotFoundError:
        raise MissingPackageError.of("cryptography", "tls", "making certificates") from None
    issued = issue(folder, host or ())
    if as_json:
        write_json({path.name: str(path) for path in issued.all})
    else:
        typer.echo(describe_certificates(issued))


def describe_certificates(issued: "IssuedCertificates") -> str:
    """Text on how to use the certificates."""
    ca, server, server_key, client, client_key = (
        shlex.quote(str(path))
        for path in (issued.ca, issued.server, issued.server_key, issued.client, issued.client_key)
    )
    return f"""{issued.folder} has an authority (ca.pem, ca.key), a server certificate and a client certificate.
ca.key can issue certificates for any server or client: keep it private, and use it only for development.

Serve to clients that present the client certificate:
    quantra serve --models models --tls-cert {server} --tls-key {server_key} --tls-client-ca {ca}
Forecast from the command line:
    quantra predict --server 127.0.0.1:50051 --bars bars.csv --tls-ca {ca} --tls-cert {client} --tls-key {client_key}
Forecast from Python:
    from pathlib import Path
    from quantra import BarPanel, QuantraClient
    from predictor.client import ClientCredentials
    ca, cert, key = map(Path, {[str(path) for path in (issued.ca, issued.client, issued.client_key)]})
    credentials = ClientCredentials(ca=ca, cert=cert, key=key)
    with QuantraClient("127.0.0.1:50051", credentials=credentials) as client:
        print(client.predict(BarPanel.read("bars.csv")))"""


@with_flags
def serve(*, flags: ServeFlags) -> None:
    """Serve models over gRPC until Ctrl+C or SIGTERM.

    When the server is ready, it writes one line of JSON with the port to standard output. The log goes to stderr.
    """
    run_server(flags)


def run_server(flags: ServeFlags, load_lifecycle: LoadLifecycle | None = None) -> NoReturn:
    """Serve by these flags, and exit; `load_lifecycle` is that of `predictor.server.serve`."""
    try:
        settings = flags.settings()
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    logs.set_up(flags.log)
    raise typer.Exit(serve_models(settings, flags.log, load_lifecycle))
