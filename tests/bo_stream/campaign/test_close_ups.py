"""Close-ups of a campaign: where they are made, what they find, and averages that guard them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models.transforms import Standardize
from torch import Tensor

from bo_stream import HSGP, Box, Campaign
from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.proposing.averages import best_cell, not_lower
from bo_stream.campaign.proposing.close_up import CloseUp, close_ups

BEST = np.array([0.58, 0.44])
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def rippled(X: np.ndarray, ripples: float) -> np.ndarray:
    """To be minimised; of ten periods across the square, along no axis."""
    u = (X - BEST) @ np.array([[0.8, -0.6], [0.6, 0.8]])
    return 20.0 * (u**2).sum(-1) + ripples * (1.0 - np.cos(2.0 * np.pi * 10.0 * u)).sum(-1)


def ringed(X: np.ndarray) -> np.ndarray:
    """To be minimised; with ten rings."""
    r = np.linalg.norm(X - BEST, axis=-1)
    return 4.0 * r + 2.0 * (1.0 - np.cos(2.0 * np.pi * 10.0 * r))


def outcomes(ripples: float) -> Observations:
    """Half of them about a point that is not the best one."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, 2))
    X[1500:] = (BEST + [0.05, -0.04] + 0.1 * rng.standard_normal((1500, 2))).clip(0.0, 1.0)
    y = rippled(X, ripples) + 0.5 * rng.standard_normal(3000)
    return Observations(torch.tensor(X), -torch.tensor(y).unsqueeze(-1))


def made(data: Observations) -> tuple[CloseUp, ...]:
    """Close-ups of a fitted surrogate, about a point of another basin."""
    scale = Standardize(m=1)
    model = HSGP(data.X, data.Y, bounds=UNIT, num_features=64, outcome_transform=scale)
    model.fit(20)
    return close_ups(model, UNIT, data, torch.tensor(BEST + [0.05, -0.04]))


def test_they_are_made_where_the_surrogate_resolves_too_little_and_find_the_optimum() -> None:
    data = outcomes(2.0)
    closer = made(data)
    sides = {round(float(own.bounds[1, 0] - own.bounds[0, 0]), 6) for own in closer}
    assert sides and sides <= {0.4, 0.2}
    assert np.abs(closer[-1].best.numpy() - BEST).max() < 0.01
    assert made(outcomes(0.0)) == ()
    again = CloseUp.from_lists(closer[0].to_lists(), data.X)
    inside = torch.tensor(BEST).unsqueeze(0)
    one, other = (own.model(data).posterior(inside).mean for own in (closer[0], again))
    assert torch.equal(one, other)


def test_they_draw_trials_and_are_resumed(url: str, tmp_path: Path) -> None:
    box = Box({"a": (0.0, 1.0), "b": (0.0, 1.0)})

    def asked(store: str, resumed: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        campaign = Campaign(box, "hsgp", "thompson", goal="minimise", store=store, seed=0)
        rng = np.random.default_rng(0)
        X = rng.random((3000, 2))
        y = ringed(X) + 0.5 * rng.standard_normal(3000)
        campaign.tell(pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}))
        campaign.ask(20)
        (own,) = campaign._state.close_ups
        campaign = Campaign.resume(store) if resumed else campaign
        batch = campaign.ask(600)
        low, high = own.bounds.numpy()
        X = batch[["a", "b"]].to_numpy()
        assert ((low <= X) & (high >= X)).all(-1).mean() > 0.45
        return batch, campaign.recommend()

    whole = asked(f"sqlite:///{tmp_path}/undisturbed.db", resumed=False)
    for one, other in zip(asked(url, resumed=True), whole, strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def observed(at: Tensor, value: float, count: int) -> Observations:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    X = at + 0.01 * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return Observations(X, value + noise)


@pytest.mark.parametrize(("value", "kept"), [(-1.0, False), (-0.1, True), (1.0, True)])
def test_a_point_is_kept_unless_outcomes_next_to_it_are_lower(value: float, kept: bool) -> None:
    x, other = (torch.tensor([v, v], dtype=torch.float64) for v in (0.22, 0.77))
    about = observed(x, value, 200)
    data = observed(other, 0.0, 200).extended(about.X, about.Y, None)
    assert torch.equal(not_lower(x, other, data), x if kept else other)
    assert torch.equal(not_lower(x, None, data), x)


def test_the_best_cell_is_not_one_of_few_outcomes() -> None:
    x, other = (torch.tensor([v, v], dtype=torch.float64) for v in (0.225, 0.775))
    lucky = observed(x, 5.0, 19)
    data = observed(other, 0.0, 200).extended(lucky.X, lucky.Y, None)
    cell = best_cell(UNIT, data)
    assert cell is not None and float((cell - other).abs().max()) < 0.025
    assert best_cell(UNIT, lucky) is None
