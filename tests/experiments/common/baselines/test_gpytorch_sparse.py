"""gpytorch's sparse GPs, against formulas that a reader can check."""

import gpytorch
import torch
from gpytorch.kernels import RBFKernel

from experiments.common.baselines.gpytorch_sparse import SGPR, SVGP, predicted
from experiments.common.kernels import gaussian, scaled


def test_sgpr_with_every_row_an_inducing_point_is_exact() -> None:
    X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
    y, points = (5.0 * X[:, 0]).sin(), X.clone()
    kernel, likelihood = scaled(RBFKernel(), lengthscale=0.2), gaussian(noise=0.1)
    model = SGPR(X, y, kernel, points, likelihood).eval()
    points.zero_()  # they were copied
    with torch.no_grad():
        near = X + 0.01
        mean = model(near).mean
        K, k = kernel(X).to_dense(), kernel(near, X).to_dense()
    # up to the jitter that gpytorch adds to the inducing points
    assert torch.allclose(mean, k @ torch.linalg.solve(K + 0.1 * torch.eye(6), y), atol=1e-4)


def test_svgp_starts_as_its_prior_and_learns_its_points() -> None:
    points = torch.rand(3, 2, dtype=torch.float64)
    model = SVGP(points, scaled(RBFKernel(), outputscale=2.0)).eval()
    prior = model(torch.rand(4, 2, dtype=torch.float64))
    assert torch.allclose(prior.mean, torch.zeros(4).double(), atol=1e-2)
    assert torch.allclose(prior.variance, torch.full((4,), 2.0).double(), atol=1e-3)
    assert any(p.shape == points.shape for p in model.parameters())
    assert isinstance(model, gpytorch.models.ApproximateGP)


def test_one_natural_step_of_full_length_is_the_optimum() -> None:
    X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
    y = (5.0 * X[:, 0]).sin()
    kernel, likelihood = scaled(RBFKernel(), lengthscale=0.2), gaussian(noise=0.1)
    model = SVGP(X, kernel, natural=True)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=6)
    optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=6, lr=1.0)
    for _ in range(2):  # gpytorch initialises the distribution at the first call
        optimizer.zero_grad()
        (-bound(model(X), y)).backward()
        optimizer.step()
    K = kernel(X).to_dense()
    exact = K @ torch.linalg.solve(K + 0.1 * torch.eye(6), y)
    assert torch.allclose(model.eval()(X).mean, exact, atol=1e-3)


def test_predictions_are_those_of_observations_and_leave_the_model_in_training() -> None:
    X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
    y, likelihood = (5.0 * X[:, 0]).sin(), gaussian(noise=0.1)
    model = SGPR(X, y, scaled(RBFKernel(), lengthscale=0.2), X, likelihood)
    many = torch.linspace(0.0, 1.0, 1200, dtype=torch.float64).unsqueeze(-1)
    mean, variance = predicted(model, likelihood, many)
    assert model.training and likelihood.training and mean.shape == variance.shape == (1200,)
    assert not mean.requires_grad and not variance.requires_grad
    at_once = model.eval()(many[600:620])
    assert torch.allclose(mean[600:620], at_once.mean, atol=1e-6)
    assert torch.allclose(variance[600:620], at_once.variance + 0.1, atol=1e-6)
