"""Throughput with TLS and a token against plain text: two servers with the same model, called in turn."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.calling.load import Access, Calls, Load, Turn, load
from benchmarks.calling.rates import WINDOWS, pair_rows
from benchmarks.calling.subject import Subject, server
from benchmarks.report import Row
from predictor.server.issued_certificates import issue

REACH: Final = 0.85
TOKEN: Final = "t" * 64
OTHER_TOKENS: Final = 9
"""Other tokens in the file; the server compares each call with all of them."""


def secured_rows(subject: Subject, folder: Path, rounds: int, seconds: float, *, judged: bool) -> list[Row]:
    """Calls per second with TLS and a token against plain text, windows in.

    Args:
        subject: the model and its requests.
        folder: new folder for certificates and tokens.
        rounds: number of rounds; odd ones run in reverse order.
        seconds: length of one turn.
        judged: whether the rows are judged.
    """
    requests = {WINDOWS: subject.asked_with_windows()}
    with server(subject.models) as target, load(target, requests) as plain, secured(subject, folder) as safe:

        def run(asking: Load) -> Callable[[int], Calls]:
            return lambda many: asking.run(Turn(WINDOWS, many, seconds))

        return pair_rows("TLS and token / plain", run(safe), run(plain), REACH, rounds, judged=judged)


@contextmanager
def secured(subject: Subject, folder: Path) -> Generator[Load]:
    """Start a server with TLS and tokens, and its load."""
    issued, tokens = issue(folder), folder / "tokens.txt"
    others = "".join(f"other predict {number:040}\n" for number in range(OTHER_TOKENS))
    tokens.write_text(f"{others}load predict {TOKEN}\n", encoding="utf-8")
    tokens.chmod(0o600)
    options = ("--tls-cert", str(issued.server), "--tls-key", str(issued.server_key), "--token-file", str(tokens))
    access = Access(issued.ca.read_bytes(), TOKEN)
    with (
        server(subject.models, *options) as target,
        load(target, {WINDOWS: subject.asked_with_windows()}, access) as asking,
    ):
        yield asking
