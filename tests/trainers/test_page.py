"""The page of `quantra ui`, of a server in a process of its own: over HTTP, and in a real browser."""

import gzip
import http.client
import importlib.util
import io
import json
import re
import zipfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from html import unescape
from importlib.machinery import ModuleSpec
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import browser
import exports
import numpy as np
import polars as pl
import pytest
from artifacts import recent_bars
from browser import Browser
from daily_runs import daily_bars, run_evenings, save_daily_model
from free_ports import free_port
from market import scaled
from pages import page_of
from serving import server_process
from shown_commands import ROOT, run_command, run_python, running

from predictor.errors import BarsError, RequestTooLargeError
from predictor.forecaster import Forecaster
from trainers.stock.page import uploads
from trainers.stock.page.uploads import ReadingChoice, UploadedBars

pytestmark = pytest.mark.slow

LOOK: Final = (Path(__file__).parents[1] / "newcomer" / "look.js").read_text("utf-8")
HEAVIEST: Final = 2_000_000
AXE: Final = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
PAGES: Final = ("/", "/bars", "/forecast", "/universe", "/training", "/models", "/ledger", "/calls")
MAX_TRAINING_S: Final = 300.0
HOSTILE: Final = "<script>alert(1)</script>"


@dataclass(frozen=True)
class Page:
    """A running page, with two versions of a model, a ledger and a file of bars."""

    port: int
    address: str
    folder: Path
    cookie: str = ""

    @property
    def own(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, http.client.HTTPMessage]:
        """Status, text and headers of a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        given = {"cookie": self.cookie, "origin": self.own} if headers is None else headers
        connection.request(method, path, body, dict(given))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text, response.headers

    def get(self, path: str, **query: str) -> str:
        """The text of a page, without markup characters."""
        status, text, _ = self.ask("GET", f"/page{path}" + (f"?{urlencode(query)}" if query else ""))
        assert status == 200, message_of(text)
        return text

    def post(self, path: str, **form: str) -> tuple[int, str]:
        status, text, _ = self.ask("POST", f"/page{path}", urlencode(form).encode())
        return status, text

    def send(self, name: str, content: bytes, *, is_first: bool = True) -> tuple[int, str]:
        """Drop one file."""
        status, text, _ = self.ask("POST", f"/page/files?name={quote(name)}{'&first=yes' * is_first}", content)
        return status, message_of(text)


def message_of(text: str) -> str:
    found = re.search(r'id="message">(.*?)</p>', text)
    return unescape(found[1]) if found else ""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[Page]:
    folder = tmp_path_factory.mktemp("page")
    models = save_daily_model(folder / "models" / "mine")
    save_daily_model(folder / "models" / "mine", 2)
    bars = daily_bars(20100507)
    run_evenings(folder / "ledger.db", models / "mine", bars, first=20100405, evidence_every=5)
    bars.write_csv(folder / "bars.csv")
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        options = ("--no-browser", "--ledger", str(folder / "ledger.db"))
        running = stack.enter_context(server_process(models, log, *options, program=("quantra", "ui")))
        port, address = running.ready["port"], running.ready["page"]
        assert isinstance(port, int)
        assert isinstance(address, str)
        bare = Page(port, address, folder)
        _, _, headers = bare.ask("GET", address.removeprefix(bare.own), headers={})
        yield Page(port, address, folder, headers["set-cookie"].partition(";")[0])


@pytest.fixture
def filled(page: Page) -> Page:
    """The page with the bars of its folder."""
    assert page.send("bars.csv", (page.folder / "bars.csv").read_bytes()) == (204, "")
    return page


# --- access


def test_the_page_opens_only_with_its_token(page: Page) -> None:
    for cookie in ({}, {"cookie": "quantra-page=wrong"}):
        for path in ("/page/", "/page/bars", "/page/models", "/page/?token=wrong", "/page/unknown"):
            assert page.ask("GET", path, headers=cookie)[0] == 403
    status, _, headers = page.ask("GET", page.address.removeprefix(page.own), headers={})
    assert (status, headers["location"]) == (303, "/page/")
    assert {"HttpOnly", "SameSite=strict"} <= set(headers["set-cookie"].split("; "))


def test_another_site_cannot_change_anything(page: Page) -> None:
    for origin in ({}, {"origin": "https://evil.example"}, {"origin": f"http://127.0.0.1:{page.port + 1}"}):
        status, _, _ = page.ask(
            "POST", "/page/promote", b"version=mine@2&reason=evil", {"cookie": page.cookie, **origin}
        )
        assert status == 403


@pytest.mark.parametrize("path", PAGES)
def test_only_the_scripts_of_a_page_may_run_and_nothing_is_loaded(filled: Page, path: str) -> None:
    _, text, headers = filled.ask("GET", f"/page{path}")
    policy = headers["content-security-policy"]
    (nonce,) = re.findall(r"script-src 'nonce-([\w-]+)'", policy)
    assert policy.startswith("default-src 'none'")
    scripts = re.findall(r"<script([^>]*)>", text)
    assert {one for one in scripts if "application/json" not in one} == {f' nonce="{nonce}"'}
    assert all(one.startswith(("/page/", "#", "/openapi.json")) for one in page_of(text).references)
    assert len(text.encode()) <= HEAVIEST


# --- bars


def test_the_bars_are_read_and_compared_with_their_calendar(filled: Page) -> None:
    text = filled.get("/bars")
    assert "bars.csv read as plain, AAPL, IBM, MSFT, 2007-01-03 to 2010-05-07" in text
    assert "Compared with the calendar XNYS." in text


def test_a_choice_decides_a_doubtful_file(page: Page) -> None:
    days = [f"{day:02d}/{month:02d}/2023" for month in (1, 2, 3) for day in range(1, 13)]
    lines = ["date,open,high,low,close,volume", *(f"{day},1,1.2,0.9,1.1,5" for day in days)]
    assert page.send("AAPL.csv", "\n".join(lines).encode())[0] == 204
    assert "ambiguous" in message_of(page.get("/bars")).lower() or "order" in message_of(page.get("/bars"))
    assert page.post("/bars", date_order="dmy")[0] == 303
    assert "2023-01-01 to 2023-03-12" in page.get("/bars")


def test_several_files_are_read_as_one_panel(page: Page) -> None:
    for place, symbol in enumerate(("AAPL", "IBM")):
        path = page.folder / f"{symbol}.csv"
        recent_bars(symbol).write_csv(path)
        assert page.send(path.name, path.read_bytes(), is_first=not place)[0] == 204
    assert "AAPL, IBM, 2012-05-14 to 2013-03-01" in page.get("/bars")


@pytest.mark.parametrize(
    "name",
    ["../../evil", "..", "", "a.zip", "a.csv.gz", "a.xls", ".csv", "nul\0.csv", "a" * 200 + ".csv"],
)
def test_a_file_of_another_kind_or_with_an_unusual_name_is_rejected(page: Page, name: str) -> None:
    status, message = page.send(name, b"date,close")
    assert (status, "is not read here" in message) == (400, True)


def test_folders_in_a_name_are_ignored() -> None:
    uploaded = UploadedBars()
    names = ("../../up.csv", "/etc/passwd.csv", "C:\\Windows\\win.csv", "a/../b.csv")
    paths = []
    for name in names:
        with uploaded.create(name) as file:
            paths.append(Path(file.name))
    assert uploaded.names == ("up.csv", "passwd.csv", "win.csv", "b.csv")
    (folder,) = {path.parent for path in paths}
    uploaded.close()
    assert not folder.exists()


def test_a_compressed_file_is_not_unpacked(page: Page) -> None:
    bomb = gzip.compress(b"0," * (8 << 20))
    assert page.send("bomb.csv", bomb)[0] == 204
    assert "is compressed" in message_of(page.get("/bars"))


def recent_table() -> pl.DataFrame:
    """AAPL's bars as a table."""
    bars = recent_bars("AAPL")
    days = pl.Series(bars.sessions).cast(pl.String).str.to_date("%Y%m%d")
    return pl.DataFrame(
        {"date": days, **{name: getattr(bars, name)[0] for name in ("open", "high", "low", "close", "volume")}}
    )


def read_as(name: str, content: bytes) -> UploadedBars:
    """A dropped file, as it is read."""
    uploaded = UploadedBars()
    with uploaded.create(name) as file:
        file.write(content)
    uploaded.read(ReadingChoice())
    uploaded.close()
    return uploaded


def parquet_of(table: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    table.write_parquet(content)
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "content"), [("AAPL.parquet", parquet_of(recent_table())), ("bars.xlsx", exports.excel())]
)
def test_a_table_of_another_program_is_read(name: str, content: bytes) -> None:
    uploaded = read_as(name, content)
    assert uploaded.problem == ""
    assert uploaded.checked is not None
    assert uploaded.checked.reading.panel.symbols[0] == "AAPL"


@pytest.mark.parametrize("name", ["a.parquet", "a.xlsx"])
def test_a_file_with_another_content_than_its_name_is_rejected(name: str) -> None:
    assert "or damaged" in read_as(name, b"date,close\n2023-01-02,1\n" * 10).problem


def test_a_workbook_that_unpacks_to_much_is_rejected_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_UNPACKED_BYTES", 1 << 20)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b" " * (4 << 20))
        archive.infolist()[0].file_size = 10  # its directory announces less
    assert "more than 1 MiB unpacked" in read_as("a.xlsx", bomb.getvalue()).problem


def test_a_parquet_file_with_many_equal_cells_is_rejected_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_CELLS", 1000)
    table = pl.DataFrame({"close": pl.repeat(1.0, 10_000, eager=True)})
    assert "has 10000 rows of 1 columns" in read_as("a.parquet", parquet_of(table)).problem


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_others(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "fastexcel" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)
    assert "quantra[excel]" in read_as("a.xlsx", exports.excel()).problem


def test_files_are_limited_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_FILES", 1)
    monkeypatch.setattr(uploads, "MAX_BYTES", 10)
    uploaded = UploadedBars()
    uploaded.create("a.csv").close()
    with pytest.raises(RequestTooLargeError):
        uploaded.create("b.csv")
    uploaded.grow(b"x" * 10)
    with pytest.raises(RequestTooLargeError):
        uploaded.grow(b"x")
    uploaded.close()


def test_an_announced_upload_of_2_gib_is_rejected_unread(page: Page) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    connection.putrequest("POST", "/page/files?name=a.csv&first=yes")
    for name, value in {"cookie": page.cookie, "origin": page.own, "content-length": str(2 << 30)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.headers["connection"]) == (413, "close")
    response.read()
    connection.close()


def test_forgotten_bars_are_deleted() -> None:
    uploaded = UploadedBars()
    with uploaded.create("a.csv") as file:
        file.write(b"date,open,high,low,close,volume\n")
    uploaded.read(ReadingChoice())
    assert "a.csv" in uploaded.problem
    uploaded.close()
    with pytest.raises(BarsError):
        _ = uploaded.reading
    assert not Path(file.name).exists()


def test_symbols_are_limited_before_their_bars_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uploads, "MAX_SYMBOLS", 1)
    recent_bars("AAPL", "IBM").write_csv(tmp_path / "bars.csv")
    uploaded = UploadedBars()
    with uploaded.create("bars.csv") as file:
        file.write((tmp_path / "bars.csv").read_bytes())
    uploaded.read(ReadingChoice())
    assert uploaded.problem.startswith("the bars have 2 symbols, at most 1")
    uploaded.close()


def test_a_hostile_symbol_is_only_text(page: Page) -> None:
    bars = daily_bars(20100507).select(["AAPL"])
    bars.write_csv(page.folder / "hostile.csv")
    content = (page.folder / "hostile.csv").read_text().replace("AAPL", HOSTILE)
    assert page.send("hostile.csv", content.encode())[0] == 204
    for path in ("/bars", "/forecast", "/universe"):
        _, text, _ = page.ask("GET", f"/page{path}")
        assert HOSTILE not in text


# --- forecasts


def test_the_forecast_is_that_of_the_model(filled: Page) -> None:
    text = filled.get("/forecast", model="mine@1", symbol="IBM")
    with Forecaster.load(filled.folder / "models" / "mine" / "1") as model:
        forecast = model.predict(daily_bars(20100507).select(["IBM"]))
    assert forecast.prices is not None
    assert set(map(str, forecast.prices[0].ravel().tolist())) <= set(re.findall(r'<data value="([^"]+)"', text))


def test_the_reasons_are_those_of_the_chosen_horizon_and_quantile(filled: Page) -> None:
    text = filled.get("/forecast", symbol="IBM", horizon="1", quantile="0.9")
    assert '<option value="1" selected>' in text
    assert '<option value="0.9" selected>' in text
    assert "1 session, 90 %" in text


def test_the_shown_requests_run(filled: Page) -> None:
    text = filled.get("/forecast", symbol="IBM")
    shell, python, csharp = (unescape(one) for one in re.findall(r"<pre data-name[^>]*>(.*?)</pre>", text, re.DOTALL))
    assert [bool(run_command(line, filled.folder)) for line in shell.splitlines()] == [True, True]
    assert "IBM" in run_python(python, filled.folder)
    assert 'Select("IBM")' in csharp


def test_the_shown_requests_read_the_bars_as_chosen(filled: Page) -> None:
    filled.post("/bars", date_order="ymd", volume_unit="100")
    text = filled.get("/forecast", symbol="IBM")
    shell, python, _ = (unescape(one) for one in re.findall(r"<pre data-name[^>]*>(.*?)</pre>", text, re.DOTALL))
    assert "--date-order ymd --volume-unit 100" in shell
    assert run_command(shell.splitlines()[0], filled.folder)
    assert "IBM" in run_python(python, filled.folder)


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/forecast", {"symbol": "NONE"}, "no bars of NONE"),
        ("/forecast", {"model": "other"}, "no model 'other'"),
        ("/forecast", {"horizon": "99"}, "horizon 99 is not forecast"),
        ("/forecast", {"quantile": "x"}, "not a number"),
        ("/forecast", {"quantile": "nan"}, "is not forecast"),
    ],
)
def test_an_impossible_request_says_why(filled: Page, path: str, query: dict[str, str], message: str) -> None:
    status, text, _ = filled.ask("GET", f"/page{path}?{urlencode(query)}")
    assert status in {400, 404}
    assert message in message_of(text)


def test_the_universe_has_every_symbol(filled: Page) -> None:
    table = filled.get("/universe").partition('id="universe-table"')[2]
    assert {"AAPL", "IBM", "MSFT"} == set(re.findall(r"symbol=(\w+)", table))


def test_the_universe_warns_of_a_young_symbol_and_names_a_suspect_one_once(page: Page) -> None:
    bars = scaled(daily_bars(20100507), slice(-1, None), 100.0)
    columns = {name: getattr(bars, name).copy() for name in bars.columns}
    for values in columns.values():
        values[bars.symbols.index("AAPL"), :-40] = np.nan
    replace(bars, **columns).write_csv(page.folder / "young.csv")
    assert page.send("young.csv", (page.folder / "young.csv").read_bytes())[0] == 204
    text = page.get("/universe")
    assert "AAPL: forecast from fewer than" in text
    assert text.count("IBM 2010-05-07: close is") == 1


# --- models and ledger


def test_a_version_is_promoted_and_rolled_back_with_its_reason(page: Page) -> None:
    _, refused = page.post("/promote", version="mine@2", reason="newer")
    assert "mine@2 is not promoted." in refused
    overrides = {f"override-{gate}": "yes" for gate in ("losses", "symbols", "audit", "shadow", "replay")}
    status, text = page.post("/promote", version="mine@2", reason="a second look", **overrides)
    assert (status, "mine@2 is the champion now." in text) == (200, True)
    assert "Version 2 is live: promote on" in text
    assert "a second look" in text
    status, text = page.post("/rollback", model="mine", reason="too narrow")
    assert "Version 1 is live: rollback on" in text


def test_a_change_needs_a_reason(page: Page) -> None:
    status, text = page.post("/promote", version="mine@2", reason=" ")
    assert (status, message_of(text)) == (400, "reason is empty; fill it in")


def test_the_ledger_shows_past_fans_and_lamps(page: Page) -> None:
    text = page.get("/ledger")
    assert "Past forecasts and what happened" in text
    assert "coverage too few, 1 ahead" in text


def test_the_command_of_the_documentation_opens_the_page(page: Page) -> None:
    text = (ROOT / "docs" / "page.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"```bash\n(.*?)\n```", text, re.DOTALL)
    with running(command.replace("50081", str(free_port())), page.folder) as line:
        assert json.loads(line)["page"].startswith("http://127.0.0.1:")


# --- in a browser


@pytest.fixture(scope="module")
def window() -> Generator[Browser]:
    if reason := browser.missing():
        pytest.skip(reason)
    with browser.running() as started:
        yield started


def test_the_whole_way_in_a_browser(page: Page, window: Browser) -> None:
    window.size(1400)
    window.visit(page.address)
    assert "token" not in window.value("location.href")
    with window.loading():
        window.choose_files("#files", page.folder / "bars.csv")
    assert window.value("location.pathname") == "/page/bars"
    with window.loading():
        window.value("document.querySelector('form[action=\"/page/forecast\"]').requestSubmit()")
    window.whole_picture()  # scrolls, which draws the charts
    assert window.value("document.querySelectorAll('#forecast .main-svg').length") > 0
    with window.loading():
        window.value("quantile.value = '0.9'; quantile.dispatchEvent(new Event('change'))")
    assert window.value("new URLSearchParams(location.search).get('quantile')") == "0.9"
    window.visit(f"{page.own}/page/models")
    with window.loading():
        window.value("document.querySelector('input[name=reason]').value = 'seen'; document.forms[0].requestSubmit()")
    assert "is not promoted" in window.value("document.getElementById('result').textContent")
    assert window.complaints == []


def visit_each(page: Page, window: Browser) -> Generator[str]:
    window.visit(page.address)
    with window.loading():
        window.choose_files("#files", page.folder / "bars.csv")
    for path in PAGES:
        window.visit(f"{page.own}/page{path}")
        yield path


@pytest.mark.parametrize("width", [390, 1400, 2560])
def test_every_page_can_be_read_at_this_width(page: Page, window: Browser, width: int) -> None:
    problems: dict[str, Any] = {}
    window.size(width, phone=width == 390)
    for path in visit_each(page, window):
        window.value(LOOK)
        wrong: dict[str, Any] = window.value(f"look({width})")
        window.size(width, phone=width == 390, dark=True)
        wrong |= window.value("lookAtContrast()")
        window.size(width, phone=width == 390)
        problems |= {path: (wrong, window.complaints)} if wrong or window.complaints else {}
    assert problems == {}


def test_the_keyboard_reaches_everything(page: Page, window: Browser) -> None:
    reachable = "a[href], button, input:not([type=hidden]), select, summary, .scroll, pre[tabindex]"
    listed = f"[...document.querySelectorAll('{reachable}')].filter(one => one.checkVisibility())"
    window.size(1400)
    for path in visit_each(page, window):
        window.value(f"{listed}.forEach((one, place) => one.dataset.place = place)")
        count = window.value(f"{listed}.length")
        reached = set()
        for _ in range(count + 5):
            window.press("Tab")
            reached.add(window.value("document.activeElement.dataset.place ?? ''"))
        assert sorted(set(map(str, range(count))) - reached) == [], path


def test_axe_finds_no_violation(page: Page, window: Browser) -> None:
    found: dict[str, Any] = {}
    run = "axe.run().then(it => it.violations.map(one => [one.id, one.nodes[0].html]))"
    for path in visit_each(page, window):
        window.value(AXE)
        for dark in (False, True):
            window.size(1400, dark=dark)
            found |= {f"{path}, {dark=}": wrong} if (wrong := window.value(run)) else {}
    window.size(1400)
    assert found == {}


def test_a_budget_that_is_not_in_whole_minutes_is_named(page: Page) -> None:
    status, text = page.post("/training", name="other", kind="best", minutes="1.5")
    assert (status, "the budget is '1.5'; give whole minutes" in message_of(text)) == (400, True)


def test_stopping_a_training_does_not_wait_for_an_upload(page: Page) -> None:
    upload = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    upload.putrequest("POST", "/page/files?name=slow.csv&first=yes")
    for name, value in {"cookie": page.cookie, "origin": page.own, "content-length": "6"}.items():
        upload.putheader(name, value)
    upload.endheaders(b"dat")
    assert page.post("/training/stop")[0] == 303
    upload.send(b"e,c")
    assert upload.getresponse().status == 204  # 504 if stopping had waited for its end
    upload.close()


def test_a_training_has_ended_only_after_several_failed_polls(window: Browser, tmp_path: Path) -> None:
    document = tmp_path / "progress.html"
    document.write_text('<div id="progress"></div><p id="stage">Training</p>')
    window.open(document)
    window.value("setInterval = poll => { window.poll = poll; }; fetch = () => Promise.reject(); 0")
    window.value(f"{(Path(uploads.__file__).parent / 'page.js').read_text('utf-8')}; 0")
    shown = [window.value("poll().then(() => stage.textContent)") for _ in range(5)]
    assert shown == ["Training"] * 4 + ["The server has stopped, and the training with it."]


def test_a_model_is_trained_in_a_browser_and_used_at_once(page: Page, window: Browser) -> None:
    window.visit(page.address)
    with window.loading():
        window.choose_files("#files", page.folder / "bars.csv")
    with window.loading():
        window.value("kind.value = 'har'; document.getElementById('name').value = 'young'; kind.form.requestSubmit()")
    with window.loading(MAX_TRAINING_S):  # the script shows the end by itself
        status, text = page.post("/training", name="other", kind="har", minutes="1")
    assert (status, "young is being trained" in message_of(text)) == (400, True)
    assert "young@1 is trained" in window.value("document.getElementById('result').textContent")
    assert "Model young, version 1" in page.get("/forecast")
    assert window.complaints == []
