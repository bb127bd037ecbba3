"""Headless Chromium, driven over two pipes by the Chrome DevTools Protocol."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
MAX_WAIT_S: Final = 60
"""Timeout per response, so that a hanging browser does not block its test."""
FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
)
_SCROLL: Final = """(async () => {
  for (let top = 0; top < document.documentElement.scrollHeight; top += innerHeight) {
    scrollTo(0, top);
    await new Promise(done => setTimeout(done, 50));
  }
  scrollTo(0, 0);
})()"""
_COMPLAINTS: Final = {"Runtime.exceptionThrown", "Log.entryAdded"}


def missing() -> str:
    """Why no browser can be started here; empty if one can be."""
    return "" if _program() else "Chromium is not installed (apt-get install chromium)"


def _program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@final
class Browser:
    """One browser window.

    Args:
        commands: file descriptor that messages are written to, JSON with a zero byte after each.
        answers: file descriptor that they are read from.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """Errors of scripts and refused loads since the last `open`."""
        self._loaded = False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def size(self, width: int, height: int = 900, *, phone: bool = False, dark: bool = False) -> None:
        """Set the window size in CSS pixels; a phone has touch and no hover."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        hover = {"name": "hover", "value": "none" if phone else "hover"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme, hover])

    def open(self, path: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Show a page, and wait until it is loaded."""
        with self.loading():
            self.ask("Page.navigate", url=address)

    @contextmanager
    def loading(self, longest_s: float = MAX_WAIT_S) -> Generator[None]:
        """Wait until the page that the block leads to is loaded, at most `longest_s`."""
        self._loaded = False
        self.complaints = []
        yield
        deadline = time.monotonic() + longest_s
        while not self._loaded:
            self._note(self._read(deadline))

    def choose_files(self, selector: str, *paths: Path) -> None:
        """Choose files in an input, as a person does."""
        page = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=page, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def value(self, script: str) -> Any:
        """Evaluate an expression on the page and await its result, as JSON."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def whole_picture(self) -> bytes:
        """Screenshot of the whole page as PNG, after scrolling through it."""
        self.value(_SCROLL)
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(taken["data"])

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._commands, sent) :]
        deadline = time.monotonic() + MAX_WAIT_S
        while (answer := self._read(deadline)).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser has not answered for {MAX_WAIT_S} s"
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser is gone"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        """Record an event that the page sends."""
        kind, told = event.get("method"), event.get("params", {})
        self._loaded = self._loaded or kind == "Page.loadEventFired"
        if kind in _COMPLAINTS or (kind == "Runtime.consoleAPICalled" and told["type"] in {"error", "warning"}):
            self.complaints.append(json.dumps(told)[:600])


@contextmanager
def running() -> Generator[Browser]:
    """A browser with a temporary profile."""
    program = _program()
    assert program is not None
    as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    with tempfile.TemporaryDirectory(prefix="quantra-chromium-", ignore_cleanup_errors=True) as profile:
        # Chromium uses descriptors 3 and 4.
        flags = (*FLAGS, *as_root, f"--user-data-dir={profile}")
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{from_us} 4>&{to_us}', program, *flags],
            pass_fds=(from_us, to_us),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        try:
            yield Browser(to_browser, from_browser)
        finally:
            process.terminate()
            process.wait(MAX_WAIT_S)
            os.close(to_browser)
            os.close(from_browser)
