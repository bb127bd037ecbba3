"""Error messages for beginners: the problem, the path, and a remedy that works."""

import shutil
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from artifacts import recent_bars, save_small_artifact, small_artifact, small_models
from market import bokeh_panel
from serving import serving

from predictor import Forecaster
from predictor.artifact import MANIFEST, check_compatible
from predictor.client import AsyncQuantraClient, ClientCredentials, QuantraClient
from predictor.client.connection import target_of
from predictor.errors import ArtifactError, ConfigurationError, UnavailableError
from predictor.features import FittedFeatures, load_default_features
from predictor.global_importance import GlobalExplanationQuery
from predictor.inference import choose_device
from predictor.instance import Instance
from predictor.networks import Target
from predictor.registry import Registry, Runtime
from predictor.service import PredictionService
from trainers.stock import StockRecipe
from trainers.stock.bar_requirements import check_enough
from trainers.stock.recipe import recipe_of


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_models(tmp_path_factory.mktemp("models"), name="mine")
    shutil.copytree(folder / "mine" / "1", folder / "mine" / "10")
    return folder


# --- folders


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("mine", "did you mean {0}/mine/10 or {0}/mine/1?"),
        ("", "did you mean {0}/mine/10?"),
        ("mine/2", "did you mean {0}/mine/10 or {0}/mine/1?"),
        ("mine/1/golden", "copy the artifact again from where it was trained, or train it again"),
    ],
)
def test_a_path_that_is_no_artifact_is_answered_with_those_that_may_be_meant(
    given: str, meant: str, models: Path
) -> None:
    with pytest.raises(ArtifactError) as refused:
        Forecaster.load(models / given)
    assert refused.value.message.startswith(str(models / given))
    assert refused.value.message.endswith(meant.format(models))


def test_what_is_meant_loads(models: Path) -> None:
    with pytest.raises(ArtifactError) as refused:
        Forecaster.load(models / "mine")
    meant = refused.value.message.partition("did you mean ")[2].partition(" or ")[0]
    with Forecaster.load(meant) as forecaster:
        assert forecaster.model().version == 10


def test_a_missing_file_is_reported_with_its_artifact(tmp_path: Path) -> None:
    whole = save_small_artifact(tmp_path / "mine" / "1")
    (whole / "features.json").unlink()
    with pytest.raises(ArtifactError) as refused:
        Forecaster.load(whole)
    assert refused.value.message.startswith(f"{whole}/features.json: the file is missing; copy the artifact again")
    assert refused.value.metadata == {"file": "features.json"}


def test_a_server_hides_the_path_of_an_incomplete_artifact(tmp_path: Path) -> None:
    save_small_artifact(tmp_path / "mine" / "1")
    (tmp_path / "mine" / "2").mkdir()
    (tmp_path / "mine" / "2" / MANIFEST).touch()
    registry = Registry.open(tmp_path, Runtime(choose_device("cpu"), 16))
    assert all(str(tmp_path) not in problem.message for problem in registry.problems)


# --- bars


def enough(sessions: int, symbols: int, recipe: StockRecipe) -> None:
    panel = bokeh_panel("AAPL").last(sessions)
    check_enough(panel.sessions, symbols, load_default_features(), recipe, recipe.splits(panel.sessions))


@pytest.mark.parametrize("symbols", [1, 4, 110])
@pytest.mark.parametrize(
    "recipe", [StockRecipe(), recipe_of("har"), replace(StockRecipe(), scale="window", encoder_length=20)]
)
def test_the_number_of_sessions_that_too_few_bars_are_answered_with_is_enough(
    symbols: int, recipe: StockRecipe
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        enough(80, symbols, recipe)
    wanted = int(refused.value.message.partition("; give ")[2].split()[0])
    enough(wanted, symbols, recipe)
    with pytest.raises(ConfigurationError, match="for training, but this model needs at least"):
        enough(wanted - 4, symbols, recipe)


def test_a_mostly_unknown_feature_names_the_missing_bars() -> None:
    features = load_default_features()
    few = [column[:, :25] for column in features.columns(bokeh_panel("AAPL").last(25).adjusted())]
    with pytest.raises(ConfigurationError, match=r"known on \d+ bars of the training split, .* add \d+ bars"):
        FittedFeatures.fit(features, few)


# --- devices


@pytest.mark.parametrize("name", ["gpu", "cuda:first", "cuda0", "CUDA", ""])
def test_an_unknown_device_lists_the_available_ones(name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        choose_device(name)
    assert refused.value.message == f"unknown device {name!r}; use auto, cpu, cuda, cuda:N, xpu or xpu:N"


def test_a_missing_gpu_is_a_short_one_line_error() -> None:
    with pytest.raises(ConfigurationError) as refused:
        choose_device("cuda:99")
    assert len(refused.value.message) < 150
    assert "\n" not in refused.value.message


# --- addresses


def test_http_before_the_address_is_plain_text_as_in_csharp(models: Path) -> None:
    service = PredictionService(Registry.open(models, Runtime(choose_device("cpu"), 16)))
    with serving(service) as served, QuantraClient(f"http://{served.target}/", model="mine") as client:
        assert client.predict(recent_bars()).model == "mine"
    service.close()


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("HTTP://localhost:1", "localhost:1"),
        ("localhost:1", "localhost:1"),
        ("unix:///run/a.sock", "unix:///run/a.sock"),
        ("dns:///example.com:1", "dns:///example.com:1"),
    ],
)
def test_an_address_is_read_as_grpc_names_it(address: str, target: str) -> None:
    assert target_of(address, None) == target


def test_https_before_the_address_is_tls() -> None:
    assert target_of("https://example.com:1", ClientCredentials(ca=Path("ca.pem"))) == "example.com:1"
    with pytest.raises(ConfigurationError, match=r"https://example.com:1 means TLS; pass .*--tls-ca"):
        QuantraClient("https://example.com:1")
    with pytest.raises(ConfigurationError, match=r"use https://example.com:1, or remove ca="):
        target_of("http://example.com:1", ClientCredentials(ca=Path("ca.pem")))


@pytest.mark.parametrize("address", ["ftp://a:1", "http://", "http://a:1/v1", "https://me@a:1"])
def test_an_address_of_no_server_is_answered_with_one(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"use HOST:PORT, such as 127.0.0.1:50051"):
        target_of(address, None)


def test_the_target_beside_a_channel_of_the_callers_stays_as_it_is() -> None:
    with grpc.insecure_channel("localhost:1") as channel:
        QuantraClient("anything://here", channel=channel).close()


def test_the_asynchronous_client_reads_addresses_in_the_same_way() -> None:
    with pytest.raises(ConfigurationError, match="use HOST:PORT"):
        AsyncQuantraClient("ftp://a:1")


# --- wording


def test_a_closed_forecaster_raises(models: Path) -> None:
    with Forecaster.load(models / "mine" / "1") as forecaster:
        pass
    for ask in (
        lambda: forecaster.predict(recent_bars()),
        lambda: forecaster.feature_importance(recent_bars()),
        lambda: next(forecaster.explain_global(GlobalExplanationQuery(instances=(Instance(input=recent_bars()),)))),
    ):
        with pytest.raises(UnavailableError, match="this forecaster is closed; use it inside its `with`"):
            ask()


def test_different_targets_are_described_in_words() -> None:
    members = {"a": small_artifact(), "b": small_artifact(target=Target(lag=1, horizons=(1, 5)))}
    with pytest.raises(ConfigurationError) as refused:
        check_compatible(members)
    assert refused.value.message.startswith(
        "the target of a is log-return, lag 0, horizons 1, 5, 10, 20, that of b is log-return, lag 1, horizons 1, 5;"
    )
