"""Adoption of Kronos models: their numbers, their sampled paths, and refused folders."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_exits import program_exit_code
from market import bokeh_panel, without_bars
from published_models import kronos_config, set_waves, write_kronos_folders
from safetensors.torch import load_file, save_file

from predictor.artifact import load
from predictor.bars import BarPanel
from predictor.card import Card
from predictor.forecast import Detail, TargetPoint
from predictor.forecaster import Forecaster
from predictor.instance import ExplanationQuery, Instance
from predictor.networks import Inputs, InputSizes, Target
from predictor.networks.kronos import KronosForecaster, KronosModel, KronosTokenizer, choose_tokens, draw_noise
from trainers.cli.commands import app

call = partial(program_exit_code, app)
Capture = pytest.CaptureFixture[str]
SAME = 2e-6
READ, REACH, PATHS = 12, 3, 4
PUBLISHED = [
    [1.16272, 1.20147, 1.16731],
    [1.07669, 1.11588, 1.242],
    [1.28855, 1.26916, 1.19155],
    [1.28852, 1.26327, 1.13747],
]
"""[P, S] normalised closes by the published classes, with the weights and inputs of `sample_closes` and its choice of
tokens. Their angles of rotation are in float32."""


def sample_closes() -> torch.Tensor:
    tokenizer, model = KronosTokenizer(kronos_config()).double(), KronosModel(kronos_config()).double()
    set_waves(tokenizer)
    set_waves(model)
    bars = 2 * torch.sin(1.7 * torch.arange(6 * READ, dtype=torch.float64)).view(1, READ, 6)
    days = torch.arange(READ + REACH)
    stamps = torch.stack([0 * days, 0 * days, days % 5, days + 3, days % 12 + 1], dim=1)
    noise = torch.from_numpy(draw_noise(1, sessions=REACH, paths=PATHS))
    with torch.inference_mode():
        read = tokenizer.encode(bars)
        return tokenizer.decode(read, model.sample(read, stamps, noise))[..., 3]


def test_paths_are_those_of_the_published_classes() -> None:
    assert sample_closes().numpy() == pytest.approx(np.array(PUBLISHED), abs=2e-5)


def test_tokens_are_chosen_with_their_probabilities() -> None:
    noise = torch.from_numpy(draw_noise(0, sessions=1, paths=1000)[0, 0])
    chosen = choose_tokens(torch.tensor([[0.2, 0.5, 0.0, 0.3]], dtype=torch.float64).log(), noise)
    assert torch.bincount(chosen, minlength=4).numpy() == pytest.approx([200, 500, 0, 300], abs=1)


def test_a_shorter_forecast_has_the_same_noise_and_another_seed_another() -> None:
    noise = draw_noise(3, sessions=5, paths=7)
    assert np.array_equal(noise[:2], draw_noise(3, sessions=2, paths=7))
    assert not np.array_equal(noise, draw_noise(4, sessions=5, paths=7))


# --- inputs of one window


def forecaster() -> KronosForecaster:
    sizes = InputSizes(encoder_length=READ, future_length=REACH, observed=6, known=3, static=0)
    network = KronosForecaster(kronos_config(), sizes=sizes, target=Target(horizons=(1, 3)), levels=(0.1, 0.5, 0.9))
    set_waves(network)
    return network.eval()


def windows(count: int) -> Inputs:
    steps = np.random.default_rng(0).normal(0, 0.02, (count, READ, 6))
    bars = np.array([100.0, 101.0, 99.0, 100.0, 1e6, 1e8]) * np.exp(steps.cumsum(axis=1))
    days = torch.arange(READ + REACH)
    return Inputs(
        observed=torch.from_numpy(bars).float(),
        known=torch.stack([days % 5, days + 1, days % 12 + 1], dim=1).float().repeat(count, 1, 1),
        static=torch.zeros(count, 0),
        mask=torch.ones(count, READ, 6, dtype=torch.bool),
        location=torch.zeros(count, 2, dtype=torch.float64),
        scale=torch.full((count, 2), 0.02, dtype=torch.float64),
    )


@torch.inference_mode()
def test_a_row_alone_has_the_bits_of_the_row_in_a_batch() -> None:
    network, inputs = forecaster(), windows(3)
    together = network(inputs)
    assert all(torch.equal(network(inputs.rows(k, k + 1))[0], together[k]) for k in range(3))
    assert torch.equal(forecaster()(inputs), together)


@torch.inference_mode()
def test_quantiles_are_those_of_the_paths() -> None:
    network, inputs = forecaster(), windows(2)
    paths = network.paths(inputs)
    assert paths.shape == (2, 20, REACH)
    expected = np.quantile(paths[..., [0, 2]].numpy(), [0.1, 0.5, 0.9], axis=1).transpose(1, 2, 0)
    units = expected / (0.02 * network.spread.numpy()[:, None])
    assert network(inputs).numpy() == pytest.approx(units, abs=1e-12)


@torch.inference_mode()
def test_missing_sessions_are_left_out_with_their_stamps() -> None:
    network, inputs = forecaster(), windows(1)
    gap = slice(4, 6)
    mask = inputs.mask.clone()
    mask[:, gap] = False
    kept = [k for k in range(READ) if k not in range(4, 6)]
    shorter = Inputs(
        inputs.observed[:, kept],
        torch.cat([inputs.known[:, kept], inputs.known[:, READ:]], dim=1),
        inputs.static,
        inputs.mask[:, kept],
        inputs.location,
        inputs.scale,
    )
    assert torch.equal(network(inputs._replace(mask=mask)), network(shorter))
    assert not torch.equal(network(inputs), network(shorter))


@torch.inference_mode()
def test_a_window_with_an_unknown_volume_is_read_without_volumes() -> None:
    network, inputs = forecaster(), windows(1)
    mask = inputs.mask.clone()
    mask[0, 3, 4:] = False
    without = inputs.observed.clone()
    without[..., 4:] = 0.0
    found = network(inputs._replace(mask=mask))
    assert torch.equal(found, network(inputs._replace(observed=without)))
    assert not torch.equal(found, network(inputs))


@torch.inference_mode()
def test_a_close_below_zero_counts_as_a_hundredth_of_the_last_close() -> None:
    network, inputs = forecaster(), windows(1)
    network.tokenizer.head.bias[3] = -1e6
    assert network.paths(inputs).numpy() == pytest.approx(np.log(0.01), abs=1e-12)


# --- the command


@pytest.fixture(scope="module")
def bars() -> BarPanel:
    return without_bars(bokeh_panel("AAPL", "IBM"), "IBM", slice(-10, -8)).last(260)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kronos_folders(tmp_path_factory.mktemp("published"))


def adopt(published: Path, out: Path, *flags: object) -> int:
    where = (published / "model", "--tokenizer", published / "tokenizer")
    quick = ("--paths", 5, "--encoder-length", 10, "--horizons", "1,2", "--out", out)
    return call("adopt", "kronos", *where, "--trained-until", "2012-08-29", *quick, *flags)


@pytest.fixture(scope="module")
def adopted(published: Path, bars: BarPanel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    bars.select(["AAPL"]).write_csv(folder / "bars.csv")
    assert adopt(published, folder / "1", "--bars", folder / "bars.csv") == 0
    return folder / "1"


def test_an_adopted_model_reads_bars_and_dates_and_adds_offsets(adopted: Path, bars: BarPanel) -> None:
    artifact = load(adopted).artifact
    with Forecaster.load(adopted) as forecaster:
        found = forecaster.predict(bars).values
    network = artifact.network()
    assert isinstance(network, KronosForecaster)
    for row, symbol in enumerate(bars.symbols):
        panel = bars.select([symbol]).adjusted()
        present = np.isfinite(panel.close[0, -10:])
        o, h, low, c, v = (
            column[0, -10:][present] for column in (panel.open, panel.high, panel.low, panel.close, panel.volume)
        )
        cells = torch.from_numpy(np.stack([o, h, low, c, v, v * (o + h + low + c) / 4], axis=1)).float()
        dates = np.concatenate([bars.sessions[-10:][present], artifact.pipeline.following(int(bars.sessions[-1]))])
        stamps = torch.tensor([[day_of_week(date), date % 100, date // 100 % 100] for date in dates.tolist()])
        inputs = Inputs(
            cells[None], stamps[None].float(), torch.zeros(1, 0), torch.ones(1, len(cells), 6, dtype=torch.bool),
            torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64),
        )  # fmt: skip
        with torch.inference_mode():
            raw = network.quantiles(inputs)[0].numpy()
        offsets = np.array(artifact.manifest.conformal.offsets)
        lower, upper = ((found[row] - raw)[:, [0, 2]] / offsets[:, [0, 2]]).T
        assert (lower > 0).all()
        assert lower == pytest.approx(upper, rel=1e-6), symbol


def day_of_week(date: int) -> int:
    return int(np.datetime64(f"{date // 10000}-{date // 100 % 100:02}-{date % 100:02}").astype(int) + 3) % 7


def test_its_explanation_hides_bars(adopted: Path, bars: BarPanel) -> None:
    query = ExplanationQuery(
        instance=Instance(input=bars), targets=(TargetPoint(2, 0.5),), detail=Detail.TIMES, symbols=("AAPL",)
    )
    with Forecaster.load(adopted) as forecaster:
        (found,) = forecaster.explain(query).attributions
        whole = forecaster.predict(bars).values[0, 1, 1]
        without = forecaster.predict(without_bars(bars, "AAPL", slice(-2, -1))).values[0, 1, 1]
    assert found.row_names[0] == "bars 1 to 1 before the last"
    assert found.per_row[0, 0] == pytest.approx(whole - without, abs=SAME)


def test_days_that_its_training_saw_are_neither_calibration_nor_test(adopted: Path, capsys: Capture) -> None:
    splits = {split.name: split for split in card_of(adopted).splits}
    assert splits["calibration"].first > 20120829
    bars = adopted.parent / "bars.csv"
    assert call("evaluate", adopted, "--bars", bars, "--start", "2012-08-29") == 2
    assert "has seen" in capsys.readouterr().err


def test_the_card_has_the_hashes_of_both_folders(adopted: Path, published: Path, capsys: Capture) -> None:
    facts = card_of(adopted).adopted
    assert facts is not None
    assert (facts.architecture, facts.trained_until) == ("Kronos", 20120829)
    assert call("inspect", adopted, "--all") == 0
    shown = "".join(capsys.readouterr().out.split())
    for name in ("model", "tokenizer"):
        for file in ("model.safetensors", "config.json"):
            assert digest_of(published / name / file) in shown


def card_of(folder: Path) -> Card:
    return Card.from_json(json.dumps(load(folder).artifact.manifest.card))


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def add_pickle(folder: Path) -> None:
    (folder / "tokenizer" / "pytorch_model.bin").write_bytes(b"\x80\x04N.")


def drop_a_layer(folder: Path) -> None:
    path = folder / "model" / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if "transformer.1" not in name}, path)


HOSTILE: dict[str, tuple[Callable[[Path], None] | dict[str, Any], str]] = {
    "pickle": (add_pickle, "pickles, which can execute code when they are read: pytorch_model.bin"),
    "no tokenizer weights": (drop("tokenizer/model.safetensors"), "tokenizer/model.safetensors is missing"),
    "a layer less": (drop_a_layer, "model.safetensors does not fit config.json"),
    "auto_map": ({"auto_map": {"AutoModel": "m.M"}}, "has the key 'auto_map', which loads code"),
    "other bits": ({"s1_bits": 5}, "tokens of 4 and 4 bits, but the tokenizer"),
    "other channels": ({"d_in": 5}, "reads 5 numbers of a bar (d_in), but only 6"),
    "unknown setting": ({"rope_theta": 1.0}, "rope_theta"),
    "heads": ({"n_heads": 5}, "tokenizer_d_model is 12, but must be a multiple of twice tokenizer_n_heads, 5"),
    "missing setting": ({"ff_dim": None}, "ff_dim"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_folder_that_does_not_hold_a_kronos_model_is_refused(tmp_path: Path, case: str, capsys: Capture) -> None:
    change, message = HOSTILE[case]
    folder = write_kronos_folders(tmp_path / "published", **({} if callable(change) else change))
    if callable(change):
        change(folder)
    assert adopt(folder, tmp_path / "1") == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--sha256", "0" * 64), "model/model.safetensors has the SHA-256"),
        (("--tokenizer-sha256", "0" * 64), "tokenizer/model.safetensors has the SHA-256"),
        (("--horizons", "1,121"), "horizon 121 is beyond the 120 sessions"),
        (("--encoder-length", 2047), "the model reads at most 2046"),
        (("--paths", 0), "paths is 0"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(
    published: Path, tmp_path: Path, flags: tuple[object, ...], message: str, capsys: Capture
) -> None:
    assert adopt(published, tmp_path / "1", *flags) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_kronos_model_needs_its_tokenizer_and_a_date_and_chronos_has_neither_paths_nor_a_tokenizer(
    published: Path, tmp_path: Path, capsys: Capture
) -> None:
    model, out = published / "model", ("--out", tmp_path / "1")
    assert call("adopt", "kronos", model, "--trained-until", "2012-08-29", *out) == 1
    assert "needs the folder of its tokenizer (--tokenizer)" in " ".join(capsys.readouterr().err.split())
    assert call("adopt", "kronos", model, "--tokenizer", published / "tokenizer", *out) != 0
    assert "--trained-until" in capsys.readouterr().err
    assert call("adopt", "chronos", model, "--trained-until", "2012-08-29", "--paths", 3, *out) == 1
    assert "--paths and --seed are for kronos models" in " ".join(capsys.readouterr().err.split())


def test_stamps_whose_vectors_were_not_trained_are_read(published: Path, tmp_path: Path, bars: BarPanel) -> None:
    other = write_kronos_folders(tmp_path / "published", of_model={"learn_te": False})
    path = other / "model" / "model.safetensors"
    save_file({k.replace("_embed.weight", "_embed.emb.weight"): v for k, v in load_file(path).items()}, path)
    values: list[Any] = []
    for k, folder in enumerate((published, other)):
        assert adopt(folder, tmp_path / str(k + 1)) == 0
        with Forecaster.load(tmp_path / str(k + 1)) as forecaster:
            values.append(forecaster.predict(bars).values)
    assert np.array_equal(*values)
