"""Adoption of models that others trained: their numbers, days that count as seen, and refused folders."""

import hashlib
import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from baseline_cases import few_baselines
from command_exits import program_exit_code
from ensembles import save_ensemble
from market import bokeh_panel, without_bars
from numpy.typing import NDArray
from published_models import CONFIGS, REACH, random_model, write_published_folder
from safetensors.torch import load_file, save_file
from serving import serving

from predictor.artifact import load
from predictor.bars import BarPanel
from predictor.card import Card
from predictor.client import QuantraClient
from predictor.errors import ExplainUnsupportedError, MissingPackageError
from predictor.forecast import Detail, Forecast, TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import ExplanationQuery, Instance
from predictor.networks import chronos
from predictor.service import PredictionService
from trainers.cli.commands import app
from trainers.stock.adoption.adoption import AdoptionSettings, split_after

call = partial(program_exit_code, app)
KINDS = tuple(CONFIGS)
UNTIL = 20080630
SAME = 2e-6
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True, scope="module")
def with_few_baselines() -> Iterator[None]:
    with few_baselines():
        yield


@pytest.fixture(scope="module")
def bars() -> BarPanel:
    return without_bars(bokeh_panel("AAPL", "IBM"), "IBM", slice(-40, -35))


@pytest.fixture(scope="module")
def bars_file(bars: BarPanel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.csv"
    bars.write_csv(path)
    return path


@pytest.fixture(scope="module")
def models(bars_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adopted model of each kind, calibrated, by the name of the kind."""
    folder = tmp_path_factory.mktemp("adopted")
    for kind in KINDS:
        source = write_published_folder(folder / "published" / kind, kind)
        out = folder / "models" / kind / "1"
        dates = ("--trained-until", "2008-06-30", "--bars", bars_file)
        assert call("adopt", "chronos", source, *dates, "--out", out) == 0
    return folder / "models"


def adopt(source: Path, out: Path, *flags: object) -> int:
    return call("adopt", "chronos", source, "--trained-until", "2008-06-30", "--out", out, *flags)


def published_forecast(kind: str, closes: NDArray[np.float64]) -> NDArray[np.float64]:
    """[H, Q] returns by the package's model alone, for horizons 1, 5, 10, 20 and quantiles .1, .5, .9."""
    path = torch.from_numpy(np.log(closes / closes[-1])).float()
    options = {} if kind == "chronos-bolt" else {"num_output_patches": 3}
    with torch.inference_mode():
        predicted = random_model(kind)(context=path[None], **options).quantile_preds[0].double().numpy()
    return np.sort(predicted, axis=0)[[0, 2, 4]][:, [0, 4, 9, 19]].T


@each_kind
def test_an_adopted_model_forecasts_what_its_package_does(tmp_path: Path, bars: BarPanel, kind: str) -> None:
    source = write_published_folder(tmp_path / "published", kind)
    assert adopt(source, tmp_path / "1") == 0

    with Forecaster.load(tmp_path / "1") as forecaster:
        forecast = forecaster.predict(bars)

    for row, symbol in enumerate(bars.symbols):
        closes = bars.select([symbol]).adjusted().close[0, -96:]
        assert forecast.values[row] == pytest.approx(published_forecast(kind, closes), abs=1e-5), symbol


@each_kind
def test_offsets_are_added_to_an_adopted_model(models: Path, bars: BarPanel, kind: str) -> None:
    offsets = np.array(load(models / kind / "1").artifact.manifest.conformal.offsets)
    with Forecaster.load(models / kind / "1") as forecaster:
        values = forecaster.predict(bars).values

    assert np.abs(offsets[:, [0, 2]]).min() > 0
    assert (np.diff(values, axis=2) >= 0).all()


@each_kind
def test_a_row_alone_equals_the_row_in_a_batch_over_grpc(models: Path, bars: BarPanel, kind: str) -> None:
    panels = [bars, bars.select(["IBM"]), bars.until(20121214), bars.select(["AAPL"]).until(20120301)]
    with (
        PredictionService.open(models) as service,
        serving(service) as served,
        QuantraClient(served.target, kind) as client,
    ):
        together = client.predict_many(panels)
        alone = [client.predict(panel) for panel in panels]
        model = client.model()

    values = [one.values for one in together if isinstance(one, Forecast)]
    for one, other in zip(values, alone, strict=True):
        assert one == pytest.approx(other.values, abs=SAME)
    assert values[0][1] == pytest.approx(values[1][0], abs=SAME)
    assert model.explain_methods == ("occlusion",)


@each_kind
def test_a_contribution_is_what_the_forecast_loses_without_the_bars(tmp_path: Path, bars: BarPanel, kind: str) -> None:
    assert adopt(write_published_folder(tmp_path / "published", kind), tmp_path / "1") == 0
    query = ExplanationQuery(
        instance=Instance(input=bars), targets=(TargetPoint(5, 0.5),), detail=Detail.TIMES, symbols=("AAPL",)
    )

    with Forecaster.load(tmp_path / "1") as forecaster:
        (attribution,) = forecaster.explain(query).attributions
        whole = forecaster.predict(bars).values[0, 1, 1]
        without = forecaster.predict(without_bars(bars, "AAPL", slice(-5, -1))).values[0, 1, 1]

    assert attribution.per_time is not None
    assert len(attribution.row_names) == 20
    assert attribution.row_names[0] == "bars 1 to 4 before the last"
    assert attribution.per_row[0, 0] == pytest.approx(whole - without, abs=SAME)
    assert attribution.per_time[0, -5:] == pytest.approx([*[attribution.per_row[0, 0] / 4] * 4, 0.0])
    assert attribution.prediction[0] == pytest.approx(whole, abs=SAME)


def test_an_explanation_over_grpc_is_marked_as_not_additive(models: Path, bars: BarPanel) -> None:
    query = ExplanationQuery(instance=Instance(input=bars), targets=(TargetPoint(20, 0.9),))
    with (
        PredictionService.open(models) as service,
        serving(service) as served,
        QuantraClient(served.target, "chronos-bolt") as client,
    ):
        (attribution,) = client.explain(query).attributions
        with pytest.raises(ExplainUnsupportedError, match="ask for 'features' or 'times'"):
            client.explain(replace(query, detail=Detail.CELLS))

    assert attribution.method == "occlusion"
    assert "occlusion is not additive" in attribution.warnings[0]
    assert not attribution.converged.any()
    assert (attribution.relative_gap > 0.01).all()


def test_the_report_of_an_adopted_model_says_that_its_contributions_are_not_additive(
    models: Path, bars_file: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert call("report", models / "chronos-bolt" / "1", "--bars", bars_file, "--output", page) == 0

    text = page.read_text()
    assert "the rows are not additive" in text
    assert "add up to the difference" not in text
    assert "Trained by others until" in text


@each_kind
def test_the_card_says_where_the_weights_come_from(models: Path, kind: str) -> None:
    published = models.parent / "published" / kind
    card = card_of(models / kind / "1")

    assert card.adopted is not None
    assert card.adopted.trained_until == UNTIL
    assert card.adopted.architecture == CONFIGS[kind]["architectures"][0]
    assert card.adopted.weights_sha256 == digest_of(published / "model.safetensors")
    assert card.adopted.config_sha256 == digest_of(published / "config.json")
    assert (card.adopted.license_file, card.adopted.license_sha256) == ("LICENSE", digest_of(published / "LICENSE"))


def test_other_symbols_than_those_of_the_calibration_are_named(models: Path) -> None:
    with Forecaster.load(models / "chronos-bolt" / "1") as forecaster:
        (warning,) = forecaster.predict(bokeh_panel("IBM", "MSFT")).warnings

    assert warning.startswith("MSFT: not among the symbols that the model was calibrated on")


def test_days_before_the_end_of_its_training_are_neither_calibration_nor_test(models: Path) -> None:
    splits = {split.name: split for split in card_of(models / "chronos-bolt" / "1").splits}

    assert splits["selection"].last >= UNTIL
    assert splits["calibration"].first > UNTIL


def test_a_forecast_as_of_a_day_that_the_training_has_seen_says_so(
    tmp_path: Path, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt(write_published_folder(tmp_path / "published"), tmp_path / "1") == 0

    def warnings_of(day: str) -> list[str]:
        capsys.readouterr()
        assert call("predict", "--artifact", tmp_path / "1", "--bars", bars_file, "--as-of", day, "--json") == 0
        return json.loads(capsys.readouterr().out)["warnings"]

    assert warnings_of("2008-06-27")[0].startswith(
        "the training of the model has seen days until 2008-06-30, perhaps also what followed 2008-06-27"
    )
    assert not any("the training of the model" in line for line in warnings_of("2008-06-30"))


def test_a_late_end_of_the_training_moves_the_calibration_behind_it(bars: BarPanel) -> None:
    splits = split_after(bars.sessions, AdoptionSettings(trained_until=20110630))

    assert (splits.selection.last, splits.calibration.first) == (20110630, 20110701)
    assert splits.require_test().last == 20130301


def test_with_few_later_days_calibration_and_test_have_all_that_they_need(bars: BarPanel) -> None:
    sessions = bars.sessions[-200:]
    splits = split_after(sessions, AdoptionSettings(trained_until=int(sessions[29])))

    assert (splits.calibration.first, splits.require_test().first) == (sessions[40], sessions[120])


@pytest.mark.slow
def test_an_evaluation_refuses_days_that_the_training_may_have_seen(
    models: Path, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = models / "chronos-bolt" / "1"

    assert call("evaluate", model, "--bars", bars_file, "--start", "2008-06-30") == 2
    assert "has seen" in capsys.readouterr().err
    assert call("evaluate", model, "--bars", bars_file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["seeds"] is None


def test_two_adopted_models_are_compared_on_days_that_neither_has_seen(
    models: Path, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compare", "chronos-bolt", "chronos-2", "--models", models, "--bars", bars_file, "--json") == 0
    comparison = json.loads(capsys.readouterr().out)
    seen = {split.name: split for split in card_of(models / "chronos-bolt" / "1").splits}["calibration"].last

    assert comparison["first_day"] > seen > UNTIL


def test_a_model_that_is_adopted_without_bars_is_not_judged(
    tmp_path: Path, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt(write_published_folder(tmp_path / "published"), tmp_path / "1") == 0

    assert "not calibrated" in " ".join(card_of(tmp_path / "1").notes)
    assert call("evaluate", tmp_path / "1", "--bars", bars_file) == 1
    assert "adopt it again with --bars" in capsys.readouterr().err


def test_too_few_sessions_after_the_training_are_refused_with_their_number(
    tmp_path: Path, bars_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_published_folder(tmp_path / "published")
    flags = ("--trained-until", "2012-12-31", "--bars", bars_file, "--out", tmp_path / "1")

    assert call("adopt", "chronos", source, *flags) == 1
    assert "have 41 sessions after 2012-12-31, but calibration and test need 160" in capsys.readouterr().err


def test_the_end_of_the_training_must_be_stated_and_past(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_published_folder(tmp_path / "published")

    assert call("adopt", "chronos", source, "--out", tmp_path / "1") == 2
    assert "--trained-until" in capsys.readouterr().err
    assert call("adopt", "chronos", source, "--trained-until", "9999-01-04", "--out", tmp_path / "1") == 1
    assert "trained until 9999-01-04, which is in the future" in capsys.readouterr().err
    assert call("adopt", "chronos", source, "--trained-until", "1123-01-04", "--out", tmp_path / "1") == 1
    assert "trained until 1123-01-04, which is before any such model" in capsys.readouterr().err


@each_kind
def test_neither_an_adoption_nor_a_load_opens_a_connection(
    tmp_path: Path, bars: BarPanel, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def refuse(_socket: socket.socket, address: object) -> None:
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    source = write_published_folder(tmp_path / "published", kind, _name_or_path="amazon/chronos-bolt-small")

    assert adopt(source, tmp_path / "1") == 0
    with Forecaster.load(tmp_path / "1") as forecaster:
        assert np.isfinite(forecaster.predict(bars).values).all()


def test_without_the_package_a_model_is_refused_with_the_name_of_the_extra(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(chronos, "find_spec", find_nothing)

    with pytest.raises(MissingPackageError, match=re.escape("pip install 'quantra[adopt]'")):
        Forecaster.load(models / "chronos-2" / "1")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["evaluate", "inspect", "report", "backtest"])
def test_an_audit_of_an_adopted_model_is_not_suggested(
    models: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    artifact = models / "chronos-bolt" / "1"
    flags: dict[str, tuple[object, ...]] = {
        "inspect": (),
        "report": ("--bars", bars_file, "--output", tmp_path / "page.html"),
        "backtest": ("--bars", bars_file, "--refit", "never", "--out", tmp_path / "backtest"),
    }
    assert call(command, artifact, *flags.get(command, ("--bars", bars_file))) == 0
    assert "quantra audit" not in capsys.readouterr().out


def add_pickle(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"")


def add_code(folder: Path) -> None:
    (folder / "modeling.py").write_text("raise SystemExit\n")


def link_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "blob")
    (folder / "model.safetensors").symlink_to("blob")


def claim_huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}")


def enlarge_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({name: 1e37 * tensor for name, tensor in load_file(path).items()}, path)


def drop_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


HOSTILE: dict[str, tuple[Callable[[Path], None] | dict[str, Any], str]] = {
    "pickle": (add_pickle, "pickles, which can execute code when they are read: pytorch_model.bin"),
    "code": (add_code, "holds code: modeling.py"),
    "link": (link_weights, "model.safetensors is a link"),
    "header": (claim_huge_header, "its header claims 1099511627776 bytes"),
    "overflow": (enlarge_weights, "not finite"),
    "no weights": (drop_weights, "model.safetensors is missing"),
    "auto_map": ({"auto_map": {"AutoModel": "modeling.Model"}}, "has the key 'auto_map', which loads code"),
    "trust_remote_code": ({"trust_remote_code": True}, "has the key 'trust_remote_code', which loads code"),
    "architecture": ({"architectures": ["LlamaForCausalLM"]}, "architecture 'LlamaForCausalLM'"),
    "gated": ({"is_gated_act": True}, "is_gated_act is True, but only False is supported"),
    "other width": ({"d_ff": 48}, "model.safetensors does not fit config.json"),
    "huge": ({"d_model": 10**9}, "d_model is 1000000000, but must be 1 to 32768"),
    "more layers": ({"num_layers": 30}, "missing weights"),
    "distance": ({"relative_attention_max_distance": 1}, "relative_attention_max_distance is 1, but"),
    "unknown setting": (
        {"chronos_config": {**CONFIGS["chronos-bolt"]["chronos_config"], "scaling": "max"}},
        "chronos_config.scaling",
    ),
}


def test_a_model_whose_forecasts_are_not_finite_is_not_calibrated(
    bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_published_folder(tmp_path / "published")
    enlarge_weights(source)

    assert adopt(source, tmp_path / "1", "--bars", bars_file) == 1
    assert "forecasts of the split calibration are not finite" in capsys.readouterr().err


def test_weights_that_forecast_infinite_prices_are_refused_without_bars_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_published_folder(tmp_path / "published")
    path = source / "model.safetensors"
    last = {name: (1000.0 if "output_patch" in name else 1.0) * tensor for name, tensor in load_file(path).items()}
    save_file(last, path)

    assert adopt(source, tmp_path / "1") == 1
    assert re.search(r"reach a log return of [0-9.e+]+, which is impossible for a price", capsys.readouterr().err)
    assert not (tmp_path / "1").exists()


def test_a_refused_folder_is_named_in_a_short_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_published_folder(tmp_path / "published", num_layers=100)

    assert adopt(source, tmp_path / "1") == 1
    assert len(capsys.readouterr().err) < 1000


@pytest.mark.parametrize("case", HOSTILE)
def test_a_folder_that_is_not_only_config_and_weights_is_refused(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = HOSTILE[case]
    changes = {} if callable(change) else change
    source = write_published_folder(tmp_path / "published", **changes)
    if callable(change):
        change(source)

    assert adopt(source, tmp_path / "1") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "1").exists()


def test_weights_of_another_hash_than_stated_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_published_folder(tmp_path / "published")
    right = digest_of(source / "model.safetensors")

    assert adopt(source, tmp_path / "1", "--sha256", "0" * 64) == 1
    assert f"has the SHA-256 {right}" in capsys.readouterr().err
    assert adopt(source, tmp_path / "1", "--sha256", right.upper()) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--quantiles", "0.05,0.5"), "quantiles 0.05 are not among those that the model was trained for"),
        (("--horizons", f"1,{REACH + 1}"), f"horizon {REACH + 1} is beyond the {REACH} sessions"),
        (("--encoder-length", 97), "encoder length is 97, but the model reads at most 96"),
    ],
)
def test_forecasts_that_the_model_was_not_made_for_are_refused(
    tmp_path: Path, flags: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adopt(write_published_folder(tmp_path / "published"), tmp_path / "1", *flags) == 1
    assert message in capsys.readouterr().err


def test_changed_weights_of_an_adopted_artifact_are_refused(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(models / "chronos-bolt" / "1", tmp_path / "1")
    weights = bytearray((folder / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(weights)

    assert call("inspect", folder) == 1
    assert "its SHA-256 is not the manifest's" in capsys.readouterr().err


def test_an_adopted_model_is_neither_trained_again_nor_started_from(
    models: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("retrain", "chronos-bolt", "--models", models, "--bars", bars_file) == 1
    assert "chronos-bolt@1 is an adopted model, which has no recipe" in capsys.readouterr().err
    training = ("train", "stock", "--bars", bars_file, "--out", tmp_path / "1")
    assert call(*training, "--from", models / "chronos-bolt" / "1") == 1
    assert "no training can start from" in capsys.readouterr().err
    assert call(*training, "--model", "chronos-bolt") == 1
    assert "unknown network kind 'chronos-bolt'" in capsys.readouterr().err


@pytest.mark.slow
def test_an_ensemble_with_an_adopted_member_is_not_trained_again_and_the_member_is_named(
    models: Path, bars_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = (models / kind / "1" for kind in KINDS)
    flags = ("--bars", bars_file, "--weights", "equal", "--out", tmp_path / "both" / "1")
    assert call("ensemble", *members, *flags) == 0
    assert call("retrain", "both", "--models", tmp_path, "--bars", bars_file) == 1
    assert "member chronos-2-1 of both@1 is an adopted model" in " ".join(capsys.readouterr().err.split())


def card_of(folder: Path) -> Card:
    return Card.from_json(json.dumps(load(folder).artifact.manifest.card))


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_ensemble_of_adopted_models_is_explained_by_bars(models: Path, bars: BarPanel, tmp_path: Path) -> None:
    folder = save_ensemble(tmp_path / "1", {"one": models / "chronos-bolt" / "1", "two": models / "chronos-bolt" / "1"})
    query = ExplanationQuery(instance=Instance(input=bars), targets=(TargetPoint(20, 0.9),))
    with Forecaster.load(folder) as both, Forecaster.load(models / "chronos-bolt" / "1") as one:
        (found,), (alone,) = both.explain(query).attributions, one.explain(query).attributions

    assert found.baseline == "last_close"
    assert found.row_names == (*alone.row_names, "conformal")
    np.testing.assert_allclose(found.per_row[:, :-1], alone.per_row, rtol=0, atol=1e-9)
    assert "occlusion is not additive" in found.warnings[0]
