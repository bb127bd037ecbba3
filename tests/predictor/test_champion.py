"""The champion: the version that a plain model name means."""

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from artifacts import recent_bars
from model_folders import RUNTIME, break_weights, forge_weights, save_seeds
from serving import HostedServer, hosted_server, serving

from predictor.client import QuantraClient
from predictor.errors import ModelNotFoundError
from predictor.registry import (
    ALIASES,
    FolderWatcher,
    ModelsFolder,
    Registry,
    claim_champion,
    claim_first_champion,
    read_aliases,
    set_alias,
)
from predictor.service import PredictionService

SOON_S = 60


@pytest.fixture(scope="module")
def saved_artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts 0, 1 and 2 with different weights."""
    return save_seeds(tmp_path_factory.mktemp("saved"), 0, 1, 2)


@pytest.fixture
def models(saved_artifacts: Path, tmp_path: Path) -> Path:
    """Versions 1 and 2 of `mine`, without a champion."""
    for version, seed in (("1", "0"), ("2", "1")):
        shutil.copytree(saved_artifacts / seed, tmp_path / "models" / "mine" / version)
    return tmp_path / "models"


def unwritable(line: Path) -> None:
    """Make it impossible to write the aliases, also for root."""
    (line / ALIASES).mkdir()


# --- the first champion


def test_a_model_without_a_champion_gets_its_newest_version_for_good(models: Path, saved_artifacts: Path) -> None:
    assert _champion(Registry.open(models, RUNTIME)) == 2
    shutil.copytree(saved_artifacts / "2", models / "mine" / "3")
    assert read_aliases(models / "mine") == {"champion": 2}
    assert _champion(Registry.open(models, RUNTIME)) == 2


def test_other_aliases_stay_when_the_champion_is_recorded(models: Path) -> None:
    set_alias(models / "mine", "canary", 1)
    assert _champion(Registry.open(models, RUNTIME)) == 2
    assert read_aliases(models / "mine") == {"canary": 1, "champion": 2}


def test_a_version_that_cannot_be_built_does_not_become_the_champion(models: Path) -> None:
    forge_weights(models / "mine" / "2", models / "mine" / "1")
    assert _champion(Registry.open(models, RUNTIME)) == 1
    assert read_aliases(models / "mine") == {"champion": 1}


def test_a_model_without_a_version_that_can_be_served_gets_no_champion(models: Path, saved_artifacts: Path) -> None:
    for version in ("1", "2"):
        break_weights(models / "mine" / version)
    shutil.copytree(saved_artifacts / "0", models / "other" / "1")
    registry = Registry.open(models, RUNTIME)
    assert not (models / "mine" / ALIASES).exists()
    with pytest.raises(ModelNotFoundError, match=r"^model 'mine' is not served: mine/1: weights.safetensors: its SHA"):
        registry.find("mine")


def test_a_folder_that_cannot_be_written_has_its_champion_in_memory(
    models: Path, saved_artifacts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unwritable(models / "mine")
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)
    registry = folder.open()
    (warning,) = caplog.messages
    assert (
        "mine/aliases.json cannot be written (Is a directory), so version 2, the newest, is the champion of" in warning
    )
    assert warning.endswith("set it with quantra alias mine champion 2")
    shutil.copytree(saved_artifacts / "2", models / "mine" / "3")
    followed = watch.poll(registry).registry
    assert _champion(followed) == 2
    assert followed.find("mine@3").identity.version == 3
    assert len(caplog.messages) == 1


def _run_at_once(tasks: Sequence[Callable[[], object]]) -> None:
    begin = threading.Barrier(len(tasks))

    def run(task: Callable[[], object]) -> None:
        begin.wait()
        task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        for task in [pool.submit(run, task) for task in tasks]:
            task.result()


@pytest.mark.parametrize("aliases", [None, '{"trial":2}'])
def test_of_many_servers_that_start_at_once_all_use_the_same_champion(models: Path, aliases: str | None) -> None:
    line = models / "mine"
    if aliases is not None:
        (line / ALIASES).write_text(aliases)
    champions: list[int] = []
    _run_at_once([lambda n=n: champions.append(claim_champion(line, 1 + n % 2)) for n in range(8)])
    assert set(champions) == {read_aliases(line)["champion"]}


def test_aliases_that_are_set_at_once_are_all_kept(models: Path) -> None:
    names = [f"trial-{n}" for n in range(8)]
    _run_at_once([lambda name=name: set_alias(models / "mine", name, 1) for name in names])
    assert read_aliases(models / "mine").keys() >= set(names)


# --- the first version of a training run


def test_the_first_version_of_a_model_becomes_its_champion(tmp_path: Path, saved_artifacts: Path) -> None:
    for version in ("4", "5"):
        shutil.copytree(saved_artifacts / "0", tmp_path / "mine" / version)
        claim_first_champion(tmp_path / "mine" / version)
    assert read_aliases(tmp_path / "mine") == {"champion": 4}


@pytest.mark.parametrize("name", ["draft", "01"])
def test_a_folder_that_is_no_version_gets_no_champion(tmp_path: Path, saved_artifacts: Path, name: str) -> None:
    shutil.copytree(saved_artifacts / "0", tmp_path / "mine" / name)
    claim_first_champion(tmp_path / "mine" / name)
    assert not (tmp_path / "mine" / ALIASES).exists()


def test_aliases_that_exist_are_not_touched_by_a_training(tmp_path: Path, saved_artifacts: Path) -> None:
    shutil.copytree(saved_artifacts / "0", tmp_path / "mine" / "1")
    (tmp_path / "mine" / ALIASES).write_text("not json")
    claim_first_champion(tmp_path / "mine" / "1")
    assert (tmp_path / "mine" / ALIASES).read_text() == "not json"


# --- while a server runs


def test_every_change_of_what_is_live_is_logged(
    models: Path, saved_artifacts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "predictor")
    with PredictionService.open(models, device="cpu") as service:
        assert _log_messages(caplog) == [
            (
                "mine: no version had the alias champion, so version 2, the newest, is recorded as champion in "
                "mine/aliases.json"
            ),
            "mine: version 1 is loaded",
            "mine: version 2 is loaded",
            "mine: the champion is version 2",
        ]
        shutil.copytree(saved_artifacts / "2", models / "mine" / "3")
        service.served.refresh()
        assert _log_messages(caplog) == ["mine: version 3 is loaded"]
        set_alias(models / "mine", "champion", 3)
        set_alias(models / "mine", "canary", 1)
        service.served.refresh()
        assert _log_messages(caplog) == [
            "mine: alias 'canary' is version 1",
            "mine: the champion is version 3 (was version 2)",
        ]
        (models / "mine" / ALIASES).write_text('{"champion": 3}')
        shutil.rmtree(models / "mine" / "1")
        service.served.refresh()
        assert _log_messages(caplog) == [
            "mine: version 1 is unloaded",
            "mine: alias 'canary' is removed (was version 1)",
        ]
        shutil.rmtree(models / "mine" / "3")
        shutil.copytree(saved_artifacts / "0", models / "mine" / "3")
        service.served.refresh()
        assert _log_messages(caplog) == ["mine: version 3 is replaced"]
        service.served.refresh()
        assert _log_messages(caplog) == []


def test_a_champion_that_is_removed_from_the_aliases_is_recorded_again(
    models: Path, saved_artifacts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "predictor")
    set_alias(models / "mine", "champion", 1)
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)
    registry = folder.open()
    (models / "mine" / ALIASES).unlink()
    shutil.copytree(saved_artifacts / "2", models / "mine" / "3")
    assert _champion(watch.poll(registry).registry) == 1
    assert read_aliases(models / "mine") == {"champion": 1}
    (line,) = _log_messages(caplog)
    assert "no version had the alias champion, so version 1, the current one, is recorded as champion in" in line


def test_a_champion_that_is_removed_with_its_alias_is_served_from_memory(models: Path) -> None:
    set_alias(models / "mine", "champion", 1)
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)
    registry = folder.open()
    (models / "mine" / ALIASES).unlink()
    shutil.rmtree(models / "mine" / "1")
    change = watch.poll(registry)
    assert _champion(change.registry) == 1
    (problem,) = change.problems
    assert "alias 'champion' names version 1, which is missing, so what was served stays; put it back, or release" in (
        problem.message
    )


def test_a_champion_in_memory_is_not_tried_again_at_every_change(
    models: Path, saved_artifacts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    set_alias(models / "mine", "champion", 1)
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)
    registry = folder.open()
    (models / "mine" / ALIASES).unlink()
    unwritable(models / "mine")
    registry = watch.poll(registry).registry
    (warning,) = _log_messages(caplog)
    assert "so version 1, the current one, is the champion of this process only" in warning
    shutil.copytree(saved_artifacts / "2", models / "mine" / "3")
    assert _champion(watch.poll(registry).registry) == 1
    assert _log_messages(caplog) == []


def test_a_champion_in_memory_follows_the_file_once_there_is_one(models: Path) -> None:
    unwritable(models / "mine")
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)
    registry = folder.open()
    (models / "mine" / ALIASES).rmdir()
    set_alias(models / "mine", "champion", 1)
    assert _champion(watch.poll(registry).registry) == 1


def test_the_record_of_the_champion_does_not_load_a_model_that_was_unloaded(
    models: Path, saved_artifacts: Path
) -> None:
    folder = ModelsFolder(models, RUNTIME)
    watch = FolderWatcher(folder)  # before the champion exists
    unloaded = folder.unload(folder.open(), "mine")
    assert watch.poll(unloaded).registry is unloaded
    shutil.copytree(saved_artifacts / "2", models / "mine" / "3")
    assert _champion(watch.poll(unloaded).registry) == 2


@pytest.fixture
def server(models: Path) -> Iterator[HostedServer]:
    set_alias(models / "mine", "champion", 1)
    with hosted_server(models, "--watch") as running:
        yield running


def test_a_plain_name_without_its_champion_is_refused_with_the_remedy(models: Path, saved_artifacts: Path) -> None:
    shutil.copytree(saved_artifacts / "0", models / "other" / "1")
    (models / "mine" / ALIASES).write_text(json.dumps({"champion": 9}))
    with (
        PredictionService.open(models, device="cpu") as service,
        serving(service) as served,
        QuantraClient(served.target, "mine") as client,
        pytest.raises(ModelNotFoundError) as refused,
    ):
        client.predict(recent_bars("AAPL"))
    remedy = "put it back, or release another version with quantra alias mine champion 2"
    assert "model 'mine' is not served: mine/aliases.json: alias 'champion' names version 9" in refused.value.message
    assert remedy in refused.value.message


@pytest.mark.slow
def test_servers_on_one_folder_answer_with_the_same_version_and_follow_the_same_release(
    models: Path, saved_artifacts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bars = recent_bars("AAPL")
    set_alias(models / "mine", "champion", 1)
    with ExitStack() as running, caplog.at_level(logging.INFO):
        servers = [running.enter_context(hosted_server(models, "--watch")) for _ in range(2)]
        clients = [running.enter_context(QuantraClient(server.target, "mine")) for server in servers]
        pinned = running.enter_context(QuantraClient(servers[0].target, "mine@3"))
        draft = models / "mine" / ".3.copying"
        shutil.copytree(saved_artifacts / "2", draft)
        draft.rename(models / "mine" / "3")
        _until_logged(caplog, "mine: version 3 is loaded", times=2)
        assert [client.predict(bars).version for client in clients] == [1, 1]
        assert pinned.predict(bars).version == 3
        set_alias(models / "mine", "champion", 3)
        _until_logged(caplog, "mine: the champion is version 3 (was version 1)", times=2)
        assert [client.predict(bars).version for client in clients] == [3, 3]


@pytest.mark.slow
def test_a_champion_that_is_deleted_or_damaged_while_it_is_served_still_answers(
    server: HostedServer, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bars = recent_bars("AAPL")
    with QuantraClient(server.target, "mine") as client:
        before = client.predict(bars)
        (models / "mine" / ALIASES).write_text("garbage")
        _until_logged(caplog, "mine/aliases.json: is not strict JSON")
        _until_logged(caplog, "correct the file, or remove it and set the aliases again; what was served stays")
        assert client.predict(bars).forecast_id == before.forecast_id
        break_weights(models / "mine" / "1")
        _until_logged(caplog, "mine/1: weights.safetensors: its SHA-256")
        assert client.predict(bars).forecast_id == before.forecast_id
        (models / "mine" / ALIASES).write_text('{"champion": 1}')
        shutil.rmtree(models / "mine" / "1")
        _until_logged(caplog, "names version 1, which is missing, so what was served stays")
        assert client.predict(bars).forecast_id == before.forecast_id


def _champion(registry: Registry) -> int:
    return registry.find("mine").identity.version


def _log_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log messages about the model since the last call."""
    told = [message for message in caplog.messages if message.startswith("mine")]
    caplog.clear()
    return told


def _until_logged(log: pytest.LogCaptureFixture, line: str, *, times: int = 1) -> None:
    for _ in range(SOON_S * 20):
        if sum(line in message for message in log.messages) >= times:
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"{line!r} is not {times} times in {log.messages}")
