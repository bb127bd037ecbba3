"""The fault of tokens and certificates that change while callers ask: does a call fail, is an old one still good?

Each turn goes as an operator's does: the new one beside the old one, callers change over, the old one is taken away.
Between turns the files are broken for a while.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import grpc
import grpc.aio

from benchmarks.faults.calls import PREDICT, Ended, ask, codes, predict_request
from benchmarks.faults.fault import Place
from benchmarks.faults.findings import Finding
from benchmarks.faults.served import serving
from benchmarks.faults.target import UNBOUNDED, Target
from benchmarks.report import at_most, shown
from predictor.server.issuing import Issued, issue

TURNS, QUICK_TURNS = 10, 1
CALLERS: Final = 4
CALLS_A_CONNECTION: Final = 20
PATIENCE_S: Final = 30.0
CHANGE_OVER_S: Final = 0.3
"""What calls that were sent with the old token may take to arrive."""
PROBES: Final = 10
FAULT: Final = "tokens and certificates change under load"


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """What a caller shows, and by whom it knows the server."""

    token: str
    issued: Issued
    authorities: Path

    def channel(self, target: Target) -> grpc.aio.Channel:
        """A connection of its own."""
        tls = grpc.ssl_channel_credentials(
            self.authorities.read_bytes(), self.issued.client_key.read_bytes(), self.issued.client.read_bytes()
        )
        options = [*UNBOUNDED, ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(str(target), tls, options=options)

    @property
    def headers(self) -> tuple[tuple[str, str]]:
        """Of each call."""
        return (("authorization", f"Bearer {self.token}"),)


@final
@dataclass(frozen=True, slots=True)
class Files:
    """What the server was told to read."""

    folder: Path

    @property
    def tokens(self) -> Path:
        """One token a line."""
        return self.folder / "tokens.txt"

    @property
    def authorities(self) -> Path:
        """Of callers' certificates."""
        return self.folder / "authorities.pem"

    @property
    def options(self) -> tuple[str, ...]:
        """The server's command line."""
        own = Issued(self.folder)
        tls = ("--tls-cert", str(own.server), "--tls-key", str(own.server_key))
        return (*tls, "--tls-client-ca", str(self.authorities), "--token-file", str(self.tokens))

    def allow(self, *tokens: str) -> None:
        """These tokens alone."""
        put(self.tokens, "".join(f"caller predict {token}\n" for token in tokens).encode())

    def know(self, *issued: Issued) -> None:
        """The callers of these authorities alone."""
        put(self.authorities, b"".join(one.ca.read_bytes() for one in issued))

    def show(self, issued: Issued) -> None:
        """This certificate of the server's; for a moment it has the key of another."""
        put(Issued(self.folder).server, issued.server.read_bytes())
        put(Issued(self.folder).server_key, issued.server_key.read_bytes())


def put(path: Path, content: bytes) -> None:
    """Replace a file whole."""
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.chmod(0o600)
    beside.replace(path)


@final
@dataclass(slots=True)
class Counted:
    """What has come of it so far."""

    ends: list[Ended] = field(default_factory=list)
    changes: int = 0
    accepted: int = 0
    """Calls of old ones that were answered after the first was refused."""
    slowest_s: float = 0.0
    """From a file to its force."""


@final
class Callers:
    """Ask without pause, and change over when they are told.

    Args:
        target: the server.
        request: what is asked.
        shown: at first.
    """

    def __init__(self, target: Target, request: bytes, shown: Shown) -> None:
        self.target = target
        self.shown = shown
        self.counted = Counted()
        self._request = request
        self._done = False

    async def while_(self, work: Awaitable[None]) -> Counted:
        """Ask while this is done."""

        async def worker() -> None:
            try:
                await work
            finally:
                self._done = True

        await asyncio.gather(worker(), *(self._ask() for _ in range(CALLERS)))
        return self.counted

    async def is_answered(self, shown: Shown) -> bool:
        """Whether one who shows this gets an answer over a connection of its own."""
        async with shown.channel(self.target) as channel:
            end = await ask(channel, PREDICT, self._request, PATIENCE_S, shown.headers)
        return end.code is grpc.StatusCode.OK

    async def _ask(self) -> None:
        while not self._done:
            async with self.shown.channel(self.target) as channel:
                for _ in range(CALLS_A_CONNECTION):
                    end = await ask(channel, PREDICT, self._request, PATIENCE_S, self.shown.headers)
                    self.counted.ends.append(end)


def run(place: Place) -> Iterator[Finding]:
    """Take turns between two tokens and between two authorities."""
    first, second = issue(place.work / "first"), issue(place.work / "second")
    both = place.work / "both.pem"
    both.write_bytes(first.ca.read_bytes() + second.ca.read_bytes())
    shown = Shown("a" * 40, first, both), Shown("b" * 40, second, both)
    files = Files(place.work / "files")
    shutil.copytree(first.folder, files.folder)
    files.allow(shown[0].token)
    files.know(first)
    with serving(place.material.small, place.log, "--log-level", "error", *files.options) as server:
        # The name is in the certificate, as the address is.
        callers = Callers(server.target, predict_request(place.material.one_stock()), shown[0])
        counted = asyncio.run(callers.while_(turns(callers, files, shown, place.count(TURNS, QUICK_TURNS))))
        yield _finding(counted, is_alive=server.is_alive)


async def turns(callers: Callers, files: Files, shown: tuple[Shown, Shown], count: int) -> None:
    """So often there and back."""
    for turn in range(2 * count):
        old, new = shown[turn % 2], shown[1 - turn % 2]
        await change_token(callers, files, old, new)
        await change_certificates(callers, files, old, new)
        files.tokens.write_bytes(b"broken")
        Issued(files.folder).server.write_bytes(b"broken")
        await asyncio.sleep(2 * CHANGE_OVER_S)
        files.allow(new.token)
        files.show(new.issued)


async def change_token(callers: Callers, files: Files, old: Shown, new: Shown) -> None:
    """From the old one to the new one; all else stays."""
    coming = Shown(new.token, old.issued, old.authorities)
    await _until(callers, coming, lambda: files.allow(old.token, new.token), is_answered=True)
    callers.shown = coming
    await asyncio.sleep(CHANGE_OVER_S)
    await _take_away(callers, old, lambda: files.allow(new.token))


async def change_certificates(callers: Callers, files: Files, old: Shown, new: Shown) -> None:
    """The server's, then those that callers must show."""
    before = Shown(new.token, old.issued, old.issued.ca)
    await _take_away(callers, before, lambda: files.show(new.issued))
    await _until(callers, new, lambda: files.know(old.issued, new.issued), is_answered=True)
    callers.shown = new
    await asyncio.sleep(CHANGE_OVER_S)
    await _take_away(callers, Shown(new.token, old.issued, old.authorities), lambda: files.know(new.issued))


async def _take_away(callers: Callers, old: Shown, change: Callable[[], None]) -> None:
    """Change a file, wait until who shows the old one is refused, and see that it stays so."""
    await _until(callers, old, change, is_answered=False)
    for _ in range(PROBES):
        callers.counted.accepted += await callers.is_answered(old)


async def _until(callers: Callers, shown: Shown, change: Callable[[], None], *, is_answered: bool) -> None:
    """Change a file, and wait until it is in force."""
    change()
    begin = time.monotonic()
    while await callers.is_answered(shown) is not is_answered:
        if time.monotonic() - begin > PATIENCE_S:
            raise TimeoutError(f"the change was not in force after {PATIENCE_S:g} s")
        await asyncio.sleep(0.02)
    callers.counted.changes += 1
    callers.counted.slowest_s = max(callers.counted.slowest_s, time.monotonic() - begin)


def _finding(counted: Counted, *, is_alive: bool) -> Finding:
    failed = sum(end.code is not grpc.StatusCode.OK for end in counted.ends)
    return Finding(
        fault=FAULT,
        done=f"{counted.changes} changes while {CALLERS} callers ask, each with a connection for "
        f"{CALLS_A_CONNECTION} calls; files broken in between",
        calls=len(counted.ends),
        wrong=counted.accepted + (not is_alive),
        lost=failed,
        rows=[
            at_most("calls that fail", failed, 0, detail=codes(counted.ends)),
            at_most("calls with old ones answered after one was refused", counted.accepted, 0, detail=""),
            shown("slowest change from file to force, s", counted.slowest_s, detail="the server looks once a second"),
        ],
        detail=codes(counted.ends),
        naive="naive: a server that reads certificates at its start must be started again, and drops who is connected",
    )
