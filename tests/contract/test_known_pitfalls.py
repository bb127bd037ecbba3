"""Known pitfalls of stock prediction services, at least one test each."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from artifacts import recent_bars, save_small_artifact, small_artifact, small_model, small_models
from explain_cases import normalised_lstm, windows
from market import bokeh_panel
from regression import Rows, linear, rows, squares
from serving import hosted_server, serving
from torch import Tensor, nn
from window_levels import levels_at

from predictor import Forecaster
from predictor._pb import prediction_pb2
from predictor.bars import BarPanel
from predictor.call_context import NEVER
from predictor.client import QuantraClient
from predictor.errors import ArtifactError, BarsError, FeatureMismatchError, TooFewBarsError, UnavailableError
from predictor.explain import Baseline, Explainer, build_attribution_view
from predictor.golden import AFTER_ALL_SESSIONS
from predictor.inference import Engine, freeze
from predictor.instance import ExplanationQuery, FeatureWindow, Instance
from predictor.model import build_output_map
from predictor.networks import Inputs, Target, TargetKind, normalise, restore
from predictor.service import PredictionService
from trainers.loop import (
    ContractError,
    DetachedLossError,
    EpochReport,
    IterableSource,
    Loop,
    Loss,
    NoGradientError,
    Phase,
    Precision,
    Report,
    StepReport,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def forecaster(tmp_path_factory: pytest.TempPathFactory) -> Forecaster:
    return Forecaster.load(save_small_artifact(tmp_path_factory.mktemp("pains") / "small" / "1"))


# --- snapshot instead of sequence


def test_snapshot_instead_of_sequence_is_refused_with_have_and_need(forecaster: Forecaster) -> None:
    with pytest.raises(TooFewBarsError) as refusal:
        forecaster.predict(recent_bars().last(1))
    assert refusal.value.metadata == {"symbol": "AAPL", "have": "1", "need": "30"}


def test_snapshot_among_whole_histories_is_refused_alone(forecaster: Forecaster) -> None:
    whole = recent_bars("AAPL", "IBM")
    columns = {name: getattr(whole, name).copy() for name in ("open", "high", "low", "close", "volume", "adj_close")}
    for column in columns.values():
        column[1, :-1] = np.nan
    found = forecaster.predict(replace(whole, **columns))
    assert isinstance(found.refusals["IBM"], TooFewBarsError)
    assert np.isnan(found.values[1]).all()
    np.testing.assert_array_equal(found.values[0], forecaster.predict(recent_bars("AAPL")).values[0])


def test_snapshot_repeated_as_a_sequence_is_refused_too() -> None:
    one = recent_bars().last(1)
    with pytest.raises(BarsError, match="2013-03-01 appears twice"):
        BarPanel(
            symbols=one.symbols,
            sessions=np.repeat(one.sessions, 140),
            open=np.repeat(one.open, 140, axis=1),
            high=np.repeat(one.high, 140, axis=1),
            low=np.repeat(one.low, 140, axis=1),
            close=np.repeat(one.close, 140, axis=1),
            volume=np.repeat(one.volume, 140, axis=1),
        )


# --- feature mismatch at serve time


def test_feature_mismatch_at_serve_time_names_the_schema_and_the_features(forecaster: Forecaster) -> None:
    with pytest.raises(FeatureMismatchError, match="return_1"):
        forecaster.predict(Instance(input=replace(_window(), schema_hash="another")))


def test_training_and_serving_compute_the_same_inputs() -> None:
    pipeline = small_artifact().pipeline
    bars = bokeh_panel("AAPL")
    whole = pipeline.encode(bars)
    for day in (500, 1500, 3000):
        served = pipeline.encode_latest(bars.until(int(bars.sessions[day])))
        trained = whole.observed[:, day - 59 : day + 1]
        np.testing.assert_allclose(served.observed, trained, atol=1e-6)
        _, scale = levels_at(pipeline, served, -1)
        np.testing.assert_allclose(scale, levels_at(pipeline, whole, day)[1], rtol=1e-12)


# --- double normalisation of targets


@pytest.mark.parametrize("kind", TargetKind)
def test_double_normalisation_of_targets_is_undone_exactly_once(kind: TargetKind) -> None:
    target = Target(kind=kind)
    labels = torch.from_numpy(target.labels(bokeh_panel("AAPL").adjusted())[0, 500:600])
    location, scale = (torch.full((100, 4), level, dtype=torch.float64) for level in (0.001, 0.02))
    spread = torch.from_numpy(target.spread)
    units = normalise(labels, location, scale, spread)
    torch.testing.assert_close(restore(units[..., None], location, scale, spread)[..., 0], labels, rtol=1e-12, atol=0)


def test_a_served_return_has_the_size_of_returns(forecaster: Forecaster) -> None:
    forecast = forecaster.predict(recent_bars("AAPL", "IBM"))
    assert forecast.returns is not None
    width = forecast.returns[:, 0, 2] - forecast.returns[:, 0, 0]
    assert ((width > 0.005) & (width < 0.2)).all()


# --- state-dict mismatch on load, fallback models


def test_state_dict_mismatch_on_load_is_an_error_naming_the_weights() -> None:
    made = small_artifact()
    weights = dict(made.weights)
    weights["lstm.surprise"] = weights.pop("lstm.weight_ih_l0")
    with pytest.raises(ArtifactError, match=r"missing weights lstm.weight_ih_l0, unknown weights lstm.surprise"):
        replace(made, weights=weights).network()


def test_a_model_that_does_not_load_is_never_replaced_by_another(tmp_path: Path) -> None:
    models = small_models(tmp_path, name="good")
    broken = save_small_artifact(tmp_path / "broken" / "1")
    (broken / "weights.safetensors").write_bytes(b"no weights")
    with PredictionService.open(models) as service, serving(service) as served, QuantraClient(served.target) as client:
        assert [info.name for info in client.models()] == ["good"]
        assert [problem.message.split(":")[0] for problem in service.problems] == ["broken/1"]


# --- pickled scalers


def test_pickled_scalers_have_no_place_in_an_artifact(tmp_path: Path) -> None:
    folder = save_small_artifact(tmp_path / "small" / "1")
    files = {p.suffix for p in folder.rglob("*") if p.is_file()}
    assert files == {".json", ".safetensors", ".sha256"}
    scaling = json.loads((folder / "features.json").read_bytes())["scaling"]
    assert len(scaling["center"]) == len(scaling["scale"]) == 23


# --- invented importances


class _DetachedNetwork(nn.Module):
    """A network whose output has no gradient with respect to its inputs."""

    def forward(self, inputs: Inputs) -> Tensor:
        return torch.zeros(len(inputs.observed), 4, 3)


def test_missing_gradients_never_become_a_uniform_importance() -> None:
    model = small_model(small_artifact())
    prepared = model.prepare(Instance(input=recent_bars()), AFTER_ALL_SESSIONS)
    baseline = Baseline(
        name="zero",
        known=np.zeros(5, np.float32),
        static=np.zeros(0, np.float32),
        location=np.zeros(4),
        scale=np.full(4, 0.02),
    )
    deaf = Explainer(
        build_attribution_view(_DetachedNetwork()), build_output_map(model.manifest), baseline, max_rows=64
    )
    found = deaf.explain(prepared.inputs, [(0, 1)], tolerance=0.01, deadline=NEVER)[0]
    assert not found.observed.any()
    assert not found.known.any()


def test_importance_differs_between_features_and_adds_up(forecaster: Forecaster) -> None:
    reasons = forecaster.feature_importance(recent_bars())
    assert len(np.unique(np.round(reasons.importance[0], 12))) > 20
    total = reasons.prediction - reasons.baseline_prediction
    assert abs(reasons.per_row.sum() - total[0]) <= 0.01 * abs(total[0]) + 1e-6


# --- cuDNN backward in eval mode; train mode leaves dropout on


def test_backward_of_a_recurrent_net_runs_in_train_mode_without_dropout_and_leaves_no_trace() -> None:
    network = freeze(small_artifact(dropout=0.5).network())
    states = {name: module.training for name, module in network.named_modules()}
    view = build_attribution_view(network)
    recurrent = [m for m in view.modules() if isinstance(m, nn.RNNBase)]
    assert recurrent
    assert all(m.training and m.dropout == 0 for m in recurrent)
    assert not any(m.training for m in view.modules() if isinstance(m, nn.Dropout))
    assert {name: module.training for name, module in network.named_modules()} == states


def test_predictions_are_bit_equal_while_explanations_run_in_another_thread(forecaster: Forecaster) -> None:
    bars = recent_bars("AAPL", "MSFT")
    alone = forecaster.predict(bars).values
    query = ExplanationQuery(instance=Instance(input=bars))
    with ThreadPoolExecutor(2) as pool:
        explanations = [pool.submit(forecaster.explain, query) for _ in range(4)]
        beside = [forecaster.predict(bars).values for _ in range(50)]
        for explanation in explanations:
            explanation.result()
    assert all(np.array_equal(alone, values) for values in beside)


# --- out of memory in evaluation


def test_evaluation_runs_in_bounded_chunks_however_many_windows_there_are() -> None:
    made = small_artifact()
    sizes: list[int] = []
    network = freeze(made.network())
    network.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0].observed)))
    model = small_model(made)
    inputs = model.prepare(Instance(input=recent_bars()), AFTER_ALL_SESSIONS).inputs
    many = Inputs(*(group.repeat(1000, *[1] * (group.dim() - 1)) for group in inputs))
    Engine(network, build_output_map(made.manifest), device=torch.device("cpu"), max_rows=64).compute_units(many)
    assert sum(sizes) == 1000
    assert max(sizes) == 64


# --- horizons as a dict of texts against a list


def test_horizons_are_typed_numbers_on_the_wire() -> None:
    field = prediction_pb2.Forecast.DESCRIPTOR.fields_by_name["horizons"]
    assert field.is_repeated
    assert field.type == field.TYPE_INT32


# --- user interface deadlock


def test_blocking_on_a_task_fails_the_csharp_build() -> None:
    banned = (ROOT / "dotnet" / "BannedSymbols.txt").read_text(encoding="utf-8")
    properties = (ROOT / "dotnet" / "Directory.Build.props").read_text(encoding="utf-8")
    assert all(
        call in banned for call in ("Task`1.Result", "Task.Wait", "TaskAwaiter.GetResult", "TaskAwaiter`1.GetResult")
    )
    assert "BannedSymbols.txt" in properties
    assert "<TreatWarningsAsErrors>true" in properties


def test_a_missing_configure_await_fails_the_csharp_build() -> None:
    rules = (ROOT / "dotnet" / ".editorconfig").read_text(encoding="utf-8")
    assert re.search(r"dotnet_diagnostic\.CA2007\.severity\s*=\s*error", rules)


# --- look-ahead


def test_look_ahead_is_impossible_the_future_changes_no_feature_and_no_forecast(forecaster: Forecaster) -> None:
    bars = bokeh_panel("AAPL")
    day = len(bars.sessions) - 300
    honest = forecaster.predict(bars.until(int(bars.sessions[day])))
    wild = _with_another_future(bars, day)
    assert np.array_equal(forecaster.predict(wild.until(int(bars.sessions[day]))).values, honest.values)
    pipeline = small_artifact().pipeline
    before, after = pipeline.encode(bars), pipeline.encode(wild)
    np.testing.assert_allclose(after.observed[:, : day + 1], before.observed[:, : day + 1], atol=1e-6)


# --- one process per call, swallowed crashes


def test_one_server_answers_all_calls_and_its_end_is_not_swallowed(tmp_path: Path) -> None:
    with ExitStack() as running:
        server = running.enter_context(hosted_server(small_models(tmp_path)))
        with QuantraClient(server.target) as client:
            forecasts = [client.predict(recent_bars()) for _ in range(3)]
            assert len({f.forecast_id for f in forecasts}) == 1
            running.close()
            with pytest.raises(UnavailableError, match=str(server.ready["port"])):
                client.predict(recent_bars())


# --- training: the gradient scaler


def test_a_training_on_the_cpu_makes_no_gradient_scaler_although_torch_has_an_enabled_one() -> None:
    assert torch.amp.GradScaler("cpu").is_enabled()
    report, _ = trained(linear(), [rows(4)])
    assert isinstance(report, StepReport)
    assert report.loss_scale is None
    assert report.stepped


def test_a_scaler_never_steps_without_a_scaled_backward_even_after_a_window_without_one() -> None:
    """`step()` of a scaler that scaled nothing is torch's "Attempted step but _scale is None"."""
    scaled = Precision(name="fp32", dtype=None, scaler=partial(torch.amp.GradScaler, "cpu"), reason="a test")
    bad = Rows(torch.full((4, 3), torch.nan), torch.ones(4, 1))
    net, reference = linear(), linear()
    assert stepped(trained(net, [bad, rows(4)], precision=scaled)) == [False, True]
    trained(reference, [rows(4)])
    assert torch.allclose(net.weight, reference.weight, rtol=1e-6)


def test_no_step_is_taken_where_a_whole_window_was_skipped_and_its_neighbours_do_not_notice() -> None:
    net, reference = linear(), linear()
    bad = Rows(torch.full((4, 3), torch.nan), torch.ones(4, 1))
    good = [rows(4, seed) for seed in range(4)]
    assert stepped(trained(net, [*good[:2], bad, bad, *good[2:]], accumulate=2)) == [True, False, True]
    trained(reference, good, accumulate=2)
    assert torch.equal(net.weight, reference.weight)


# --- training: the tail of an epoch


def test_the_tail_of_an_epoch_is_stepped_and_leaks_nothing_into_the_next() -> None:
    net, by_hand = linear(), linear()
    batches = [rows(4, seed) for seed in range(5)]
    reports = trained(net, batches, accumulate=2, epochs=2)
    for _ in range(2):
        for window in (batches[0:2], batches[2:4], batches[4:5]):
            trained(by_hand, [Rows(*(torch.cat(field) for field in zip(*window, strict=True)))])
    assert [report.step for report in reports if isinstance(report, StepReport)] == [1, 2, 3, 4, 5, 6]
    assert torch.allclose(net.weight, by_hand.weight, rtol=1e-6)


def test_a_tail_of_one_batch_has_its_full_gradient_not_an_eighth() -> None:
    net = linear()
    trained(net, [rows(4)], accumulate=8)
    assert torch.allclose(net.weight, descend_by_hand(linear(), rows(4)), rtol=1e-6)


def test_a_window_of_eight_and_one_samples_is_no_mean_of_means() -> None:
    net = linear()
    large, small = rows(8), rows(1, seed=1)
    trained(net, [large, small], accumulate=2)
    assert torch.allclose(net.weight, descend_by_hand(linear(), large, small), rtol=1e-6)


def test_gradients_left_over_from_elsewhere_do_not_enter_a_step() -> None:
    net, reference = linear(), linear()
    squares(net, rows(4, seed=9)).mean.backward()
    trained(net, [rows(4)])
    trained(reference, [rows(4)])
    assert torch.equal(net.weight, reference.weight)


# --- training: swallowed errors


def test_a_shape_bug_raises_with_its_place_and_is_not_swallowed_into_a_loss_of_zero() -> None:
    wrong = Rows(torch.ones(4, 5), torch.ones(4, 1))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        trained(linear(), [rows(4), wrong])
    assert caught.value.__notes__ == [
        "in phase 'main', epoch 0, window 1, batch 0 of 1: batch.x float32[4, 5], batch.y float32[4, 1]"
    ]


def test_running_out_of_memory_does_not_skip_the_batch_silently() -> None:
    net = linear()

    def loss(batch: Rows) -> Loss:
        if len(batch.x) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
        return squares(net, batch)

    (window,) = [report for report in trained(net, [rows(8)], loss=loss) if isinstance(report, StepReport)]
    assert (window.count, window.shortages) == (8, 1)
    whole = linear()
    trained(whole, [rows(8)])
    torch.testing.assert_close(net.weight, whole.weight)


def test_an_epoch_s_loss_is_that_of_the_windows_that_were_stepped() -> None:
    expected = squares(linear(), rows(4)).mean.item()
    bad = Rows(torch.full((4, 3), torch.inf), torch.ones(4, 1))
    *_, epoch = trained(linear(), [bad, rows(4), bad])
    assert isinstance(epoch, EpochReport)
    assert epoch.loss == pytest.approx(expected, rel=1e-6)
    assert epoch.phases["main"].skipped == 2


# --- training: a loss without effect


def test_a_detached_loss_between_samples_generated_without_gradients_is_refused() -> None:
    net = linear()

    def reward_loss(batch: Rows) -> Loss:
        with torch.no_grad():
            samples = net(batch.x)
        return Loss(nn.functional.mse_loss(samples, batch.y), len(batch.x))

    with pytest.raises(DetachedLossError, match="samples generated without gradients"):
        trained(net, [rows(4)], loss=reward_loss)


@pytest.mark.parametrize(("requires_grad", "error"), [(True, NoGradientError), (False, DetachedLossError)])
def test_a_zero_loss_because_no_output_key_matches_is_refused(*, requires_grad: bool, error: type[Exception]) -> None:
    net = linear()

    def multi_horizon_loss(batch: Rows) -> Loss:
        outputs = {"features": net(batch.x)}
        matched = [outputs[name] for name in ("horizon_1", "horizon_5") if name in outputs]
        mean = torch.stack(matched).mean() if matched else torch.zeros((), requires_grad=requires_grad)
        return Loss(mean, len(batch.x))

    with pytest.raises(error):
        trained(net, [rows(4)], loss=multi_horizon_loss)


def test_a_dict_of_outputs_where_a_loss_belongs_is_refused_with_its_keys() -> None:
    net = linear()
    with pytest.raises(ContractError, match=r"a dict with the keys \['features'\]; expected Loss"):
        trained(net, [rows(4)], loss=lambda batch: {"features": net(batch.x)})  # pyright: ignore[reportArgumentType] - the mistake


# --- inference mode and train mode


def test_tensors_poisoned_by_inference_mode_are_named_where_training_meets_them() -> None:
    with torch.inference_mode():
        encoded = torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward") as caught:
        trained(linear(), [Rows(encoded, torch.ones(4, 1))])
    assert "batch.x float32[4, 3] (inference tensor)" in caught.value.__notes__[0]


def test_a_network_that_predicted_in_inference_mode_can_still_be_explained() -> None:
    made = small_artifact()
    network = freeze(made.network())
    inputs = small_model(made).prepare(Instance(input=recent_bars()), AFTER_ALL_SESSIONS).inputs
    Engine(network, build_output_map(made.manifest), device=torch.device("cpu"), max_rows=64).compute_units(inputs)
    assert not any(tensor.is_inference() for tensor in network.state_dict().values())
    observed = inputs.observed.clone().requires_grad_()
    build_attribution_view(network)(inputs._replace(observed=observed)).sum().backward()
    assert observed.grad is not None
    assert observed.grad.any()


def test_train_mode_of_the_whole_model_would_change_dropout_and_batch_norm_and_the_view_does_not() -> None:
    network, inputs = normalised_lstm(), windows(4)
    expected, mean = network(inputs), network.norm.running_mean
    assert torch.equal(build_attribution_view(network)(inputs), expected)
    assert mean is not None
    assert torch.equal(mean, torch.full((8,), 0.05))
    network.train()
    assert not torch.equal(network(inputs), expected)
    assert not torch.equal(mean, torch.full((8,), 0.05))


def trained(
    net: nn.Module,
    batches: list[Rows],
    *,
    loss: Callable[[Rows], Loss] | None = None,
    accumulate: int = 1,
    epochs: int = 1,
    precision: str | Precision = "auto",
) -> list[Report]:
    """Train on the CPU by gradient descent, by default with squared error."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    phase = Phase[Rows]("main", loss or (lambda batch: squares(net, batch)), net.parameters(), optimizer, clip=None)
    loop = Loop([phase], modules={"net": net}, device="cpu", precision=precision, accumulate=accumulate)
    with loop.running() as run:
        return list(run.epochs(IterableSource(batches), max_epochs=epochs))


def stepped(reports: list[Report]) -> list[bool]:
    return [report.stepped for report in reports if isinstance(report, StepReport)]


def descend_by_hand(net: nn.Linear, *batches: Rows) -> Tensor:
    """The weight after one step by hand on all batches joined."""
    joined = Rows(*(torch.cat(field) for field in zip(*batches, strict=True)))
    squares(net, joined).mean.backward()
    assert net.weight.grad is not None
    return net.weight.detach() - 0.1 * net.weight.grad


def _window() -> FeatureWindow:
    model = small_model(small_artifact())
    inputs = model.prepare(Instance(input=recent_bars()), AFTER_ALL_SESSIONS).inputs
    groups = {name: group.numpy() for name, group in inputs._asdict().items()}
    return FeatureWindow(symbols=("AAPL",), schema_hash=model.pipeline.features.schema_hash, **groups)


def _with_another_future(bars: BarPanel, day: int) -> BarPanel:
    """The bars with a different future after a day, and the same adjustment factor."""
    factor = np.ones(len(bars.sessions))
    factor[day + 1 :] = 1.5 + np.random.default_rng(0).random(len(bars.sessions) - day - 1)
    return replace(
        bars,
        open=bars.open * factor,
        high=bars.high * factor,
        low=bars.low * factor,
        close=bars.close * factor,
        volume=bars.volume * factor,
        adj_close=bars.adj_close * factor if bars.adj_close is not None else None,
    )
