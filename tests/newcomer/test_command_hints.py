"""Command conveniences: version, list of models, next command, and remaining time."""

import io
import json
import re
import shlex
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from artifacts import NO_SKILL, save_artifact, save_small_artifact, small_artifact, with_skill
from cards import full_card
from market import bokeh_panel
from serving import serving

from predictor.artifact import MANIFEST
from predictor.cli import run
from predictor.cli.options import BarsFlags, CovariateFlags
from predictor.cli.output import list_given_flags, quantra
from predictor.inference import choose_device
from predictor.registry import Registry, Runtime, read_aliases, set_alias
from predictor.service import PredictionService
from trainers.cli.commands import app
from trainers.progress.screen import MAX_LINES, no_progress, progress_on

Capture = pytest.CaptureFixture[str]
TINY = "--model lstm --calendar XNYS --horizons 1 --encoder-length 10 --scale window --epochs 1"


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run(app, [str(word) for word in words])
    return int(ended.value.code or 0)


def output_of(capsys: Capture, *words: object) -> str:
    """Standard output of a successful command."""
    capsys.readouterr()
    assert called(*words) == 0
    return capsys.readouterr().out


def next_commands(told: str) -> list[str]:
    """The commands listed below `Next:`."""
    lines = told.partition("Next: ")[2].splitlines()
    return [line.strip() for line in lines if line.strip().startswith("quantra ")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of one model: a champion with known skill, and a broken one."""
    folder = tmp_path_factory.mktemp("alone") / "models"
    save_small_artifact(folder / "mine" / "1")
    save_artifact(folder / "mine" / "2", with_skill(small_artifact(), NO_SKILL))
    save_small_artifact(folder / "mine" / "10")
    (folder / "mine" / "10" / MANIFEST).unlink()
    set_alias(folder / "mine", "champion", 2)
    return folder


@pytest.fixture(scope="module")
def bars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("my bars") / "bars.csv"
    bokeh_panel("AAPL", "GOOG").last(400).write_csv(path)
    return path


# --- the program itself


def test_the_program_prints_its_version(capsys: Capture) -> None:
    assert output_of(capsys, "--version") == f"quantra {version('quantra')}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train", "--bars", "x.csv"], "quantra train stock --bars x.csv --out models/mine/1"),
        (["train", "--bars", "my x.csv", "--out", "m/1"], "quantra train stock --bars 'my x.csv' --out m/1"),
        (["train", "--out=m/1", "--bars=x"], "quantra train stock --out=m/1 --bars=x"),
        (["tune", "--bars", "x.csv"], "quantra tune stock --bars x.csv --out models/mine/1"),
    ],
)
def test_flags_without_a_command_are_answered_with_the_whole_command(
    words: list[str], meant: str, capsys: Capture
) -> None:
    assert called(*words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == meant
    assert called(*words, "--json") == 2
    assert "you want: quantra " in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["list"], "quantra models"),
        (["list", "m"], "quantra models --models m"),
        (["show", "A B"], "quantra inspect 'A B'"),
    ],
)
def test_a_command_by_another_name_is_answered_with_the_whole_command(
    words: list[str], meant: str, capsys: Capture
) -> None:
    assert called(*words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == meant


# --- models


def test_the_models_of_the_folder_models_are_listed_without_its_name(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "models").symlink_to(models)
    monkeypatch.chdir(tmp_path)
    assert output_of(capsys, "models") == output_of(capsys, "models", "--models", "models")


def test_without_a_folder_models_its_name_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("models", "--json") == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "there is no folder models here; give --models DIR or --server HOST:PORT" in message


def test_the_models_of_a_folder_are_listed_with_aliases_skill_dates_and_size(models: Path, capsys: Capture) -> None:
    told = " ".join(output_of(capsys, "models", "--models", models).split())
    assert "mine@1 lstm unknown 2018-03-31" in told
    assert "mine@2 lstm champion unknown 2018-03-31" in told
    assert NO_SKILL.line in told
    assert "KiB" in told
    assert "mine@10" in told
    assert "manifest.json: the file is missing" in told


def test_the_models_of_a_folder_are_listed_for_programs(models: Path, capsys: Capture) -> None:
    listed = json.loads(output_of(capsys, "models", "--models", models, "--json"))["models"]
    assert [(one["name"], one["version"], one["aliases"]) for one in listed] == [
        ("mine", 1, []),
        ("mine", 2, ["champion"]),
        ("mine", 10, []),
    ]
    size = sum(path.stat().st_size for path in (models / "mine" / "2").rglob("*") if path.is_file())
    assert listed[1]["bytes"] == size
    assert listed[1]["calendar_ends"] == 20180331
    assert listed[1]["skill"]["line"] == NO_SKILL.line
    assert listed[2]["problem"].startswith("manifest.json: the file is missing")


def test_only_the_version_in_an_unreadable_folder_is_reported(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The check is faked, because root may read everything."""
    shutil.copytree(models / "mine", tmp_path / "mine")
    closed, is_file = tmp_path / "mine" / "2", Path.is_file

    def looked_at(path: Path) -> bool:
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", looked_at)
    listed = json.loads(output_of(capsys, "models", "--models", tmp_path, "--json"))["models"]
    assert [one["problem"] is None for one in listed] == [True, False, False]
    assert (listed[1]["problem"], listed[1]["bytes"]) == ("the folder cannot be read: Permission denied", None)


def test_a_server_lists_what_it_serves_as_the_folder_does(models: Path, capsys: Capture) -> None:
    mine = json.loads(output_of(capsys, "models", "--models", models, "--json"))["models"][:2]
    service = PredictionService(Registry.open(models, Runtime(choose_device("cpu"), 16)))
    with serving(service) as served:
        theirs = json.loads(output_of(capsys, "models", "--server", f"http://{served.target}", "--json"))["models"]
    service.close()
    assert theirs == [{**one, "bytes": None} for one in mine]


@pytest.mark.parametrize("place", ["mine", "mine/2", ".."])
def test_a_folder_too_high_or_too_low_is_answered_with_the_one_that_is_meant(
    place: str, models: Path, capsys: Capture
) -> None:
    asked = models / place if place != ".." else models.parent
    assert called("models", "--models", asked) == 1
    told = capsys.readouterr().err
    assert f"{asked} holds no model" in told
    assert place == ".." or f"did you mean {models}?" in told


def test_a_server_of_a_folder_too_low_names_the_folder_that_is_meant(models: Path, capsys: Capture) -> None:
    assert called("serve", "--models", models / "mine", "--listen", "127.0.0.1:0") == 1
    assert f"did you mean {models}?" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--models", "a", "--server", "b:1"], ["--models", "a", "--tls-ca", "c"]])
def test_models_wants_one_place(flags: list[str]) -> None:
    assert called("models", *flags) == 2


# --- inspect


def test_inspect_fits_on_a_screen(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    card: Any = full_card()
    card["scores"]["rows"] += [{**card["scores"]["rows"][1], "name": f"another baseline {k}"} for k in range(20)]
    made = small_artifact()
    folder = save_artifact(tmp_path / "mine" / "1", replace(made, manifest=replace(made.manifest, card=card)))

    few, whole = output_of(capsys, "inspect", folder), output_of(capsys, "inspect", folder, "--all")

    assert len(few.splitlines()) <= 40
    assert max(map(len, few.splitlines()[:-2])) <= 100
    for told in ("No skill over GARCH(1,1)-t", "140 bars of each symbol", "this model", "best epoch 7 of 12"):
        assert told in " ".join(few.split())
    assert "another baseline 7" not in few
    assert "another baseline 7" in whole
    assert len(whole.splitlines()) > 100


# --- next commands


def test_every_command_that_is_named_as_next_can_be_given_as_it_stands(
    bars: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Follow each command's `Next:` lines, copying them literally."""
    monkeypatch.chdir(tmp_path)
    waiting = [quantra("train", "stock", "--bars", bars, "--out", "my models/mine/1", *TINY.split())]
    done = dict[str, str]()
    while waiting:
        command = waiting.pop(0)
        name = command.split()[1]
        if name not in done:
            done[name] = output_of(capsys, *shlex.split(command)[1:], *QUICKER.get(name, ""))
            assert bool(next_commands(done[name])) != (name in LAST)
            waiting += [one.replace("BARS", shlex.quote(str(bars))) for one in next_commands(done[name])]
    assert set(done) == {"train", "inspect", "evaluate", "predict", "explain", "backtest", "audit", "report"}


def test_the_first_version_is_the_champion_and_a_later_one_names_the_command_that_releases_it(
    bars: Path, tmp_path: Path, capsys: Capture
) -> None:
    told = [
        output_of(
            capsys, "train", "stock", "--bars", bars, "--out", tmp_path / "models" / "mine" / version, *TINY.split()
        )
        for version in ("1", "2")
    ]
    release = quantra("alias", "mine", "champion", "2", "--models", tmp_path / "models")
    assert [release in next_commands(each) for each in told] == [False, True]
    assert read_aliases(tmp_path / "models" / "mine") == {"champion": 1}


QUICKER = {
    "evaluate": ["--seeds", "1"],
    "audit": ["--permutations", "1", "--epochs", "1", "--sessions", "2"],
}
"""Flags that speed up slow commands."""
LAST = {"report"}
"""Commands without a next step for an audited model."""


def test_json_output_has_nothing_else(models: Path, capsys: Capture) -> None:
    for words in (["inspect", models / "mine" / "1"], ["models", "--models", models]):
        json.loads(output_of(capsys, *words, "--json"))


def test_after_a_folder_of_models_it_can_be_served_and_asked(models: Path, capsys: Capture) -> None:
    told = next_commands(output_of(capsys, "models", "--models", models))
    assert quantra("serve", "--models", models) in told
    assert next_commands(output_of(capsys, "alias", "mine", "champion", 1, "--models", models))[0] == quantra(
        "models", "--models", models
    )
    output_of(capsys, "alias", "mine", "champion", 2, "--models", models)


def test_a_version_that_cannot_be_read_is_not_the_one_that_is_advised(models: Path, capsys: Capture) -> None:
    told = next_commands(output_of(capsys, "models", "--models", models))
    assert told[0] == quantra("inspect", models / "mine" / "2")  # 10 is broken


def test_next_commands_repeat_the_flags_that_were_given_and_no_password() -> None:
    flags = BarsFlags(bars=["my bars.csv"]), CovariateFlags(covariates=[Path("a.csv"), Path("b.csv")])
    assert (
        quantra("x", *list_given_flags(*flags))
        == "quantra x --bars 'my bars.csv' --covariates a.csv --covariates b.csv"
    )
    secret = BarsFlags(bars=["postgresql://me:secret@host/db"], query="select 1")
    assert list_given_flags(secret) == ("--bars", "BARS", "--query", "select 1")


# --- progress


def progress_output(steps: int, *, terminal: bool) -> str:
    stream: Any = io.StringIO()
    stream.isatty = lambda: terminal
    assert list(progress_on(stream)(range(steps), title="scoring", tell="row {}".format)) == list(range(steps))
    return stream.getvalue()


def test_where_there_is_no_terminal_each_step_is_a_line_as_it_begins() -> None:
    assert progress_output(2, terminal=False) == "scoring 1/2  row 0\nscoring 2/2  row 1\n"
    assert len(progress_output(1000, terminal=False).splitlines()) <= MAX_LINES
    assert progress_output(0, terminal=False) == ""


def test_on_a_terminal_a_bar_says_what_is_done_and_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    drawn = progress_output(3, terminal=True)
    assert "scoring" in drawn
    assert re.search(r"\d/3", drawn)
    assert "row 2" in drawn


def test_an_observer_is_optional() -> None:
    assert list(no_progress([1, 2], title="", tell=str)) == [1, 2]
