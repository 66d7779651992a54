"""What is said of an outcome, against sums over a fine grid of latent values."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bo_stream.errors import InputError
from bo_stream.mathematics.outcomes import Linear, OutcomeDistribution, fine_nodes
from bo_stream.mathematics.warp import unwarped

WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
MEANS = torch.tensor([[0.0, 1.0], [0.4, 1.5], [-0.3, 0.6]], dtype=torch.float64)
VARIANCES = torch.tensor([[1.0, 0.04], [0.3, 0.01], [2.0, 0.02]], dtype=torch.float64)
WARP = torch.tensor([2.0, 0.7, 1.1, 1.8, -1e9], dtype=torch.float64)  # smooth where it matters

OUTCOMES: dict[str, Any] = {
    "linear": Linear(torch.tensor(3.0).double(), torch.tensor(2.0).double()),
    "warp": lambda w: unwarped(w, WARP),
    "prevalence": torch.sigmoid,
    "rate": torch.exp,
}


def made(name: str, kernels: int = 3) -> OutcomeDistribution:
    weights = WEIGHTS[:kernels] / WEIGHTS[:kernels].sum()
    return OutcomeDistribution(weights, MEANS[:kernels], VARIANCES[:kernels], OUTCOMES[name])


def slow(name: str, function: Any, kernels: int = 3) -> Tensor:
    """The expectation of a function of the outcome, by a sum over 40,001 latent values."""
    w = torch.linspace(-20.0, 20.0, 40_001, dtype=torch.float64).reshape(-1, 1, 1)
    found = made(name, kernels)
    density = torch.exp(-0.5 * (w - found.means).square() / found.variances)
    density = (density / (2.0 * math.pi * found.variances).sqrt() * found.weights[:, None]).sum(1)
    values = function(OUTCOMES[name](w[:, 0].expand(-1, 2)))
    return torch.trapezoid(values * density, dx=1e-3, dim=0)


@pytest.mark.parametrize("kernels", [1, 3])
@pytest.mark.parametrize("name", OUTCOMES)
def test_it_is_what_sums_over_latent_values_say(name: str, kernels: int) -> None:
    found = made(name, kernels)
    mean = slow(name, lambda y: y, kernels)
    torch.testing.assert_close(found.mean, mean, rtol=1e-4, atol=1e-6)
    square = slow(name, lambda y: (y - mean).square(), kernels)
    torch.testing.assert_close(found.variance, square, rtol=1e-3, atol=1e-6)
    targets = found.quantiles([0.02, 0.5, 0.999]).reshape(-1)
    for target, gain in zip(targets, found.expected_improvement(targets), strict=True):
        expected = slow(name, lambda y, t=target: (y - t).clamp_min(0.0), kernels)
        torch.testing.assert_close(gain, expected, rtol=2e-3, atol=1e-7)
        above = slow(name, lambda y, t=target: (y > t).double(), kernels)
        torch.testing.assert_close(
            found.probability_above(float(target)), above, rtol=0.0, atol=2e-3
        )


@pytest.mark.parametrize("name", OUTCOMES)
def test_quantiles_are_where_probabilities_say(name: str) -> None:
    found = made(name)
    for level, ends in zip((0.05, 0.7), found.quantiles((0.05, 0.7)), strict=True):
        above = found.probability_above(ends).diagonal()
        torch.testing.assert_close(above, torch.full_like(above, 1.0 - level))
    with pytest.raises(InputError, match="levels"):
        found.quantiles([0.0])


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_is_known_improves_by_what_it_is(name: str) -> None:
    """No variance: an outcome is its mean. No improvement on what is out of reach."""
    known = OutcomeDistribution(WEIGHTS[:1] * 2.0, MEANS[:1], 0.0 * MEANS[:1], OUTCOMES[name])
    y = OUTCOMES[name](MEANS[0])
    torch.testing.assert_close(known.mean, y)
    targets = torch.tensor([float(y[0]) - 0.1, float("inf")], dtype=torch.float64)
    gains = known.expected_improvement(targets)
    torch.testing.assert_close(gains[0], y - targets[0])
    assert (gains[1] == 0.0).all()


def test_fine_nodes_are_equally_spaced_in_doubles() -> None:
    g, _ = fine_nodes(torch.zeros(1).double(), torch.ones(1).double())
    torch.testing.assert_close(g.diff(dim=0), torch.full_like(g[1:], 0.035), rtol=0, atol=1e-14)
