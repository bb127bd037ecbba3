"""The routes of the page. Work runs on other threads, one request at a time; stopping a training never waits."""

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from importlib.resources import files
from typing import Final, final
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from predictor.bars import DateOrder, DecimalSign, ReadingOptions
from predictor.card import Card
from predictor.catalog import ModelInfo
from predictor.errors import (
    BarsError,
    ConfigurationError,
    DeadlineExceededError,
    MalformedRequestError,
    ModelNotFoundError,
    NoLedgerError,
)
from predictor.forecast import TargetPoint
from predictor.instance import INTEGRATED_GRADIENTS, Detail, ExplanationQuery, Instance
from predictor.ledger import Ledger
from predictor.memory import make_caller_error
from predictor.registry import find_model_folder, read_aliases, read_moves
from predictor.report import PageFrame
from predictor.skill import format_skill
from predictor.web.openapi import describe_api
from predictor.web.page_access import MAX_WAIT_S, ROOT, LoadedPage, PageContext
from predictor.web.responses import status_code
from trainers.stock.page import views
from trainers.stock.page.training import ModelTraining, TrainingPhase, TrainingRequest
from trainers.stock.page.uploads import ReadingChoice, UploadedBars

MAX_FORM_BYTES: Final = 16_384
_LINKS: Final = (
    ("/", "Bars"),
    ("/universe", "All symbols"),
    ("/training", "Training"),
    ("/models", "Models"),
    ("/ledger", "Ledger"),
)

Handler = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger(__name__)


def load_page(context: PageContext) -> LoadedPage:
    """Create the page, and import in the background what the first drop needs."""
    threading.Thread(target=_import_readers, name="imports", daemon=True).start()
    page = Page(context)
    return LoadedPage(page.routes(), page.close)


def _import_readers() -> None:
    for name in ("polars", "plotly.graph_objects", "trainers.stock.bars_report"):
        import_module(name)


@final
class Page:
    """The page of one person, on the running event loop."""

    def __init__(self, context: PageContext) -> None:
        self._settings, self._models, self._refresh_local = context.settings, context.models, context.refresh
        self._uploaded: UploadedBars | None = None
        self._request_lock = asyncio.Lock()
        self._training = ModelTraining(self._settings.models, self._serve_trained)
        resources = files("trainers.stock.page")
        self._style, self._script = (resources.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))

    def routes(self) -> Sequence[Route]:
        """Create the routes."""
        renderers: dict[str, Callable[[PageFrame, dict[str, str]], str]] = {
            "/": lambda frame, _: views.render_home(frame, self._uploaded, self._models.models(), self._remote_note),
            "/bars": self._render_bars,
            "/forecast": self._render_forecast,
            "/universe": self._render_universe,
            "/ledger": self._render_ledger,
            "/training": self._render_training,
            "/calls": lambda frame, _: views.render_calls(frame, json.loads(describe_api())),
        }
        gets = {path: self._render_on_thread(render) for path, render in renderers.items()}
        gets["/models"] = self._show_models
        posts = {
            "/files": self._receive_file,
            "/bars": self._read_bars,
            "/forget": self._forget_bars,
            "/promote": self._promote_version,
            "/rollback": self._roll_back_champion,
            "/training": self._start_training,
            "/training/resume": self._resume_training,
        }
        # These two do not take turns with the others: a slow upload must not delay them.
        return [
            Route("/training/state", self._send_training_state, methods=["GET"]),
            Route("/training/stop", self._with_error_page(self._stop_training), methods=["POST"]),
            *(Route(path, self._with_error_page(self._in_turn(get)), methods=["GET"]) for path, get in gets.items()),
            *(
                Route(path, self._with_error_page(self._in_turn(post)), methods=["POST"])
                for path, post in posts.items()
            ),
        ]

    def close(self) -> None:
        """End the training, and delete the bars."""
        self._training.close()
        self._replace(None)

    def _in_turn(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            async with self._request_lock:
                return await handler(request)

        return answer

    def _with_error_page(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001 - process boundary
                caller_error = make_caller_error("the page", error, _log).without_frames()
                frame = self._frame(request)
                response = _render_page(
                    frame, views.render_message(frame, caller_error.message), status_code(caller_error)
                )
                if request.method == "POST":
                    response.headers["connection"] = "close"  # the rest of the body is not read
                return response

        return answer

    def _render_on_thread(self, render: Callable[[PageFrame, dict[str, str]], str]) -> Handler:
        """A handler that renders a page on another thread, from its frame and the query of the request."""

        async def answer(request: Request) -> Response:
            frame = self._frame(request)
            return _render_page(frame, await asyncio.to_thread(render, frame, dict(request.query_params)))

        return answer

    def _frame(self, request: Request) -> PageFrame:
        hidden = {"/ledger"} if not self._settings.ledger else set[str]()
        hidden |= {"/training"} if self._is_remote else set()
        links = tuple((ROOT + path, name) for path, name in _LINKS if path not in hidden)
        return PageFrame(
            nonce=secrets.token_urlsafe(16),
            links=links,
            current=request.url.path,
            style=self._style,
            script=self._script,
        )

    async def _receive_file(self, request: Request) -> Response:
        """Receive one file; the first one of a drop replaces the bars before."""
        name = request.query_params.get("name", "")
        if request.query_params.get("first") or self._uploaded is None:
            self._replace(UploadedBars())
        uploaded = self._uploaded
        assert uploaded is not None  # noqa: S101 - just set
        uploaded.check_room(request.headers.get("content-length", ""))
        with uploaded.create(name) as file:
            try:
                async with asyncio.timeout(MAX_WAIT_S):
                    async for part in request.stream():
                        uploaded.grow(part)
                        await asyncio.to_thread(file.write, part)
            except BaseException as error:
                uploaded.discard(name)
                if isinstance(error, TimeoutError):
                    message = f"the file did not arrive in {MAX_WAIT_S:g} seconds; try again"
                    raise DeadlineExceededError(message) from None
                raise
        return Response(status_code=204)

    def _render_bars(self, frame: PageFrame, _: dict[str, str]) -> str:
        uploaded = self._uploaded_bars()
        if uploaded.checked is None and not uploaded.problem:
            uploaded.read(uploaded.choice)
        return views.render_bars(frame, uploaded, self._models.models(), self._trained, self._remote_note)

    async def _read_bars(self, request: Request) -> Response:
        form = await _read_form(request)
        order, decimal, unit = form.get("date_order"), form.get("decimal"), form.get("volume_unit", "0")
        try:
            options = ReadingOptions(
                layout=form.get("layout", ""),
                date_order=DateOrder(order) if order else None,
                time_zone=form.get("time_zone", ""),
                decimal=DecimalSign(decimal) if decimal else None,
                volume_unit=int(unit),
            )
        except ValueError as error:
            raise MalformedRequestError(f"a choice is invalid: {error}; use the lists of the page") from None
        choice = ReadingChoice(options=options, calendar=form.get("calendar", ""))
        await asyncio.to_thread(self._uploaded_bars().read, choice)
        return _redirect_to("/bars")

    async def _forget_bars(self, _: Request) -> Response:
        self._replace(None)
        return _redirect_to("/")

    def _render_forecast(self, frame: PageFrame, query: dict[str, str]) -> str:
        reading, info = self._uploaded_bars().reading, self._chosen_model(query, self._trained)
        symbol = query.get("symbol") or reading.panel.symbols[0]
        # By default the last horizon, and the quantile nearest to the median.
        try:
            horizon = int(query.get("horizon") or info.horizons[-1])
            quantile = float(query.get("quantile") or min(info.quantiles, key=lambda level: abs(level - 0.5)))
        except ValueError:
            problem = "the horizon or the quantile is not a number; use the lists of the page"
            raise MalformedRequestError(problem) from None
        symbol_bars = reading.panel.select([symbol])
        can_use_suspects = "suspects" in query
        instance = Instance(
            input=reading.panel if info.is_panel_model else symbol_bars, accept_suspect_bars=can_use_suspects
        )
        forecast = self._models.predict(_format_reference(info), instance)
        if symbol in forecast.refusals:
            raise forecast.refusals[symbol]
        detail = Detail.CELLS if INTEGRATED_GRADIENTS in info.explain_methods else Detail.FEATURES
        explanation_query = ExplanationQuery(
            instance=instance, targets=(TargetPoint(horizon, quantile),), detail=detail, symbols=(symbol,)
        )
        explanation = self._models.explain(_format_reference(info), explanation_query)
        view = views.ShownForecast(
            info=info,
            reading=reading,
            options=self._uploaded_bars().choice.options,
            forecast=forecast,
            attribution=explanation.attributions[0],
            symbol=symbol,
            can_use_suspects=can_use_suspects,
        )
        return views.render_forecast(frame, view, self._models.models())

    def _render_universe(self, frame: PageFrame, query: dict[str, str]) -> str:
        reading, info = self._uploaded_bars().reading, self._chosen_model(query, self._trained)
        forecast = self._models.predict(_format_reference(info), Instance(input=reading.panel))
        refused = {symbol: error.message for symbol, error in forecast.refusals.items()}
        return views.render_universe(frame, forecast, info, self._models.models(), refused)

    async def _show_models(self, request: Request, result: Sequence[str] = ()) -> Response:
        frame, models = self._frame(request), await asyncio.to_thread(self._list_models)
        note = self._remote_note or ("" if self._settings.ledger else views.NO_LEDGER)
        return _render_page(frame, views.render_models(frame, models, note, result))

    def _list_models(self) -> list[views.ModelView]:
        by_name: dict[str, list[ModelInfo]] = {}
        for info in self._models.models():
            by_name.setdefault(info.name, []).append(info)
        models: list[views.ModelView] = []
        for name, infos in sorted(by_name.items()):
            skills = tuple(format_skill(Card.from_json(info.card_json).skill) for info in infos)
            model_folder = self._settings.models / name
            moves = () if self._is_remote else read_moves(model_folder, read_aliases(model_folder))
            models.append(
                views.ModelView(name=name, versions=tuple(infos), skills=skills, moves=tuple(reversed(moves)))
            )
        return models

    async def _promote_version(self, request: Request) -> Response:
        form = await _read_form(request)
        version, reason = _require_field(form, "version"), _require_field(form, "reason")
        overridden = [name.removeprefix("override-") for name in form if name.startswith("override-")]

        def promote() -> Sequence[str]:
            from trainers.stock.lifecycle import StockLifecycle  # slow to import, and the first page does not need it

            with self._open_ledger() as ledger:
                result = StockLifecycle(self._settings.models).promote(
                    ledger, version, reason=reason, check=lambda: None, overridden=overridden
                )
            self._refresh()
            outcome = f"{version} is the champion now." if result.promoted else f"{version} is not promoted."
            return [outcome, *(f"{gate.name}: {gate.result}. Needs {gate.need}; {gate.have}." for gate in result.gates)]

        return await self._show_models(request, await asyncio.to_thread(promote))

    async def _roll_back_champion(self, request: Request) -> Response:
        form = await _read_form(request)
        name, reason = _require_field(form, "model"), _require_field(form, "reason")

        def roll_back() -> Sequence[str]:
            from trainers.stock.lifecycle import StockLifecycle  # as above

            with self._open_ledger() as ledger:
                move = StockLifecycle(self._settings.models).roll_back(ledger, name, reason=reason)
            self._refresh()
            return [f"{name}@{move.version} is the champion again."]

        return await self._show_models(request, await asyncio.to_thread(roll_back))

    def _render_ledger(self, frame: PageFrame, query: dict[str, str]) -> str:
        from trainers.stock.daily.evenings import DailySettings, summarise  # as above
        from trainers.stock.daily.page import render_evenings

        name = self._chosen_model(query).name
        with self._open_ledger() as ledger:
            settings = DailySettings(ledger=ledger, model_folder=find_model_folder(self._settings.models, name))
            return render_evenings(settings, summarise(settings), frame)

    def _open_ledger(self) -> Ledger:
        if not self._settings.ledger:
            raise NoLedgerError("the page has no ledger; start it with `quantra ui --ledger LEDGER`")
        return Ledger.open(self._settings.ledger)

    def _render_training(self, frame: PageFrame, _: dict[str, str]) -> str:
        bars = None if self._uploaded is None else self._uploaded.checked
        return views.render_training(frame, self._training.state, bars)

    async def _send_training_state(self, _: Request) -> Response:
        """Send the state to the script of the page."""
        state = self._training.state
        return JSONResponse({} if state is None else state.as_json())

    async def _start_training(self, request: Request) -> Response:
        if self._is_remote:
            raise ConfigurationError(views.REMOTE)
        form, uploaded = await _read_form(request), self._uploaded_bars()
        minutes = form.get("minutes", "")
        if not minutes.isdecimal():
            raise ConfigurationError(f"the budget is {minutes[:20]!r}; give whole minutes, such as 10")
        training_request = TrainingRequest(
            name=_require_field(form, "name"),
            kind=_require_field(form, "kind"),
            minutes=int(minutes),
            options=uploaded.choice.options,
            calendar=uploaded.choice.calendar,
        )
        _ = await asyncio.to_thread(lambda: uploaded.reading)  # bars that cannot be read say why here
        await asyncio.to_thread(self._training.start, training_request, uploaded.copy)
        return _redirect_to("/training")

    async def _stop_training(self, _: Request) -> Response:
        await asyncio.to_thread(self._training.stop)  # waits while a training copies its bars
        return _redirect_to("/training")

    async def _resume_training(self, _: Request) -> Response:
        await asyncio.to_thread(self._training.resume)
        return _redirect_to("/training")

    def _serve_trained(self, reference: str) -> str:
        """Serve a new version, and say what its skill is worth."""
        self._refresh()
        return next(views.score_sentences(Card.from_json(self._models.model(reference).card_json)))

    @property
    def _is_remote(self) -> bool:
        """Whether the models are those of another server."""
        return self._refresh_local is None

    @property
    def _remote_note(self) -> str:
        """Why no model is trained here; empty if it can be."""
        return views.REMOTE if self._is_remote else ""

    def _refresh(self) -> None:
        """Serve what is new in the folder of models.

        Raises:
            ConfigurationError: The models are those of another server.
        """
        if self._refresh_local is None:
            raise ConfigurationError(views.REMOTE)
        self._refresh_local()

    def _chosen_model(self, query: dict[str, str], otherwise: str = "") -> ModelInfo:
        """The model of a request, or `otherwise`; by default the first live one."""
        reference = query.get("model") or otherwise
        if reference:
            return self._models.model(reference)
        infos = self._models.models()
        if not infos:
            raise ModelNotFoundError("there is no model yet; add bars, then train one on the Training page")
        return next((info for info in infos if info.is_default), infos[0])

    @property
    def _trained(self) -> str:
        """The version that the last training made; empty without one."""
        state = self._training.state
        return "" if state is None or state.phase is not TrainingPhase.FINISHED else state.reference

    def _uploaded_bars(self) -> UploadedBars:
        if self._uploaded is None:
            raise BarsError("there are no bars yet; choose files on the first page")
        return self._uploaded

    def _replace(self, uploaded: UploadedBars | None) -> None:
        if self._uploaded is not None:
            self._uploaded.close()
        self._uploaded = uploaded


def _format_reference(info: ModelInfo) -> str:
    return f"{info.name}@{info.version}"


async def _read_form(request: Request) -> dict[str, str]:
    """Read a small form.

    Raises:
        MalformedRequestError: It is too large or not a form.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise MalformedRequestError(f"the form has more than {MAX_FORM_BYTES} bytes; write a shorter reason")
    try:
        return {name: values[-1].strip() for name, values in parse_qs(body.decode(), max_num_fields=64).items()}
    except ValueError:
        raise MalformedRequestError("the form is not readable; use the page's own buttons") from None


def _require_field(form: dict[str, str], name: str) -> str:
    if not form.get(name):
        raise MalformedRequestError(f"{name} is empty; fill it in")
    return form[name]


def _redirect_to(path: str) -> Response:
    return RedirectResponse(ROOT + path, 303)


def _render_page(frame: PageFrame, html: str, code: int = 200) -> Response:
    policy = (
        f"default-src 'none'; script-src 'nonce-{frame.nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    # Without a referrer, forms would not name their origin, which `PageAccess` checks.
    return HTMLResponse(html, code, headers={"content-security-policy": policy, "referrer-policy": "same-origin"})
