"""The commands `quantra serve`, `quantra ui` and `quantra certs`."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, final

import typer

from predictor.cli.flags import with_flags
from predictor.cli.options import AsJson
from predictor.cli.output import write_json
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.flags import Flag
from predictor.server import ServeFlags, ServerSettings, TlsFiles, logs, parse_listening
from predictor.server import serve as serve_models
from predictor.server.lifecycle_calls import LoadLifecycle

if TYPE_CHECKING:
    from predictor.server.issued_certificates import IssuedCertificates
    from predictor.web.page_access import LoadPage
    from predictor.web.settings import WebSettings


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
    except ModuleNotFoundError as error:
        if error.name != "cryptography":
            raise
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


_NAMES = typer.Option(metavar="NAME", help="Another name of this server, which browsers may use. Repeatable.")
_ORIGINS = typer.Option(metavar="URL", help="A web site whose pages may call this server. Repeatable.")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UiFlags:
    """The flags of `quantra ui`."""

    models: Annotated[Path, Flag("Folder of NAME/VERSION artifacts.", metavar="DIR")] = Path("models")
    server: Annotated[str, Flag("Show the models of this server instead; also unix:PATH.", metavar="HOST:PORT")] = ""
    tls_ca: Annotated[
        Path | None,
        Flag("With --server: use TLS, with the certificate authorities of the server, PEM.", metavar="FILE"),
    ] = None
    client_cert: Annotated[Path | None, Flag("With --server: the certificate to show it, PEM.", metavar="FILE")] = None
    client_key: Annotated[Path | None, Flag("Its private key, PEM.", metavar="FILE")] = None
    ledger: Annotated[str, Flag("Show this ledger, as `quantra daily` writes it.", metavar="LEDGER")] = ""
    adaptive: Annotated[bool, Flag("Use the widths that quantra daily --adaptive records in the ledger.")] = False
    listen: Annotated[str, Flag("Port 0 picks a free one.", metavar="HOST:PORT")] = "127.0.0.1:50080"
    no_browser: Annotated[bool, Flag("Do not open the page in a browser.")] = False
    device: Annotated[str, Flag("Device to compute on: auto, cpu, cuda or cuda:N.")] = "auto"
    token_file: Annotated[
        Path | None, Flag("Access tokens of programs: lines of NAME ROLE[,ROLE] TOKEN.", metavar="FILE")
    ] = None
    tls_cert: Annotated[Path | None, Flag("Enable TLS with this server certificate, PEM.", metavar="FILE")] = None
    tls_key: Annotated[Path | None, Flag("Its private key, PEM.", metavar="FILE")] = None
    host: Annotated[list[str] | None, _NAMES] = None
    allow_origin: Annotated[list[str] | None, _ORIGINS] = None

    def settings(self) -> "WebSettings":
        """Create the settings. The token for programs and for another server is that of the variable QUANTRA_TOKEN.

        Raises:
            ConfigurationError: An address is invalid, half of TLS is missing, or as `WebSettings`.
        """
        from predictor.client import ClientCredentials
        from predictor.web.settings import RemoteServer, WebSettings

        listen, tls = parse_listening(self.listen), TlsFiles.of(self.tls_cert, self.tls_key, None)
        if tls is None and not listen.is_loopback:
            raise ConfigurationError(
                f"{listen} is reachable from other machines without encryption; listen on 127.0.0.1, or set "
                "--tls-cert, --tls-key and --token-file"
            )
        if not self.server and (self.tls_ca or self.client_cert or self.client_key):
            raise ConfigurationError("--tls-ca, --client-cert and --client-key need --server")
        credentials = ClientCredentials(ca=self.tls_ca, cert=self.client_cert, key=self.client_key)
        return WebSettings(
            remote=RemoteServer(address=self.server, credentials=credentials) if self.server else None,
            server=ServerSettings(
                models=self.models,
                listen=listen,
                tls=tls,
                token_file=self.token_file,
                token=os.environ.get("QUANTRA_TOKEN", ""),
                device=self.device,
                ledger=self.ledger,
                adaptive=self.adaptive,
            ),
            hosts=tuple(self.host or ()),
            origins=tuple(self.allow_origin or ()),
            opens_browser=not self.no_browser,
        )


@with_flags
def ui(*, flags: UiFlags) -> None:
    """Answer calls over HTTP as JSON until Ctrl+C or SIGTERM.

    When the server is ready, it writes one line of JSON with the port to standard output. The log goes to stderr.
    """
    run_ui(flags)


def run_ui(flags: UiFlags, load_page: "LoadPage | None" = None) -> NoReturn:
    """Serve by these flags, and exit; `load_page` is that of `predictor.web.main.serve`."""
    try:
        settings = flags.settings()
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    try:
        from predictor.web.main import serve as serve_page
    except ModuleNotFoundError as error:
        if error.name != "starlette":
            raise
        raise MissingPackageError.of("starlette", "ui", "HTTP") from None
    logs.set_up(logs.LogSettings())
    raise typer.Exit(serve_page(settings, load_page))
