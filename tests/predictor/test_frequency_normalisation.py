"""Frequency-adaptive normalisation: per window, continuous, and equal to the paper's formula."""

import pytest
import torch
from torch import Tensor

from predictor.errors import ConfigurationError
from predictor.networks.graph import FrequencyAdaptiveNorm

SESSIONS = 40


def windows(*, rows: int = 3, columns: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A level, two waves and noise, without missing cells."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(SESSIONS)[:, None] * 2 * torch.pi / SESSIONS
    waves = 3 + 5 * torch.sin(2 * time + 1) + 4 * torch.cos(7 * time)
    observed = waves + 0.1 * torch.randn(rows, SESSIONS, columns, generator=generator)
    return observed, torch.ones(rows, SESSIONS, columns, dtype=torch.bool)


def strongest_by_fft(observed: Tensor, frequencies: int) -> Tensor:
    """The paper's main components: real FFT over time, keep the strongest bins, and invert."""
    spectrum = torch.fft.rfft(observed, dim=1)
    strongest = spectrum.abs().topk(frequencies, dim=1).indices
    kept = torch.zeros_like(spectrum).scatter(1, strongest, spectrum.gather(1, strongest))
    return torch.fft.irfft(kept, n=observed.shape[1], dim=1)


def test_clear_frequencies_go_out_as_the_papers_fft_takes_them() -> None:
    observed, mask = windows()
    parted = FrequencyAdaptiveNorm(SESSIONS, frequencies=3)(observed, mask)
    torch.testing.assert_close(parted.dominant, strongest_by_fft(observed, 3), atol=1e-4, rtol=0)


@pytest.mark.parametrize("sessions", [39, 40])
def test_all_frequencies_together_are_the_window(sessions: int) -> None:
    transform = FrequencyAdaptiveNorm(sessions, frequencies=1)
    window = torch.randn(5, sessions, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(window @ transform.analysis @ transform.synthesis, window, atol=1e-5, rtol=0)


def test_the_two_parts_add_up_to_the_window() -> None:
    observed, mask = windows()
    parted = FrequencyAdaptiveNorm(SESSIONS, frequencies=2)(observed, mask)
    torch.testing.assert_close(parted.rest + parted.dominant, observed)


def test_statistics_are_of_each_sample_alone() -> None:
    observed, mask = windows()
    network = FrequencyAdaptiveNorm(SESSIONS, frequencies=2)
    other = observed.clone()
    other[1:] = 100 * torch.randn(other[1:].shape, generator=torch.Generator().manual_seed(2))
    before, after = network(observed, mask), network(other, mask)
    torch.testing.assert_close(before.rest[0], after.rest[0], atol=0, rtol=0)
    torch.testing.assert_close(before.dominant[0], after.dominant[0], atol=0, rtol=0)
    assert not torch.allclose(before.rest[1], after.rest[1])


def test_columns_do_not_touch_each_other() -> None:
    observed, mask = windows()
    network = FrequencyAdaptiveNorm(SESSIONS, frequencies=2)
    other = observed.clone()
    other[:, :, 1] = 0
    torch.testing.assert_close(network(observed, mask).rest[..., 0], network(other, mask).rest[..., 0])


def test_what_stands_in_an_unknown_cell_does_not_matter_and_its_rest_is_zero() -> None:
    observed, mask = windows()
    mask[:, 5:9] = False
    network = FrequencyAdaptiveNorm(SESSIONS, frequencies=2)
    zeroed, filled = torch.where(mask, observed, 0.0), torch.where(mask, observed, 50.0)
    torch.testing.assert_close(network(zeroed, mask).dominant, network(filled, mask).dominant)
    assert (network(filled, mask).rest[:, 5:9] == 0).all()


def test_windows_without_any_known_cell_stay_zero() -> None:
    observed = torch.zeros(2, SESSIONS, 1)
    parted = FrequencyAdaptiveNorm(SESSIONS, frequencies=3)(observed, torch.zeros_like(observed, dtype=torch.bool))
    assert not parted.rest.any()
    assert not parted.dominant.any()


def test_two_frequencies_that_change_places_make_no_jump() -> None:
    network = FrequencyAdaptiveNorm(SESSIONS, frequencies=1).double()
    time = torch.arange(SESSIONS, dtype=torch.float64) * 2 * torch.pi / SESSIONS
    share = torch.linspace(0.4, 0.6, 2001, dtype=torch.float64)[:, None]
    observed = (share * torch.sin(3 * time) + (1 - share) * torch.sin(8 * time)).unsqueeze(-1)
    rest = network(observed, torch.ones_like(observed, dtype=torch.bool)).rest
    assert rest.diff(dim=0).abs().max() < 2e-3  # a whole frequency would be 0.5


def test_a_constant_window_has_finite_gradients() -> None:
    observed = torch.full((1, SESSIONS, 1), 2.0, requires_grad=True)
    parted = FrequencyAdaptiveNorm(SESSIONS, frequencies=2)(observed, torch.ones(1, SESSIONS, 1, dtype=torch.bool))
    (parted.rest.square().sum() + parted.dominant.sum()).backward()
    assert observed.grad is not None
    assert torch.isfinite(observed.grad).all()


@pytest.mark.parametrize("frequencies", [0, SESSIONS // 2 + 1])
def test_more_frequencies_than_a_window_has_are_refused(frequencies: int) -> None:
    with pytest.raises(ConfigurationError, match="windows of 40 sessions, which have 21"):
        FrequencyAdaptiveNorm(SESSIONS, frequencies=frequencies)
