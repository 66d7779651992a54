"""Campaigns on the synthetic field: what is asked, recorded and kept apart."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models.transforms.outcome import Standardize

from bo_stream import surrogate
from bo_stream.campaign.effort import FitPolicy
from bo_stream.errors import InputError, StateError
from bo_stream.scores import score
from experiments.common.loops.policies import PoolPolicy
from experiments.common.loops.pool_loop import PoolConfig, PoolLoop
from problems import load_malaria

FIT = FitPolicy(every_step_until=2, then_every=2, max_evals=5, first_max_evals=5)


@pytest.fixture(scope="module")
def cells():
    return load_malaria(cells=500)


def campaign(cells, policy="nipv", family="wiski", **changes):
    config = PoolConfig(**{"steps": 5, "num_test": 120, "fit": FIT, **changes})
    options = {"grid_size": 14} if family == "wiski" else {}
    return PoolLoop(cells, partial(surrogate, family, **options), PoolPolicy(policy), config)


@pytest.mark.parametrize(
    ("policy", "family", "observation"),
    [
        ("nipv", "wiski", "raster"),
        ("nipv", "exact", "known noise"),
        ("max_variance", "wiski", "known noise"),
        ("random", "exact", "raster"),
        ("near_most_uncertain", "wiski", "raster"),
    ],
)
def test_runs(cells, policy, family, observation):
    run = campaign(cells, policy, family, observation=observation)
    table = run.run()
    assert table["n"].tolist() == [10, 16, 22, 28, 34, 40]
    assert set(table["observation"]) == {observation}
    numbers = table.drop(columns=["observation", "log_predictive", "fit_objective"])
    assert np.isfinite(numbers.to_numpy(dtype=float)).all()
    assert np.isfinite(table["log_predictive"][1:]).all()
    assert (table["fit_evaluations"] > 0).tolist() == [True, True, True, False, True, False]
    assert len(run.queried.unique()) == 40  # no cell twice
    split = torch.cat([run.queried, run.pool, run.split.test])
    assert split.sort().values.equal(torch.arange(len(cells.X)))  # and none of the test set


def test_test_set_and_start_depend_on_the_seed_alone(cells):
    one, other = (
        campaign(cells, "random"),
        campaign(cells, "nipv", "exact", observation="known noise"),
    )
    assert one.split.test.equal(other.split.test)
    assert one.split.initial.equal(other.split.initial)
    assert not one.split.test.equal(campaign(cells, seed=1).split.test)


def test_repeatable_and_leaves_the_global_generator_alone(cells):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = campaign(cells, "random")
    first.run()
    assert torch.rand(1).equal(expected)
    again = campaign(cells, "random")
    again.run()
    assert first.queried.equal(again.queried)


def test_standardised_by_the_queried_cells_at_every_fit(cells):
    run = campaign(cells, steps=4)
    run.run()
    transform = run.model.outcome_transform
    _, Y, _ = run.observations()
    torch.testing.assert_close(transform.means[0], Y.mean(0), rtol=1e-12, atol=0.0)
    fresh = surrogate(
        "wiski",
        *run.observations(),
        bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        grid_size=14,
        outcome_transform=Standardize(1),
    )
    for name in ("A", "b", "yy"):
        ours, wanted = getattr(run.model.state, name), getattr(fresh.state, name)
        torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-10)


def test_known_noise_is_one_seeded_draw_a_cell(cells):
    split = campaign(cells, observation="known noise").split
    z = (split.observed - cells.Y) / cells.Yvar.sqrt()
    assert abs(float(z.mean())) < 0.2
    assert 0.85 < float(z.std()) < 1.15
    assert split.observed.equal(campaign(cells, "random", observation="known noise").split.observed)
    assert campaign(cells).split.noise is None


def test_saves_table_and_how_it_came_about(cells, tmp_path):
    run = campaign(cells, steps=1)
    run.run()
    run.save(tmp_path / "new" / "run.csv", policy="nipv")
    about = json.loads((tmp_path / "new" / "run.json").read_text())
    assert about["observation"] == "raster"
    assert about["policy"] == "nipv"
    assert len(about["queried"]) == 16
    assert pd.read_csv(tmp_path / "new" / "run.csv")["n"].tolist() == [10, 16]


def test_refuses_what_cannot_be(cells):
    with pytest.raises(InputError, match="Take fewer steps"):
        campaign(cells, steps=500)
    with pytest.raises(InputError, match="observation model"):
        PoolConfig(observation="survey")
    with pytest.raises(StateError, match="started"):
        campaign(cells).step()
    twice = PoolLoop(
        cells,
        partial(surrogate, "wiski", grid_size=14),
        lambda model, test_X, pool, q: torch.zeros(q, dtype=torch.long),
        PoolConfig(steps=1, num_test=120, fit=FIT),
    )
    with pytest.raises(InputError, match="twice"):
        twice.run()
    with pytest.raises(InputError, match="pool policy"):
        PoolPolicy("nearest")


@pytest.mark.parametrize("known", [False, True])
def test_coverage_and_density_against_the_normal_distribution(known):
    """Scores of a surrogate equal those computed from its posterior, point by point."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(60, 2, generator=generator, dtype=torch.float64)
    Y = torch.sin(5.0 * X).sum(-1, keepdim=True) * 3.0 + 7.0
    Y = Y + 0.3 * torch.randn(60, 1, generator=generator, dtype=torch.float64)
    noise = torch.full_like(Y, 0.09) if known else None
    model = surrogate(
        "exact", X[:40], Y[:40], None if noise is None else noise[:40], bounds=None,
        outcome_transform=Standardize(1),
    )  # fmt: skip
    model.fit()
    mine = score(model, X[40:], Y[40:], Y[40:], None if noise is None else noise[40:], level=0.9)
    posterior = model.posterior(X[40:], observation_noise=not known)
    variance = posterior.variance + (0.09 if known else 0.0)
    normal = torch.distributions.Normal(posterior.mean, variance.sqrt())
    inside = (normal.cdf(Y[40:]) - 0.5).abs() <= 0.45
    assert mine.nlpd == pytest.approx(-float(normal.log_prob(Y[40:]).mean()))
    assert mine.coverage == pytest.approx(float(inside.double().mean()))
    assert mine.rmse == pytest.approx(float((Y[40:] - posterior.mean).square().mean().sqrt()))
    latent = model.posterior(X[40:]).variance.mean()
    assert mine.integrated_variance == pytest.approx(float(latent))


def test_one_faulty_cell_is_clipped():
    cells = load_malaria(cells=500)
    faulty = 50 * float(cells.Y.max())
    broken = replace(cells, Y=cells.Y.index_fill(0, torch.arange(480, 500), faulty))
    run = campaign(broken, "random", steps=8, num_test=120, clip_from=20)
    table = run.run()
    X, Y, _ = run.observations()
    asked = run.split.observed[run.queried]
    assert table["clipped"].sum() == int((asked != Y).sum())
    late = torch.arange(len(Y)) >= 22
    high = (asked[:, 0] == faulty) & late
    assert bool((Y[high] < asked[high]).all())
    free = campaign(cells, "random", steps=3, clip=float("inf"))
    free.run()
    assert free.observations()[1].equal(free.split.observed[free.queried])
