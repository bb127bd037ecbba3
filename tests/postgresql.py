"""A temporary PostgreSQL server from the operating system's packages."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final
from urllib.parse import quote

from adbc_driver_postgresql import dbapi
from free_ports import free_port

USER: Final = "quantra"
PASSWORD: Final = "s3cr3t/p@ss word%41"  # noqa: S105 (of a server that lives as long as its tests)
SERVANT: Final = "postgres"
"""The user created by the packages; the server refuses to run as root."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server that requires a password."""

    port: int

    @property
    def address(self) -> str:
        """The URI without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def uri(self, *, password: str = PASSWORD, database: str = "postgres") -> str:
        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str) -> None:
        with dbapi.connect(self.uri()) as connection:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.commit()


def missing() -> str:
    """Why no server can be started here; empty if one can be."""
    if _programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if _is_root() and shutil.which("runuser") is None:
        return "PostgreSQL does not run as root, and there is no runuser"
    return ""


@contextmanager
def running() -> Generator[Server]:
    """A server with an empty database on localhost, deleted afterwards."""
    programs = _programs()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="quantra-postgresql-") as name:
        folder = Path(name)
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        if _is_root():
            for path in (folder, folder / "password"):
                shutil.chown(path, SERVANT)
        data, port = str(folder / "data"), free_port()
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = [str(programs / "pg_ctl"), "-D", data]
        _run(
            [str(programs / "initdb"), "-D", data, "-U", USER, f"--pwfile={folder / 'password'}"],
            ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"],
        )
        _run(control, ["start", "-w", "-o", settings, "-l", str(folder / "log")])
        try:
            yield Server(port=port)
        finally:
            _run(control, ["stop", "-m", "immediate"])


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl, the newest where there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    installed = shutil.which("initdb")
    if found:
        return found[-1].parent
    return None if installed is None else Path(installed).resolve().parent


def _is_root() -> bool:
    return os.name == "posix" and os.geteuid() == 0


def _run(command: list[str], arguments: list[str]) -> None:
    servant = ["runuser", "-u", SERVANT, "--"] if _is_root() else []
    subprocess.run(
        [*servant, *command, *arguments], check=True, cwd="/", stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
