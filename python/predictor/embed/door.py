"""What the host calls, and a call under way."""

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, final

from predictor.embed import replies, requests
from predictor.embed.fields import Fields
from predictor.embed.replies import Reply
from predictor.errors import ConfigurationError, InternalError, MalformedRequestError, QuantraError
from predictor.instance import Deadline
from predictor.service import PredictionService, done
from predictor.wire.limits import MAX_INSTANCES, check_text

_log = logging.getLogger(__name__)
_SHOWN: Final = 80


def open_door(models: str, options: str) -> tuple["Door | None", str]:
    """Load every model of a folder.

    Args:
        models: folder of NAME/VERSION artifacts.
        options: JSON object: `device` (text), `max_batch_rows` and `threads` (whole numbers).

    Returns:
        The door and JSON `{"problems": [...]}` with an error for each artifact that was refused; or None and an error.
    """
    try:
        given = Fields.parse("options", options)
        service = PredictionService.open(
            Path(models),
            device=given.text("device"),
            max_batch_rows=given.whole("max_batch_rows"),
            threads=given.whole("threads"),
        )
    except QuantraError as error:
        return None, replies.error_text(error)
    except OSError as error:
        return None, replies.error_text(ConfigurationError(f"{models[:_SHOWN]}: {error.strerror}; name another folder"))
    except Exception as error:  # noqa: BLE001 - as in `Pending.reply`
        return None, replies.error_text(InternalError.of("opening the door", error, _log))
    return Door(service), json.dumps({"problems": [replies.error(problem) for problem in service.problems]})


@final
class Door:
    """Answers from one folder of models. Its methods may be called from many threads."""

    def __init__(self, service: PredictionService) -> None:
        self._service = service

    def predict(self, request: str, buffers: Sequence[Any]) -> "Pending":
        """Start the forecasts of many instances.

        Args:
            request: `{"model", "timeout_s", "instances": [{"request_id", "gap_policy", "allow_incomplete_last_bar",
                "bars": {...} or "window": {...}, and "covariates": {...} where the model reads any}]}`; these are
                `{"observed", "known", "numbers": [{"name", "values"}], "future_sessions", "categories": [{"name",
                "values": [...]}]}`.
            buffers: the arrays that the request names, anything with the buffer protocol.

        Returns:
            A call under way; it replies `{"results": [{"request_id", "forecast" or "error"}]}` in input order.
        """
        return _started(lambda: self._predict(Fields.parse("request", request, buffers)))

    def explain(self, request: str, buffers: Sequence[Any]) -> "Pending":
        """Start an explanation.

        Args:
            request: `{"model", "timeout_s", "instance", "targets": [{"horizon", "quantile"}], "detail", "tolerance",
                "symbols": [...]}`; no symbols = all of the instance's.
            buffers: the arrays that the request names, anything with the buffer protocol.

        Returns:
            A call under way; it replies `{"attributions": [...], "queue_ms", "compute_ms"}`.
        """
        return _started(lambda: self._explain(Fields.parse("request", request, buffers)))

    def list_models(self) -> str:
        """`{"models": [...]}`, one entry per version."""
        return json.dumps({"models": [asdict(model) for model in self._service.models()]})

    def get_model(self, reference: str) -> str:
        """`{"model": {...}}`, or an error that lists the models or versions there are."""
        try:
            check_text("model", reference)
            return json.dumps({"model": asdict(self._service.model(reference))})
        except QuantraError as error:
            return replies.error_text(error)

    def close(self) -> None:
        """Finish what is under way and take no more."""
        self._service.close()

    def _predict(self, asked: "Fields") -> "Pending":
        model, deadline = requests.model(asked), Deadline.after(asked.number("timeout_s"))
        items = asked.objects("instances", MAX_INSTANCES)
        ids = [item.text("request_id") for item in items]
        decoded = [requests.instance_or_error(item) for item in items]
        if not items:
            raise MalformedRequestError("instances: have 0, need at least 1", metadata={"field": "instances"})
        answered = self._service.predict(model, decoded, deadline)
        return Pending(answered, deadline, lambda outcomes: replies.results(ids, outcomes))

    def _explain(self, asked: "Fields") -> "Pending":
        model, deadline = requests.model(asked), Deadline.after(asked.number("timeout_s"))
        self._service.model(model)
        return Pending(self._service.explain(model, requests.query(asked), deadline), deadline, replies.explained)


@final
class Pending:
    """A call under way. The host gets a callback when it is done, so that none of its threads waits inside Python."""

    def __init__(self, answered: Future[Any], deadline: Deadline, encode: Callable[[Any], Reply]) -> None:
        self._answered = answered
        self._deadline = deadline
        self._encode = encode

    def when_done(self, tell: Callable[[], object]) -> None:
        """Call `tell` once, on any thread, when `reply` no longer has to wait."""
        self._answered.add_done_callback(lambda _: tell())

    def cancel(self) -> None:
        """Nobody waits for it any more: work that has not begun is dropped."""
        self._deadline.cancelled.set()

    def reply(self) -> Reply:
        """The answer or the error, as JSON and its arrays."""
        try:
            return self._encode(self._answered.result())
        except QuantraError as error:
            return _refusal(error)
        except Exception as error:  # noqa: BLE001 - the host's edge: our own bug must not end in the caller's hands
            return _refusal(InternalError.of("an embedded call", error, _log))


def _started(start: Callable[[], "Pending"]) -> "Pending":
    """A call under way, or one that has failed already."""
    try:
        return start()
    except QuantraError as error:
        refusal = _refusal(error)
    except Exception as error:  # noqa: BLE001 - as in `Pending.reply`
        refusal = _refusal(InternalError.of("an embedded call", error, _log))
    return Pending(done(refusal), Deadline(), lambda reply: reply)


def _refusal(error: QuantraError) -> Reply:
    return replies.error_text(error), []
