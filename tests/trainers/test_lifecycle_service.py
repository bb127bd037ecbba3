"""LifecycleService: versions compared, promoted and rolled back over gRPC."""

import shutil
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from covariate_files import FIELDS, RECIPE, SPLITS, bars, source
from daily_runs import HAR, LEARNT, daily_bars, save_daily_model
from serving import hosted_server, server_process
from watched_logs import token

from predictor._pb import ledger_pb2 as pb
from predictor._pb.ledger_pb2_grpc import LifecycleServiceStub
from predictor.call_context import NEVER, CallContext
from predictor.client import QuantraClient
from predictor.errors import (
    ArtifactError,
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    QuantraError,
    QueueFullError,
    UnavailableError,
    get_error_status,
)
from predictor.features import load_default_features
from predictor.ledger import Ledger, LedgerEvent
from predictor.lifecycle import Check, ComparisonResult, ModelLifecycle, PromotionResult
from predictor.networks import LSTMConfig
from predictor.registry import AliasMove, MoveKind, read_aliases, read_moves
from predictor.server import ServerSettings
from predictor.server.lifecycle_calls import LifecycleCalls
from predictor.wire import errors as wire_errors
from trainers.cli.server_command import load_lifecycle
from trainers.stock import Optimisation, TrainingMaterial, train
from trainers.stock.lifecycle import StockLifecycle, compare_versions, load_version

if TYPE_CHECKING:
    from concurrent.futures import Future

LATEST = 20111230
SECOND = 20101231
"""The end of the bars of version 2."""
QUICK = Optimisation(max_epochs=1, device="cpu")
EVIDENCE = ["losses", "shadow", "replay"]
"""The gates that fail without evidence."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1, the champion, and 2 of `mine`, version 3 that has seen all bars, and a ledger with bars."""
    folder = tmp_path_factory.mktemp("saved")
    for version, until in ((1, LEARNT), (2, SECOND), (3, LATEST)):
        save_daily_model(folder / "models" / "mine", version, HAR, until)
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        ledger.add_bars(daily_bars(LATEST))
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


@dataclass(frozen=True, slots=True)
class Running:
    """A running server and its clients."""

    target: str
    lifecycle: LifecycleServiceStub

    @property
    def champion(self) -> int:
        """The version that the server uses for the plain name."""
        with QuantraClient(self.target, model="mine") as client:
            return client.model().version


@contextmanager
def running(folder: Path, *options: str, can_compare: bool = True) -> Generator[Running]:
    """A server of the folder's models and ledger in this process, by default as `quantra serve` starts it."""
    load = load_lifecycle if can_compare else None
    with (
        hosted_server(folder / "models", *flags_of(folder), *options, load_lifecycle=load) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.ready['admin_port']}") as channel,
    ):
        yield Running(server.target, LifecycleServiceStub(channel))


@contextmanager
def running_processes(folder: Path, *options: str) -> Generator[Running]:
    """The same by `quantra serve`."""
    with (
        (folder / "log").open("w") as log,
        server_process(folder / "models", log, *flags_of(folder), *options, program=("quantra", "serve")) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.ready['admin_port']}") as channel,
    ):
        yield Running(server.target, LifecycleServiceStub(channel))


def flags_of(folder: Path) -> tuple[str, ...]:
    ledger = ("--ledger", str(folder / "ledger.db")) if (folder / "ledger.db").exists() else ()
    return ("--admin-listen", "127.0.0.1:0", *ledger)


def refusal(call: Callable[[], object]) -> tuple[str, str, str]:
    """Status, reason and message of a failing call."""
    with pytest.raises(grpc.RpcError) as failure:
        call()
    error: Any = failure.value
    meant = wire_errors.decode_details(dict(error.trailing_metadata()).get(wire_errors.DETAILS_KEY, b""))
    return error.code().name, get_error_status(meant).reason if meant else "", error.details()


def compare(server: Running, champion: str = "mine@champion", challenger: str = "mine@2") -> pb.CompareVersionsResponse:
    request = pb.CompareVersionsRequest(champion=champion, challenger=challenger)
    return server.lifecycle.CompareVersions(request, timeout=120)


def promote(server: Running, version: str = "mine@2", *gates: str, reason: str = "newer") -> pb.PromoteVersionResponse:
    request = pb.PromoteVersionRequest(version=version, reason=reason, override_gates=gates)
    return server.lifecycle.PromoteVersion(request, timeout=120)


def roll_back(server: Running, champion: int = 0, reason: str = "too narrow") -> pb.RollBackChampionResponse:
    request = pb.RollBackChampionRequest(model="mine", reason=reason, champion=champion)
    return server.lifecycle.RollBackChampion(request, timeout=120)


# --- a server of `quantra serve`


@pytest.mark.slow
def test_a_version_is_compared_promoted_and_rolled_back_while_it_is_served(folder: Path) -> None:
    with running(folder) as server:
        found = compare(server)
        first, second = (load_version(folder / "models", f"mine@{version}") for version in (1, 2))
        expected = compare_versions(first, second, daily_bars(LATEST))
        assert (found.champion, found.challenger, found.days) == ("mine@1", "mine@2", expected.days)
        assert (found.sentence, found.need) == (expected.sentence, expected.need)
        assert (found.first_session, found.last_session) == (expected.first_day, expected.last_day)
        assert (found.lower, found.upper) == (expected.bounds.lower, expected.bounds.upper)

        refused = promote(server)
        assert (refused.promoted, refused.champion, server.champion) == (False, 1, 1)
        assert {"shadow", "replay"} <= {gate.name for gate in refused.gates if not gate.passed}

        done = promote(server, "mine@2", *EVIDENCE)
        assert (done.promoted, done.champion, server.champion) == (True, 2, 2)
        assert {gate.name for gate in done.gates if gate.overridden} <= set(EVIDENCE)
        again = promote(server)
        assert (again.promoted, list(again.gates)) == (True, [])

        back = roll_back(server, champion=2)
        assert (back.champion, back.previous, server.champion) == (1, 2, 1)
        status, reason, message = refusal(lambda: roll_back(server, champion=2))
        assert (status, reason) == ("INVALID_ARGUMENT", "CONFIGURATION_INVALID")
        assert "the champion of mine is version 1, not 2" in message

    line = folder / "models" / "mine"
    moves = read_moves(line, read_aliases(line))
    assert [(move.kind, move.version, move.reason) for move in moves[1:]] == [
        (MoveKind.PROMOTE, 2, "newer"),
        (MoveKind.ROLLBACK, 1, "too narrow"),
    ]
    with Ledger.open(folder / "ledger.db") as ledger:
        events = ledger.records(LedgerEvent, "kind = 'champion'")
    assert [event.version for event in events] == [1, 2, 1]


@pytest.mark.slow
def test_all_workers_serve_a_promoted_version(folder: Path) -> None:
    with running_processes(folder, "--processes", "2") as server:
        assert promote(server, "mine@2", *EVIDENCE).promoted
        assert {server.champion for _ in range(8)} == {2}  # each on a new connection


@pytest.mark.slow
def test_invalid_calls_are_refused_with_their_reasons(folder: Path) -> None:
    cases: dict[str, Callable[[Running], object]] = {
        "UNKNOWN GATE": lambda server: promote(server, "mine@2", "luck"),
        "VERSION_NOT_FOUND": lambda server: promote(server, "mine@9"),
        "MODEL_NOT_FOUND": lambda server: compare(server, "yours", "yours@2"),
        "NO VERSION": lambda server: promote(server, "mine"),
        "NO REASON": lambda server: promote(server, reason=" "),
        "NO REASON TO ROLL BACK": lambda server: roll_back(server, reason=""),
        "NO REFERENCE": lambda server: compare(server, ""),
        "IN_SAMPLE": lambda server: compare(server, challenger="mine@3"),
        "NO PREVIOUS CHAMPION": roll_back,
    }
    with running(folder) as server:
        found = {name: refusal(lambda case=case: case(server))[1] for name, case in cases.items()}
        assert (server.champion, promote(server, "mine@3").promoted) == (1, False)
    assert found == {
        "UNKNOWN GATE": "CONFIGURATION_INVALID",
        "VERSION_NOT_FOUND": "VERSION_NOT_FOUND",
        "MODEL_NOT_FOUND": "MODEL_NOT_FOUND",
        "NO VERSION": "MALFORMED_REQUEST",
        "NO REASON": "MALFORMED_REQUEST",
        "NO REASON TO ROLL BACK": "MALFORMED_REQUEST",
        "NO REFERENCE": "MALFORMED_REQUEST",
        "IN_SAMPLE": "IN_SAMPLE",
        "NO PREVIOUS CHAMPION": "CONFIGURATION_INVALID",
    }


@pytest.mark.slow
def test_the_server_alone_names_the_command_that_can(folder: Path) -> None:
    with running(folder, can_compare=False) as server:
        status, reason, message = refusal(lambda: compare(server))
    assert (status, reason) == ("FAILED_PRECONDITION", "LIFECYCLE_UNAVAILABLE")
    assert "`quantra serve --ledger LEDGER`" in message


@pytest.mark.slow
def test_without_a_ledger_versions_cannot_be_compared(folder: Path) -> None:
    (folder / "ledger.db").unlink()
    with running(folder) as server:
        status, reason, message = refusal(lambda: compare(server))
    assert (status, reason) == ("FAILED_PRECONDITION", "NO_LEDGER")
    assert "--ledger LEDGER" in message


@pytest.mark.slow
def test_changes_of_the_champion_are_for_administrators(folder: Path) -> None:
    (folder / "tokens").write_text(f"page reader,predict {token('r')}\nops admin {token('a')}\n")
    with running(folder, "--token-file", str(folder / "tokens")) as server:
        request = pb.RollBackChampionRequest(model="mine", reason="too narrow")
        reasons = [
            refusal(
                lambda sent=sent: server.lifecycle.RollBackChampion(
                    request, timeout=60, metadata=(("authorization", f"Bearer {sent}"),)
                )
            )[1]
            for sent in (token("r"), token("a"))
        ]
    assert reasons == ["PERMISSION_DENIED", "CONFIGURATION_INVALID"]


# --- the lifecycle of stock models


def test_a_model_with_covariates_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    features = load_default_features().with_covariates(FIELDS)
    recipe = replace(RECIPE, encoder_length=10, config=LSTMConfig(hidden=4, layers=1), parts=SPLITS, optimisation=QUICK)
    material = TrainingMaterial(bars(), features, source(tmp_path / "files"))
    train(material, recipe, folder / "models" / "wide" / "1", consume=iter)
    shutil.copytree(folder / "models" / "wide" / "1", folder / "models" / "wide" / "2")
    lifecycle = StockLifecycle(folder / "models")
    with (
        Ledger.open(folder / "ledger.db") as ledger,
        pytest.raises(ConfigurationError, match=r"wide@1 reads the covariates short_interest, .*quantra compare"),
    ):
        lifecycle.compare(ledger, "wide@1", "wide@2", check=NEVER.check)


def test_a_ledger_without_bars_fails_the_gate_of_losses(folder: Path, tmp_path: Path) -> None:
    lifecycle = StockLifecycle(folder / "models")
    with Ledger.open(tmp_path / "empty.db", create=True) as ledger:
        result = lifecycle.promote(ledger, "mine@2", reason="newer", check=NEVER.check)
        with pytest.raises(ConfigurationError, match="the ledger has no bars"):
            lifecycle.compare(ledger, "mine@1", "mine@2", check=NEVER.check)
    assert [gate.have for gate in result.gates if gate.name == "losses"] == ["none; the ledger has no bars"]
    assert not result.promoted


# --- the order of calls


@dataclass(slots=True)
class CannedLifecycle:
    """Rolls back at once when released."""

    begun: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    reasons: list[str] = field(default_factory=list[str])

    def compare(
        self,
        ledger: Ledger,  # noqa: ARG002 - canned, as the next
        champion: str,  # noqa: ARG002
        challenger: str,  # noqa: ARG002
        *,
        check: Check,
        start: int | None = None,  # noqa: ARG002
    ) -> ComparisonResult:
        self.begun.set()
        assert self.released.wait(30)
        check()
        raise NotImplementedError

    def promote(
        self, ledger: Ledger, version: str, *, reason: str, check: Check, overridden: Collection[str] = ()
    ) -> PromotionResult:
        raise NotImplementedError

    def roll_back(self, ledger: Ledger, name: str, *, reason: str, expected: int | None = None) -> AliasMove:  # noqa: ARG002 - canned
        self.begun.set()
        assert self.released.wait(30)
        self.reasons.append(reason)
        return AliasMove(at="", alias="champion", previous=2, version=1, kind=MoveKind.ROLLBACK, reason=reason)


def calls_of(lifecycle: ModelLifecycle, ledger: Path, serve: Callable[[str], None] = lambda _: None) -> LifecycleCalls:
    return LifecycleCalls(ServerSettings(models=Path("models"), ledger=str(ledger)), lambda _: lifecycle, serve)


def ask(calls: LifecycleCalls, reason: str, context: CallContext = NEVER) -> "Future[bytes]":
    request = pb.RollBackChampionRequest(model="mine", reason=reason)
    return calls.handle("RollBackChampion", request.SerializeToString(), context)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    Ledger.open(tmp_path / "ledger.db", create=True).close()
    return tmp_path / "ledger.db"


def test_calls_run_in_order_and_late_ones_not_at_all(ledger: Path) -> None:
    canned = CannedLifecycle()
    calls = calls_of(canned, ledger)
    first = ask(calls, "first")
    late, cancelled, last = ask(calls, "late", CallContext.with_timeout(0)), ask(calls, "cancelled"), ask(calls, "last")
    assert cancelled.cancel()
    assert calls.is_busy
    canned.released.set()
    assert pb.RollBackChampionResponse.FromString(last.result(30)).champion == 1
    assert first.done()
    with pytest.raises(DeadlineExceededError):
        late.result(0)
    assert canned.reasons == ["first", "last"]
    calls.drain()


def test_a_stopping_server_runs_no_waiting_call(ledger: Path) -> None:
    canned = CannedLifecycle()
    calls = calls_of(canned, ledger)
    running, waiting = ask(calls, "running"), ask(calls, "waiting")
    assert canned.begun.wait(30)
    calls.drain()
    canned.released.set()
    running.result(30)
    for refused in (waiting, ask(calls, "new")):
        with pytest.raises(UnavailableError, match="the server is stopping"):
            refused.result(30)
    assert canned.reasons == ["running"]


def ask_comparison(calls: LifecycleCalls, context: CallContext = NEVER) -> "Future[bytes]":
    request = pb.CompareVersionsRequest(champion="mine@1", challenger="mine@2")
    return calls.handle("CompareVersions", request.SerializeToString(), context)


def test_a_cancelled_comparison_ends_at_its_next_step(ledger: Path) -> None:
    canned = CannedLifecycle()
    calls = calls_of(canned, ledger)
    context = CallContext()
    running = ask_comparison(calls, context)
    assert canned.begun.wait(30)
    context.cancel()
    canned.released.set()
    with pytest.raises(CallCancelledError):
        running.result(30)
    calls.drain()


def test_a_stopping_server_ends_a_comparison_at_its_next_step(ledger: Path) -> None:
    canned = CannedLifecycle()
    calls = calls_of(canned, ledger)
    running = ask_comparison(calls)
    assert canned.begun.wait(30)
    calls.drain()
    canned.released.set()
    with pytest.raises(UnavailableError, match="the server is stopping"):
        running.result(30)


def test_too_many_waiting_calls_are_refused(ledger: Path) -> None:
    canned = CannedLifecycle()
    calls = calls_of(canned, ledger)
    waiting = [ask(calls, "waiting") for _ in range(16)]
    with pytest.raises(QueueFullError):
        ask(calls, "one more").result(0)
    canned.released.set()
    for one in waiting:
        one.result(30)
    calls.drain()


def test_a_champion_that_cannot_be_served_is_an_error_that_says_so(ledger: Path) -> None:
    canned = CannedLifecycle()
    canned.released.set()

    def serve(name: str) -> None:
        raise ArtifactError(f"{name} is damaged")

    calls = calls_of(canned, ledger, serve)
    with pytest.raises(QuantraError, match="mine@1 is the champion now, but this server does not serve it: mine is da"):
        ask(calls, "first").result(30)
    calls.drain()
