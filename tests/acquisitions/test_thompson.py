"""Thompson sampling: maximisers, batches, constraints, pools, recommendations."""

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Size, Tensor

from acquisitions import ThompsonSampling
from acquisitions.domain import SAME, Domain
from acquisitions.thompson import Draws, candidates, drawn_at, maximised
from bo_stream import HSGP, WISKI, CaGP, ExactGP, NodeWISKI, OnlineSGPR
from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.errors import BoundsError, InputError, ShapeError, UnsupportedError
from bo_stream.surrogates.registry import mixed_kernel

FAMILIES = [HSGP, WISKI, ExactGP]


def box(d: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.tensor([[low] * d, [high] * d], dtype=torch.float64)


def surrogate(family: Any, d: int, n: int = 40, noise: float = 0.1, **options: Any) -> Any:
    """Of a wavy function on [-2, 2]^d, with lengthscales of a sixth of the box."""
    torch.manual_seed(d)
    X = 4.0 * torch.rand(n, d, dtype=torch.float64) - 2.0
    Y = (2.5 * X).sin().sum(-1, keepdim=True) - 0.2 * X.square().sum(-1, keepdim=True)
    if family is HSGP:
        options = {"num_features": 200, **options}
    options["covar_module"] = ScaleKernel(RBFKernel(ard_num_dims=d))
    model = family(X, Y + noise * torch.randn_like(Y), bounds=box(d, -2.0, 2.0), **options)
    model.covar_module.base_kernel.lengthscale = 0.17
    model.likelihood.noise = 0.05
    return model


def grid(d: int) -> Tensor:
    axes = [torch.linspace(-2.0, 2.0, 4001 if d == 1 else 201, dtype=torch.float64)] * d
    return torch.cartesian_prod(*axes).reshape(-1, d)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_maximisers_are_those_on_a_dense_grid(family: Any, d: int) -> None:
    model, domain = surrogate(family, d), Domain.of(box(d, -2.0, 2.0))
    draws = Draws.of(model, [model.process()], [16])
    X, values = maximised(draws, candidates(domain, domain.bounds[:0]), domain, 0.17 * domain.width)
    with torch.no_grad():
        everywhere = draws(grid(d))
        torch.testing.assert_close(draws(X.unsqueeze(1)).squeeze(-1), values)
        found = draws.on_grid(domain)
        assert (found is None) == (family is ExactGP)
        if found is not None:
            there = draws(found.unsqueeze(1)).squeeze(-1)
            torch.testing.assert_close(there, values, atol=1e-3, rtol=1e-3)
    best = everywhere.amax(-1)
    spread = everywhere.std(-1)
    assert bool((values >= best - 1e-3 * spread).all())
    assert bool((values <= best + 0.02 * spread).all())  # what lies between nodes of the grid


@pytest.mark.parametrize("family", FAMILIES)
def test_recommendation_is_the_maximum_of_the_mean(family: Any) -> None:
    model = surrogate(family, 2)
    thompson = ThompsonSampling(model)
    x = thompson.recommend()
    with torch.no_grad():
        means, found = model.posterior(grid(2)).mean, model.posterior(x.unsqueeze(0)).mean
    assert float(found) >= float(means.max()) - 1e-6
    x.requires_grad_()
    (slope,) = torch.autograd.grad(model.posterior(x.unsqueeze(0)).mean.sum(), x)
    assert family is not HSGP or bool((slope.abs() < 1e-6).all())
    torch.manual_seed(99)
    expected = torch.rand(3)
    torch.manual_seed(99)
    assert torch.equal(thompson.recommend(), x) and torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("options", [{"grid_size": 12}, {"grid_size": 30}])
def test_draws_of_a_grid_follow_its_posterior(options: dict[str, int]) -> None:
    """Through nodes and through an eigenbasis, after points were folded in."""
    model, Z = surrogate(WISKI, 2, n=500, **options), grid(2)[::8000]
    model.process()
    model.observe(Z[:2] * 0.9, torch.ones(2, 1, dtype=torch.float64))
    with torch.no_grad():
        draws = Draws.of(model, [model.process()], [4000])(Z)
        joint = model.process().at(model.transformed(Z))
        mean, cov = joint.mean[0], joint.covariance(joint)[0]
    z = (draws.mean(0) - mean) / (cov.diagonal() / 4000).sqrt()
    assert float(z.abs().max()) < 5.0
    deviation = (cov.diagonal().outer(cov.diagonal()) + cov.square()).sqrt()
    assert float(((draws.T.cov() - cov) / deviation).abs().max()) < 0.1


def test_batches_of_thousands_have_different_points_and_a_uniform_share() -> None:
    model = surrogate(WISKI, 2, n=200, noise=0.01)
    torch.manual_seed(0)
    X = ThompsonSampling(model, explore=0.2).propose(5000)
    assert X.shape == (5000, 2) and len(X.unique(dim=0)) == 5000
    assert float(X.abs().max()) <= 2.0
    left = (X[:, 0] < -1.0).double().mean()  # the maximum is on the right
    assert float(left) == pytest.approx(0.2 / 4.0, abs=0.02)
    first = (X[:500, 0] < -1.0).double().mean()  # in random order
    assert float(first) == pytest.approx(0.2 / 4.0, abs=0.04)


def test_a_share_of_points_is_in_a_region_at_distances_that_are_uniform() -> None:
    region = torch.tensor([[-1.2, 1.4], [0.3, 0.6]], dtype=torch.float64)
    model, inside = surrogate(HSGP, 2), list[list[int]]()
    for own in (None, region):
        torch.manual_seed(0)
        X = ThompsonSampling(model, samples=2, explore=0.0, region=own).propose(1000)
        distances = ((X - region[0]) / region[1]).norm(dim=-1)
        inside.append([int((distances < r).sum()) for r in (0.5, 1.0)])
    assert inside[0] == [0, 0]
    assert 120 < inside[1][0] < 180 and inside[1][1] in (300, 301)


def test_small_batches_explore_by_chance() -> None:
    model = surrogate(WISKI, 1, n=200, noise=0.01)
    torch.manual_seed(0)
    thompson = ThompsonSampling(model, explore=0.3)
    best = thompson.recommend()
    X = torch.stack([thompson.propose(1)[0, 0] for _ in range(100)])
    far = ((X - best).abs() > 0.3).double().mean()
    assert float(far) == pytest.approx(0.3 * (1.0 - 0.6 / 4.0), abs=0.12)


def test_repeated_maximisers_are_moved_a_little() -> None:
    model = surrogate(ExactGP, 2, n=200)
    torch.manual_seed(0)
    X = ThompsonSampling(model, samples=1, explore=0.0, jitter=0.1).propose(400)
    moves = X - X.median(0).values
    expected = 0.1 * 0.17 * 4.0  # of a lengthscale, in raw units
    torch.testing.assert_close(moves.std(0), torch.full((2,), expected).double(), rtol=0.2, atol=0)


@pytest.mark.parametrize("family", [HSGP, NodeWISKI])
def test_constraints_and_choices_are_respected(family: Any) -> None:
    model = surrogate(family, 3)
    allowed = torch.tensor([-1.7, 0.1, 0.3, 1.9], dtype=torch.float64)
    pair, ones = torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64)
    # 1.2 <= x_0 + x_1 <= 1.21: a sliver that few random points are in
    constraints = [(pair, ones, 1.2), (pair, -ones, -1.21)]
    torch.manual_seed(0)
    thompson = ThompsonSampling(model, domain=Domain.of(model.bounds, constraints, {2: allowed}))
    X = torch.cat([thompson.propose(300), thompson.recommend().unsqueeze(0)])
    total = X[:, 0] + X[:, 1]
    assert float(total.min()) >= 1.2 and float(total.max()) <= 1.21
    assert float(X.abs().max()) <= 2.0
    assert bool(torch.isin(X[:, 2], allowed).all())
    assert len(X[:300].unique(dim=0)) == 300
    assert float(X[:, 0].std()) > 0.2  # along the sliver


def test_the_maximum_at_a_constraint_is_found() -> None:
    model = surrogate(ExactGP, 2, n=80)
    pair = torch.tensor([0, 1]), torch.tensor([-1.0, -0.5], dtype=torch.float64)
    x = ThompsonSampling(model, domain=Domain.of(model.bounds, [(*pair, 0.25)])).recommend()
    with torch.no_grad():
        inside = grid(2)[grid(2) @ pair[1] >= 0.25]
        best, found = model.posterior(inside).mean.max(), model.posterior(x.unsqueeze(0)).mean
    assert float(x @ pair[1]) >= 0.25
    assert float(found) >= float(best) - 1e-3


def test_steps_slide_along_a_constraint() -> None:
    pair = torch.tensor([0, 1]), torch.tensor([-1.0, -2.0], dtype=torch.float64)
    domain = Domain.of(box(2, -2.0, 2.0), [(*pair, -1.0)])
    X = torch.tensor([[0.0, 0.5]], dtype=torch.float64)  # on the constraint
    out, back = domain.along(X, pair[1].neg() + X), domain.along(X, pair[1])
    assert float((out @ pair[1]).abs()) < 1e-12 and float(out.norm()) > 0.1
    torch.testing.assert_close(back, pair[1].unsqueeze(0))
    far = domain.along(X - 1.0, torch.tensor([[3.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(far, torch.tensor([[3.0, 0.0]], dtype=torch.float64))
    crossing = domain.along(X - 1.0, torch.tensor([[0.0, 3.0]], dtype=torch.float64))
    torch.testing.assert_close(crossing, torch.tensor([[0.0, 1.5]], dtype=torch.float64))


def test_repeats_of_a_few_settings_among_many() -> None:
    domain, settings = Domain.of(box(2)), torch.rand(3, 2, dtype=torch.float64)
    X = torch.cat([settings.repeat(20_000, 1), settings[:1] + 1e-8, settings[1:2] + 1e-5])
    again = domain.repeats(X, settings[2:].repeat(9_000, 1))
    assert (~again).nonzero().squeeze(-1).tolist() == [0, 1, len(X) - 1]
    assert not len(domain.repeats(X[:0], settings)) and bool(domain.repeats(X[:1], X).all())


def test_points_of_a_small_region_are_the_same_setting_only_where_they_are() -> None:
    domain = Domain.of(box(2))
    seen = 0.5 + 1e-7 * torch.rand(20_000, 2, dtype=torch.float64)
    X = seen[:3] + torch.tensor([[0.0], [1e-12], [3e-7]], dtype=torch.float64)
    assert domain.repeats(X, seen).all()
    assert domain.repeats(X, seen, SAME).tolist() == [True, True, False]
    assert torch.equal(domain.distinct(X[2:], seen, SAME), X[2:])


def test_discrete_inputs_alone_are_maximised_over_all_values() -> None:
    values = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64)
    model = surrogate(ExactGP, 2)
    torch.manual_seed(0)
    thompson = ThompsonSampling(model, domain=Domain.of(model.bounds, (), {0: values, 1: values}))
    every = torch.cartesian_prod(values, values)
    with torch.no_grad():
        best = every[model.posterior(every).mean.argmax()]
    assert torch.equal(thompson.recommend(), best)
    assert len(thompson.propose(40).unique(dim=0)) == 40
    assert thompson.propose(200).shape == (200, 2)  # more than there are combinations


def labelled(n: int = 60) -> tuple[Any, Tensor]:
    """A surrogate over a number and a category of three, and points: best at 1 and category 2."""
    torch.manual_seed(0)
    X = torch.cat([torch.rand(400, 1).double(), torch.randint(3, (400, 1)).double()], -1)
    Y = -(X[:n, :1] - 1.0).square() + 0.5 * (X[:n, 1:] == 2.0)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    model = ExactGP(X[:n], Y, bounds=bounds, covar_module=mixed_kernel(2, [1]))
    model.likelihood.noise = 1e-3
    return model, X


def test_draws_at_points_over_categories_follow_the_joint_posterior() -> None:
    model, X = labelled()
    with torch.no_grad():
        values = drawn_at(X[:6], model, [model.process()], [20_000])
        joint = model.posterior(X[:6])
    mean, cov = joint.mean.squeeze(-1), joint.distribution.covariance_matrix
    values = model.outcome_transform.untransform(values.unsqueeze(-1))[0].squeeze(-1)
    sd = cov.diagonal().sqrt()
    assert float(((values.mean(0) - mean) / sd).abs().max()) < 0.04
    torch.testing.assert_close(values.T.cov() / sd.outer(sd), cov / sd.outer(sd), atol=0.04, rtol=0)


@pytest.mark.parametrize("family", [ExactGP, CaGP])
def test_draws_at_points_under_a_prior_far_wider_than_the_posterior(family: Any) -> None:
    """A bowl under long lengthscales: rounding errors of the covariance are beyond any jitter."""
    torch.manual_seed(0)
    X, kernel = torch.rand(300, 3, dtype=torch.float64), ScaleKernel(RBFKernel(ard_num_dims=3))
    kernel.outputscale, kernel.base_kernel.lengthscale = 2e7, 42.0
    Y = (X - 0.4).square().sum(-1, keepdim=True)
    options: dict[str, Any] = {"input_transform": None, "outcome_transform": None}
    about = {"bounds": box(3), "covar_module": kernel.double(), **options}
    model = family(X, Y, torch.full_like(Y, 0.01), **about)
    near = torch.cat([torch.full((1, 3), 0.4), 0.4 + 0.01 * torch.rand(80, 3)]).double()
    process = model.process()
    with torch.no_grad():
        C = process.at(near).covariance(process.at(near))[0]
        values = drawn_at(near, model, [process], [2000])
    assert float(torch.linalg.eigvalsh(C)[0]) < -1e-4 * float(C.diagonal().mean())
    torch.testing.assert_close(values.std(0), C.diagonal().sqrt(), rtol=0.1, atol=0.0)


def test_maximisers_and_rows_over_categories_have_the_best_one() -> None:
    model, X = labelled()
    values = torch.arange(3.0, dtype=torch.float64)
    domain = Domain.of(model.bounds, choices={1: values}, categories=[1])
    thompson = ThompsonSampling(model, explore=0.0, domain=domain)
    chosen = [thompson.propose(20), X[thompson.select(X, 20)]]
    assert all(len(batch.unique(dim=0)) == 20 for batch in chosen)
    assert all(float((batch[:, 1] == 2.0).double().mean()) > 0.7 for batch in chosen)
    assert thompson.recommend()[1] == 2.0
    assert len(thompson.select(X.repeat(6, 1), 2300).unique()) == 2300
    with pytest.raises(UnsupportedError, match="random features"):
        get_matheron_path_model(model)


def test_rows_of_a_pool_are_different_and_good() -> None:
    model = surrogate(WISKI, 2, n=200, noise=0.01)
    pool = box(2, -2.0, 2.0)[0] + 4.0 * torch.rand(3000, 2, dtype=torch.float64)
    torch.manual_seed(0)
    rows = ThompsonSampling(model, explore=0.0).select(pool, 200)
    assert rows.shape == (200,) and len(rows.unique()) == 200
    with torch.no_grad():
        means = model.posterior(pool).mean.squeeze(-1)
    assert float(means[rows].min()) > float(means.quantile(0.8))
    assert sorted(ThompsonSampling(model).select(pool[:7], 7).tolist()) == list(range(7))
    with pytest.raises(ShapeError, match="q = 8"):
        ThompsonSampling(model).select(pool[:7], 8)


def test_an_ensemble_recommends_by_its_weighted_mean() -> None:
    model = surrogate(HSGP, 1, n=12, noise=0.5)
    fitted = KernelEnsemble.around(model, size=1).coordinates[0]
    other = fitted.clone()
    other[1] = -3.0  # a short lengthscale: the mean peaks at the best observation
    coordinates, means = torch.stack([fitted, other]), torch.zeros(2, 1, dtype=torch.float64)
    weights = torch.tensor([0.4, 0.6], dtype=torch.float64)
    ensemble = KernelEnsemble(coordinates, means, weights)
    thompson = ThompsonSampling(model, ensemble=ensemble)
    Z = model.transformed(grid(1))
    parts = [p.at(Z).mean[0] for p in ensemble.processes(model)]
    mean = 0.4 * parts[0] + 0.6 * parts[1]
    assert float(thompson.recommend()) == pytest.approx(float(grid(1)[mean.argmax()]), abs=2e-3)
    assert thompson.propose(20).shape == (20, 1)


def test_near_points_are_climbed_from() -> None:
    """A peak between the candidates over the box is found from a point on it."""
    X = torch.tensor([[0.3] * 6, [0.7] * 6], dtype=torch.float64)
    model = ExactGP(
        X, torch.tensor([[0.0], [10.0]]).double(), bounds=box(6), outcome_transform=None
    )
    model.covar_module.base_kernel.lengthscale = 0.005
    model.likelihood.noise = 1e-3
    found = ThompsonSampling(model, near=X + 0.005).recommend()
    torch.testing.assert_close(found, X[1], atol=1e-3, rtol=0.0)


def test_interface_dtype_and_conditioned_models() -> None:
    model = surrogate(ExactGP, 2).float()
    assert (
        ThompsonSampling(model, bounds=box(2, -1.0, 1.0).float()).propose(3).dtype == torch.float32
    )
    fantasy = model.condition_on_observations(
        torch.zeros(1, 2), torch.zeros(1, 1), noise=torch.ones(1, 1)
    )
    assert ThompsonSampling(fantasy).propose(2).shape == (2, 2)


def test_refusals() -> None:
    model = surrogate(WISKI, 2)
    X, Y = torch.rand(4, 2, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="PathwiseThompsonSampling"):
        ThompsonSampling(SingleTaskGP(X, Y[:, :1]))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="2 outputs"):
        ThompsonSampling(ExactGP(X, Y, bounds=box(2)))
    with pytest.raises(BoundsError, match="bounds"):
        ThompsonSampling(ExactGP(X, Y[:, :1]))
    with pytest.raises(BoundsError):
        ThompsonSampling(model, bounds=box(2, -9.0, 9.0))
    with pytest.raises(InputError, match="explore"):
        ThompsonSampling(model, explore=1.5)
    ensemble = KernelEnsemble.around(model, size=1)
    with pytest.raises(UnsupportedError, match="Leave the ensemble out"):
        ThompsonSampling(surrogate(OnlineSGPR, 2), ensemble=ensemble)
    with pytest.raises(InputError, match="q >= 1"):
        ThompsonSampling(model).propose(0)
    first = torch.tensor([0]), torch.ones(1), 3.0
    with pytest.raises(InputError, match="some point of the box"):
        ThompsonSampling(model, domain=Domain.of(model.bounds, [first])).propose(2)


def test_a_path_of_several_samples_keeps_its_shape() -> None:
    path = surrogate(ExactGP, 2).process().path(Size([3, 2]))
    assert path(torch.rand(5, 2, dtype=torch.float64)).shape == (3, 2, 1, 5)


@pytest.mark.parametrize("n", [30, 400])
def test_draws_of_a_grid_are_maximised_on_a_mesh(n: int) -> None:
    """Few data or features of the nodes; several kernels, each on features of its own; corners."""
    model, domain = surrogate(WISKI, 3, n=n, grid_size=12), Domain.of(box(3, -2.0, 2.0))
    processes = KernelEnsemble.around(model, size=3, seed=0).processes(model)
    torch.manual_seed(0)
    draws = Draws.of(model, processes, [3] * len(processes))
    found = draws.on_grid(domain)
    X = torch.cat(
        [
            4.0 * torch.rand(20_000, 3).double() - 2.0,
            torch.cartesian_prod(*[box(1)[:, 0] * 4.0 - 2.0] * 3),
        ]
    )
    assert found is not None and bool(domain.contains(found).all())
    with torch.no_grad():
        reached = draws(found.unsqueeze(1)).squeeze(-1)
        assert bool((reached >= draws(X).amax(-1) - 1e-3).all())
