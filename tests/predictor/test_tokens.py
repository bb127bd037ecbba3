"""Token files, and the calls that each token permits."""

import hmac
from collections.abc import Sequence

import pytest
from watched_logs import token

from predictor._pb import ledger_pb2 as ledger_pb
from predictor._pb import prediction_pb2 as pb
from predictor.errors import ConfigurationError, PermissionDeniedError, UnauthenticatedError
from predictor.server.tokens import MAX_TOKENS, NEEDS, Role, Token, TokenGuard, Tokens

A, B, C, D = map(token, "abcd")
FILE = f"""# who may ask
desk predict {A}

research predict,explain {B}
  # between
ops admin {C}
page reader {D}
"""


def bearer(token: str) -> Sequence[tuple[str, str]]:
    return [("user-agent", "a test"), ("authorization", f"Bearer {token}")]


def test_a_file_has_a_token_a_line_beside_comments_and_empty_lines() -> None:
    found = {token.name: token.roles for token in Tokens.parse(FILE).all}
    assert found == {
        "desk": {Role.PREDICT},
        "research": {Role.PREDICT, Role.EXPLAIN},
        "ops": {Role.ADMIN},
        "page": {Role.READER},
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f"desk predict {A[1:]}", "line 2: the token has 31 characters, but must have 32"),
        ("desk predict " + "x" * 1025, "1025 characters"),
        (f"desk predict {A}\N{LATIN SMALL LETTER E WITH ACUTE}", "not visible ASCII"),
        (f"desk {A}", "line 2: 2 words"),
        (f"desk predict explain {A}", "line 2: 4 words"),
        (f"desk predict,forecast {A}", "1 unknown roles; use predict, explain, reader, admin"),
        (f"desk predict, {A}", "1 unknown roles"),
        (f"d/e predict {A}", "invalid name; use at most 64 letters"),
        (f"two predict {B}", "line 2: duplicates the token of an earlier line"),
    ],
)
def test_a_line_that_is_no_token_is_refused_by_number_and_never_shown(line: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Tokens.parse(f"one predict {B}\n{line}\n")
    assert problem in refused.value.message
    assert not any(word in refused.value.message for word in (A, A[1:], B, "forecast", "d/e"))


@pytest.mark.parametrize("count", [0, MAX_TOKENS + 1])
def test_a_file_of_no_token_or_of_too_many_is_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{count} tokens found"):
        Tokens.parse("# nobody\n" + "".join(f"n predict {number:032}\n" for number in range(count)))


def test_a_token_is_compared_with_every_one_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number and length of comparisons is measured: the same for every token."""
    tokens, compared = Tokens.parse(FILE), list[tuple[int, int]]()
    real = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    names = []
    for sent in (A, B, C, D, "x", "a" * 31 + "b", "y" * 5000):
        compared.clear()
        found = tokens.find(sent)
        names.append(found and found.name)
        assert compared == [(32, 32)] * 4
    assert names == ["desk", "research", "ops", "page", None, None, None]


def test_a_token_is_nowhere_in_what_is_shown_of_tokens() -> None:
    assert A not in repr(Tokens.parse(FILE))
    assert str(Tokens.parse(FILE).all[0].digest) not in repr(Tokens.parse(FILE))


def test_one_more_token_that_is_there_already_takes_no_role_away() -> None:
    more = Tokens.parse(FILE).with_token(Token.of("own", (Role.PREDICT, Role.EXPLAIN), C))
    assert more == Tokens.parse(FILE)


PREDICTING = {"Predict", "PredictStream", "SimulatePaths", "ModelInfer", "ModelStreamInfer"}
LIFECYCLE = {"CompareVersions", "PromoteVersion", "RollBackChampion"}
OF_ANY = {"ListModels", "GetModel", "ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata"} | {
    "ModelConfig",
    "RepositoryIndex",
}
SERVICES = [
    *(pb.DESCRIPTOR.services_by_name[name] for name in ("PredictionService", "ModelAdminService")),
    *(ledger_pb.DESCRIPTOR.services_by_name[name] for name in ("LedgerService", "LifecycleService")),
]


@pytest.mark.parametrize("name", [method.name for service in SERVICES for method in service.methods])
def test_every_call_says_what_it_needs(name: str) -> None:
    assert NEEDS[name]


@pytest.mark.parametrize(
    ("token", "allowed"),
    [
        (A, PREDICTING),
        (B, PREDICTING | {"Explain", "ExplainGlobal"}),
        (C, {"LoadModel", "UnloadModel", "ReloadModel", "RepositoryModelLoad", "a call of tomorrow"} | LIFECYCLE),
        (D, {"GetForecast", "ListForecasts", "GetHealth", "WatchEvents"}),
    ],
)
def test_a_token_is_good_for_the_calls_of_its_roles_alone(token: str, allowed: set[str]) -> None:
    guard, let_in = TokenGuard(Tokens.parse(FILE)), set[str]()
    for name in (*NEEDS, "RepositoryModelLoad", "a call of tomorrow"):
        try:
            guard.check(name, bearer(token))
        except PermissionDeniedError as error:
            assert error.metadata["role"] in error.message  # noqa: PT017 - each call is one or the other
        else:
            let_in.add(name)
    assert let_in == allowed | OF_ANY


def test_health_needs_no_token() -> None:
    guard = TokenGuard(Tokens.parse(FILE))
    assert [name for name, need in NEEDS.items() if not need] == ["ServerLive", "ServerReady"]
    guard.check("ServerLive", [])
    with pytest.raises(UnauthenticatedError):
        guard.check("ServerMetadata", [])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer ")],
        [("authorization", A)],
        [("authorization", f"Basic {A}")],
        [("authorization", f"Bearer {A}x")],
        [("authorization", f"Bearer {A[:-1]}")],
        [*bearer(A), *bearer(B)],
        [("authorization-bin", b"Bearer " + A.encode())],
        [("x-authorization", f"Bearer {A}")],
    ],
)
def test_a_call_without_one_known_token_is_nobodys(headers: Sequence[tuple[str, str | bytes]]) -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        TokenGuard(Tokens.parse(FILE)).check("Predict", headers)
    assert A[:-1] not in refused.value.message


def test_the_scheme_may_be_in_any_case() -> None:
    TokenGuard(Tokens.parse(FILE)).check("Predict", [("authorization", f"bearer  {A} ")])


def test_without_a_token_file_no_token_is_required() -> None:
    TokenGuard().check("Predict", [])
    TokenGuard().check("UnloadModel", [])


def test_other_tokens_are_known_at_once_and_the_earlier_ones_no_more() -> None:
    guard = TokenGuard(Tokens.parse(FILE))
    guard.change(Tokens.parse(f"desk predict {'n' * 32}"))
    guard.check("Predict", bearer("n" * 32))
    with pytest.raises(UnauthenticatedError):
        guard.check("Predict", bearer(A))
