"""Attributions: exact where known, complete, repeatable, and without side effects on the model."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from explain_cases import (
    BASELINE,
    ENCODER,
    FUTURE,
    KNOWN,
    LEVELS,
    OBSERVED,
    POINTS,
    STATIC,
    TARGET,
    LinearNetwork,
    assert_same_footprint,
    baseline_like,
    explainer,
    footprint,
    forecast,
    lstm_forecaster,
    normalised_lstm,
    output_map,
    windows,
)
from torch import Tensor, nn

from predictor.call_context import CallContext
from predictor.errors import (
    CallCancelledError,
    ConfigurationError,
    DeadlineExceededError,
    InvalidInputError,
    RequestTooLargeError,
    WindowShapeError,
)
from predictor.explain import (
    NODE_COUNTS,
    Contributions,
    Explainer,
    build_attribution_view,
    compute_gauss_legendre,
    integration,
    path,
)
from predictor.explain.integration import compute_highest_legendre, limit_roughness
from predictor.networks import Inputs

PARTS = ("observed", "known", "static", "location", "scale", "conformal")
ALONE = ("location", "scale", "conformal")
OPEN_END = CallContext()
PER_WINDOW = ENCODER * OBSERVED + (ENCODER + FUTURE) * KNOWN + STATIC + 2 * len(TARGET.horizons)
"""Numbers that an explanation of one window and target varies: features, location and scale."""


def linear_weights(*, unused: int | None = None) -> Tensor:
    source = torch.Generator().manual_seed(11)
    weights = torch.randn(len(TARGET.horizons), 1, ENCODER, OBSERVED, generator=source).repeat(1, len(LEVELS), 1, 1)
    if unused is not None:
        weights[..., unused] = 0.0
    return weights


def assert_equal_contributions(one: Contributions, other: Contributions, rtol: float = 0.0) -> None:
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * 0.01, err_msg=field.name)


def test_a_linear_forecast_is_explained_by_weight_times_distance() -> None:
    inputs, weights = windows(1), linear_weights()
    linear = explainer(LinearNetwork(weights), baseline=baseline_like(inputs))

    (found,) = linear.explain(inputs, [(1, 1)], deadline=OPEN_END)

    expected = inputs.observed[0] * weights[1, 1] * inputs.scale[0, 1] * 5**0.5
    np.testing.assert_allclose(found.observed[0], expected, atol=1e-8)
    np.testing.assert_allclose(found.total(), found.prediction - found.baseline_prediction, atol=1e-7)
    assert found.location[0] == found.scale[0] == found.conformal[0] == 0.0


def test_location_scale_and_conformal_offsets_get_their_exact_share() -> None:
    inputs, weights = windows(1), linear_weights()
    (found,) = explainer(LinearNetwork(weights)).explain(inputs, [(1, 2)], deadline=OPEN_END)

    units = float((inputs.observed[0] * weights[1, 2]).sum())
    offset = 0.15
    scale, spread = float(inputs.scale[0, 1]), 5**0.5
    mean_scale = (scale + BASELINE.scale[1]) / 2
    assert found.location[0] == pytest.approx(float(inputs.location[0, 1]) - BASELINE.location[1], abs=1e-12)
    assert found.scale[0] == pytest.approx((scale - BASELINE.scale[1]) * spread * (units + offset) / 2, rel=1e-6)
    assert found.conformal[0] == pytest.approx(mean_scale * spread * offset, abs=1e-8)
    assert found.observed[0].sum() == pytest.approx(mean_scale * spread * units, rel=1e-6)


def test_an_unused_feature_gets_exactly_nothing() -> None:
    (found,) = explainer(LinearNetwork(linear_weights(unused=2))).explain(windows(3), [(0, 1)], deadline=OPEN_END)

    assert np.all(found.observed[..., 2] == 0.0)
    assert np.all(found.known == 0.0)
    assert np.all(found.static == 0.0)
    assert np.any(found.observed[..., 1] != 0.0)


def test_an_unknown_cell_gets_exactly_nothing() -> None:
    inputs = windows(3)
    (found,) = explainer(lstm_forecaster()).explain(inputs, [(0, 1)], deadline=OPEN_END)

    assert not bool(inputs.mask.all())
    assert np.all(found.observed[~inputs.mask.numpy()] == 0.0)


def test_contributions_add_up_to_the_forecast_less_the_baselines() -> None:
    network, inputs = lstm_forecaster(), windows(6)
    found = explainer(network).explain(inputs, POINTS, deadline=OPEN_END)

    served = forecast(network, inputs).numpy()
    for (h, q), one in zip(POINTS, found, strict=True):
        difference = one.prediction - one.baseline_prediction
        floor = 0.05 * inputs.scale[:, h].numpy() * TARGET.spread[h]
        gap = np.abs(one.total() - difference) / np.maximum(np.abs(difference), floor)
        np.testing.assert_allclose(one.prediction, served[:, h, q], atol=1e-7)
        np.testing.assert_allclose(one.relative_gap, gap, atol=1e-12)
        assert np.all(one.converged)
        assert gap.max() < 0.01


def test_twice_the_nodes_leave_less_than_a_thousandth() -> None:
    found = explainer(lstm_forecaster()).explain(windows(6), POINTS, deadline=OPEN_END, tolerance=1e-3)

    assert max(one.relative_gap.max() for one in found) < 1e-3


def test_a_window_at_the_baseline_has_nothing_to_explain() -> None:
    inputs = windows(1)
    at_rest = inputs._replace(
        observed=torch.zeros_like(inputs.observed),
        known=torch.tensor(BASELINE.known).expand_as(inputs.known),
        static=torch.tensor(BASELINE.static).expand_as(inputs.static),
        location=torch.from_numpy(BASELINE.location).expand_as(inputs.location),
        scale=torch.from_numpy(BASELINE.scale).expand_as(inputs.scale),
    )
    (found,) = explainer(lstm_forecaster()).explain(at_rest, [(0, 1)], deadline=OPEN_END)

    assert found.prediction == pytest.approx(found.baseline_prediction, rel=1e-6)
    assert found.total() == 0.0
    assert found.converged.all()


def test_only_what_has_not_converged_gets_more_nodes() -> None:
    found = explainer(lstm_forecaster()).explain(windows(12), POINTS, deadline=OPEN_END, tolerance=2e-5)

    used = np.stack([one.nodes for one in found])
    assert set(np.unique(used)) > {6, 12}
    assert all(np.array_equal(one.converged, one.relative_gap <= 2e-5) for one in found)


def test_what_is_straight_takes_three_nodes_at_any_tolerance() -> None:
    found = explainer(LinearNetwork(linear_weights())).explain(windows(3), POINTS, deadline=OPEN_END, tolerance=1e-6)

    assert all(np.all(one.nodes == 3) for one in found)


class OpposedNetwork(nn.Module):
    """Two features with opposite curvature: where they are equal, all errors cancel."""

    def forward(self, inputs: Inputs) -> Tensor:
        bent = torch.tanh(8 * inputs.observed[:, 0])
        return (bent[:, 0] - bent[:, 1]).view(-1, 1, 1).expand(-1, len(TARGET.horizons), len(LEVELS))


def test_cells_whose_errors_cancel_are_right_all_the_same() -> None:
    inputs = windows(1)
    observed = torch.zeros_like(inputs.observed)
    observed[:, 0, :2] = 1.0
    equal = inputs._replace(observed=observed, mask=torch.ones_like(inputs.mask))
    tested = explainer(OpposedNetwork(), baseline=baseline_like(equal))
    exact = float(torch.tanh(torch.tensor(8.0)) * inputs.scale[0, 0])

    (crude,) = tested.explain(equal, [(0, 1)], deadline=OPEN_END, node_counts=(3,))
    (found,) = tested.explain(equal, [(0, 1)], deadline=OPEN_END)

    assert crude.relative_gap[0] < 1e-6
    assert abs(crude.observed[0, 0, 0] - exact) > 0.05 * exact
    np.testing.assert_allclose(found.observed[0, 0, :2], [exact, -exact], rtol=0.01)


@pytest.mark.parametrize("pole", [1.05, 1.2, 1.5, 2.0, 4.0, -0.05, -0.2, -1.0])
@pytest.mark.parametrize("tolerance", [0.1, 0.01, 1e-3, 1e-5])
def test_a_smooth_mean_is_within_the_tolerance(pole: float, tolerance: float) -> None:
    mean = abs(np.log(abs((pole - 1) / pole)))
    for count in NODE_COUNTS[:5]:
        positions, weights = compute_gauss_legendre(count)
        values = weights / abs(positions - pole)
        if abs(values @ compute_highest_legendre(count)) <= limit_roughness(count, tolerance) * mean:
            assert values.sum() == pytest.approx(mean, rel=tolerance)
            return
    pytest.fail("never smooth enough")


def test_a_gap_that_stays_is_reported() -> None:
    (found,) = explainer(lstm_forecaster()).explain(
        windows(4), [(0, 0)], deadline=OPEN_END, tolerance=1e-15, node_counts=(8, 16, 32)
    )

    assert not found.converged.any()
    assert np.all(found.nodes == 32)
    assert np.all(found.relative_gap > 1e-15)


def test_integrated_gradients_equal_those_of_captum() -> None:
    from captum.attr import IntegratedGradients  # here, because the import takes half a second in each test process

    network, inputs = lstm_forecaster(), windows(5)
    output, view = output_map(), build_attribution_view(network)

    def predicted(*parts: Tensor) -> Tensor:
        observed, known, static, location, scale, offsets, mask = parts
        units = view(Inputs(observed, known, static, mask, location, scale))
        return output.map_tensors(units, location, scale, offsets).flatten(1)

    ends = (*inputs[:3], inputs.location, inputs.scale, output.offsets.expand(5, -1, -1))
    starts = (
        torch.zeros_like(inputs.observed),
        torch.tensor(BASELINE.known).expand_as(inputs.known),
        torch.tensor(BASELINE.static).expand_as(inputs.static),
        torch.from_numpy(BASELINE.location).expand_as(inputs.location),
        torch.from_numpy(BASELINE.scale).expand_as(inputs.scale),
        torch.zeros_like(ends[-1]),
    )
    theirs = IntegratedGradients(predicted).attribute(
        ends, starts, target=4, additional_forward_args=(inputs.mask,), n_steps=16
    )
    (ours,) = explainer(network).explain(inputs, [(1, 1)], deadline=OPEN_END, node_counts=(8, 16), tolerance=1e-12)

    for name, part in zip(PARTS, theirs, strict=True):
        expected = part.detach().numpy()
        expected = expected.reshape(len(expected), -1).sum(1) if name in ALONE else expected
        np.testing.assert_allclose(getattr(ours, name), expected, atol=1e-6, rtol=0, err_msg=name)


def test_the_same_call_gives_the_same_bytes() -> None:
    tested, inputs = explainer(lstm_forecaster()), windows(4)
    first = tested.explain(inputs, POINTS, deadline=OPEN_END)
    second = tested.explain(inputs, POINTS, deadline=OPEN_END)

    for one, other in zip(first, second, strict=True):
        assert_equal_contributions(one, other)


@pytest.mark.parametrize("max_rows", [1, 7, 40])
def test_chunks_change_nothing(max_rows: int) -> None:
    network, inputs = lstm_forecaster(), windows(5)
    whole = explainer(network).explain(inputs, POINTS[:2], deadline=OPEN_END)
    chunked = explainer(network, max_rows=max_rows).explain(inputs, POINTS[:2], deadline=OPEN_END)

    for one, other in zip(whole, chunked, strict=True):
        assert_equal_contributions(one, replace(other, relative_gap=one.relative_gap), rtol=1e-5)


def test_many_windows_are_worked_on_in_parts_and_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, inputs = explainer(lstm_forecaster()), windows(5)
    whole = tested.explain(inputs, POINTS[:2], deadline=OPEN_END)
    monkeypatch.setattr("predictor.explain.integrated_gradients.BATCH_NUMBERS", 2 * len(POINTS[:2]) * PER_WINDOW)
    parted = tested.explain(inputs, POINTS[:2], deadline=OPEN_END)

    for one, other in zip(whole, parted, strict=True):
        assert_equal_contributions(one, replace(other, relative_gap=one.relative_gap), rtol=1e-5)


def test_more_contributions_than_an_answer_may_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.explain.integrated_gradients.MAX_NUMBERS", 3 * 2 * PER_WINDOW)
    tested = explainer(lstm_forecaster())
    assert len(tested.explain(windows(3), POINTS[:2], deadline=OPEN_END)) == 2
    with pytest.raises(RequestTooLargeError, match=r"2 targets of 4 symbols have .* ask for fewer targets or symbols"):
        tested.explain(windows(4), POINTS[:2], deadline=OPEN_END)


def test_equal_points_are_worked_on_once_and_answered_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, inputs, (one, other) = explainer(lstm_forecaster()), windows(2), POINTS[1:3]
    expected = dict(zip((one, other), tested.explain(inputs, [one, other], deadline=OPEN_END), strict=True))
    worked: list[int] = []
    gradients = integration.PathIntegrator.gradients

    def counted(*given: Any) -> integration.Gradients:
        worked.append(len(given[2]))
        return gradients(*given)

    monkeypatch.setattr(integration.PathIntegrator, "gradients", counted)
    asked = [other, one, *[other] * 22]
    found = tested.explain(inputs, asked, deadline=OPEN_END)
    assert worked[0] == 2
    for point, answer in zip(asked, found, strict=True):
        assert_equal_contributions(answer, expected[point], rtol=0)


def test_equal_points_count_towards_what_an_answer_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictor.explain.integrated_gradients.MAX_NUMBERS", 2 * PER_WINDOW)
    with pytest.raises(RequestTooLargeError, match="3 targets of 1 symbols"):
        explainer(lstm_forecaster()).explain(windows(1), [POINTS[0]] * 3, deadline=OPEN_END)


def test_windows_and_points_together_equal_each_alone() -> None:
    tested, inputs = explainer(lstm_forecaster()), windows(3)
    together = tested.explain(inputs, POINTS, deadline=OPEN_END)

    for point, all_rows in zip(POINTS, together, strict=True):
        for n in range(3):
            (alone,) = tested.explain(inputs.rows(n, n + 1), [point], deadline=OPEN_END)
            for name in PARTS:
                expected = getattr(all_rows, name)[n]
                np.testing.assert_allclose(getattr(alone, name)[0], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "mode",
    [
        nullcontext,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ],
    ids=["none", "no_grad", "inference_mode", "autocast"],
)
def test_the_callers_modes_change_nothing(mode: Callable[[], AbstractContextManager[None]]) -> None:
    network, inputs = lstm_forecaster(), windows(3)
    (expected,) = explainer(network).explain(inputs, [(1, 0)], deadline=OPEN_END)
    view = build_attribution_view(network)

    with mode():
        own = Inputs(*(group.clone() for group in inputs))
        tested = Explainer(view, output_map(), BASELINE, max_rows=512)
        (found,) = tested.explain(own, [(1, 0)], deadline=OPEN_END)

    assert_equal_contributions(expected, found)


def test_windows_of_inference_mode_need_their_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = explainer(normalised_lstm(), max_rows=1)
    with torch.inference_mode():
        inputs = Inputs(*(group.clone() for group in windows(1)))
    assert len(tested.explain(inputs, [(0, 1)], deadline=OPEN_END)) == 1

    def uncopied(values: Tensor, _device: torch.device) -> Tensor:
        return values

    monkeypatch.setattr(path, "copy_outside_inference", uncopied)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        tested.explain(inputs, [(0, 1)], deadline=OPEN_END)


def right_riemann(count: int) -> tuple[np.ndarray, np.ndarray]:
    return (np.arange(count) + 1) / count, np.full(count, 1 / count)


def test_a_cruder_quadrature_would_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, inputs = explainer(lstm_forecaster()), windows(12)
    gauss = tested.explain(inputs, POINTS, deadline=OPEN_END, node_counts=(8, 16))
    monkeypatch.setattr(integration, "compute_gauss_legendre", right_riemann)
    riemann = tested.explain(inputs, POINTS, deadline=OPEN_END, node_counts=(8, 16))

    assert all(one.converged.all() for one in gauss)
    assert np.mean([one.converged for one in riemann]) < 0.5


class RowLimitedNetwork(nn.Module):
    """A network that runs out of memory beyond a few rows."""

    def __init__(self, network: nn.Module, most: int, error: Exception | None = None) -> None:
        super().__init__()
        self.network = network
        self.most = most
        self.error = error or torch.OutOfMemoryError("CUDA out of memory.")

    def forward(self, inputs: Inputs) -> Tensor:
        if len(inputs.observed) > self.most:
            raise self.error
        return self.network(inputs)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("can't allocate memory"), MemoryError()]
)
def test_what_does_not_fit_into_memory_runs_in_smaller_chunks(error: Exception) -> None:
    network, inputs = lstm_forecaster(), windows(5)
    (whole,) = explainer(network).explain(inputs, [(0, 2)], deadline=OPEN_END)
    (rationed,) = explainer(RowLimitedNetwork(network, 6, error)).explain(inputs, [(0, 2)], deadline=OPEN_END)

    assert_equal_contributions(whole, replace(rationed, relative_gap=whole.relative_gap), rtol=1e-5)


def test_one_row_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        explainer(RowLimitedNetwork(lstm_forecaster(), 0)).explain(windows(2), [(0, 2)], deadline=OPEN_END)


class CallbackNetwork(nn.Module):
    """A network that runs a callback at one of its forward passes."""

    def __init__(self, network: nn.Module, act: Callable[[], None], at_call: int) -> None:
        super().__init__()
        self.network = network
        self.act = act
        self.calls_left = at_call

    def forward(self, inputs: Inputs) -> Tensor:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.act()
        return self.network(inputs)


def test_a_cancelled_call_stops_before_the_next_forward() -> None:
    network = normalised_lstm()
    before = footprint(network)
    gone = CallContext()
    view = CallbackNetwork(build_attribution_view(network), gone.cancel, at_call=3).eval()
    for module in view.modules():
        module.training = isinstance(module, nn.RNNBase)
    tested = Explainer(view, output_map(), BASELINE, max_rows=4)

    with pytest.raises(CallCancelledError):
        tested.explain(windows(8), POINTS, deadline=gone)

    assert view.calls_left == 0
    assert_same_footprint(before, footprint(network))


def test_an_expired_deadline_stops_at_once() -> None:
    with pytest.raises(DeadlineExceededError):
        explainer(lstm_forecaster()).explain(windows(1), POINTS, deadline=CallContext.with_timeout(0.0))


def test_an_explanation_leaves_no_trace() -> None:
    network, inputs = normalised_lstm(), windows(6)
    before, served = footprint(network), forecast(network, inputs)
    explainer(network).explain(inputs, POINTS, deadline=OPEN_END)

    assert_same_footprint(before, footprint(network))
    assert torch.equal(forecast(network, inputs), served)


def test_a_failing_explanation_leaves_no_trace() -> None:
    network, inputs = normalised_lstm(), windows(6)
    before, served = footprint(network), forecast(network, inputs)

    with pytest.raises(torch.OutOfMemoryError):
        explainer(RowLimitedNetwork(network, 0)).explain(inputs, POINTS, deadline=OPEN_END)

    assert torch.is_grad_enabled()
    assert_same_footprint(before, footprint(network))
    assert torch.equal(forecast(network, inputs), served)


def test_trainable_weights_get_no_gradient() -> None:
    network = lstm_forecaster().requires_grad_(requires_grad=True)
    before = footprint(network)
    explainer(network).explain(windows(2), POINTS, deadline=OPEN_END)

    assert_same_footprint(before, footprint(network))


def test_a_network_that_is_no_view_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'lstm' is not in an attribution view's mode"):
        Explainer(lstm_forecaster(), output_map(), BASELINE, max_rows=8)


def test_a_network_in_train_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pass build_attribution_view"):
        Explainer(lstm_forecaster().train(), output_map(), BASELINE, max_rows=8)


def test_chunks_need_at_least_one_row() -> None:
    with pytest.raises(ConfigurationError, match="max_rows is 0"):
        explainer(lstm_forecaster(), max_rows=0)


def test_a_baseline_without_volatility_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'train_mean' has scale 0"):
        replace(BASELINE, scale=np.array([0.01, 0.0]))


def test_windows_that_do_not_fit_the_baseline_are_refused() -> None:
    narrow = replace(BASELINE, known=np.zeros(1, np.float32))
    with pytest.raises(WindowShapeError, match=r"2 known features, but the baseline's values .* shape \[1\]"):
        explainer(lstm_forecaster(), baseline=narrow).explain(windows(1), POINTS, deadline=OPEN_END)


@pytest.mark.parametrize(("points", "message"), [([], "0 points"), ([(2, 0)], r"\(2, 0\)"), ([(0, -1)], r"\(0, -1\)")])
def test_points_that_the_model_does_not_forecast_are_refused(points: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        explainer(lstm_forecaster()).explain(windows(1), points, deadline=OPEN_END)


def test_no_windows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="0 windows"):
        explainer(lstm_forecaster()).explain(windows(1).rows(0, 0), POINTS, deadline=OPEN_END)


def test_a_forecast_that_is_not_finite_is_an_error() -> None:
    inputs = windows(2)
    inputs.observed[0, 0, 0] = torch.nan
    with pytest.raises(InvalidInputError, match="not finite"):
        explainer(lstm_forecaster()).explain(inputs, POINTS, deadline=OPEN_END)


@pytest.mark.parametrize(
    ("tolerance", "node_counts"), [(0.0, (8,)), (float("nan"), (8,)), (0.01, ()), (0.01, (0, 8)), (0.01, (16, 16))]
)
def test_settings_that_cannot_work_are_refused(tolerance: float, node_counts: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="must be"):
        explainer(lstm_forecaster()).explain(
            windows(1), POINTS, deadline=OPEN_END, tolerance=tolerance, node_counts=node_counts
        )
