"""The command `quantra ui`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, final

import typer

from predictor.cli.flags import with_flags
from predictor.errors import ConfigurationError, MissingPackageError
from predictor.flags import Flag
from predictor.server import ServerSettings, TlsFiles, logs, parse_listening

if TYPE_CHECKING:
    from predictor.web.page_access import LoadPage
    from predictor.web.settings import WebSettings

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
        """Create the settings. Programs, and another server, get the token of the variable QUANTRA_TOKEN.

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
            raise ConfigurationError("--tls-ca, --client-cert and --client-key go with --server")
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
        from predictor.web.main import serve
    except ModuleNotFoundError:
        raise MissingPackageError.of("starlette", "ui", "HTTP") from None
    logs.set_up(logs.LogSettings())
    raise typer.Exit(serve(settings, load_page))
