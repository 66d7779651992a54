import math

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf

from acquisitions import MaxVariance, Random
from bo_stream import WISKI
from bo_stream.errors import ShapeError, UnsupportedError
from experiments.common.loops.policies import near_most_uncertain
from tests.raw import RAW

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
X = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = X.sum(-1, keepdim=True)


@pytest.fixture
def model() -> WISKI:
    return WISKI(X, Y, bounds=BOUNDS, grid_size=10, **RAW)


def test_max_variance_is_the_entropy_of_noisy_observations(model: WISKI) -> None:
    batch = X[:6].reshape(2, 3, 2) * 0.9
    covariance = model.posterior(batch, observation_noise=True).distribution.covariance_matrix
    expected = torch.stack([0.5 * torch.logdet(c) for c in covariance])
    torch.testing.assert_close(MaxVariance(model)(batch), expected, rtol=1e-10, atol=1e-12)


def test_max_variance_ranks_single_points_by_variance(model: WISKI) -> None:
    points = X.flip(-1).unsqueeze(-2)
    order = MaxVariance(model)(points).argsort()
    assert torch.equal(order, model.posterior(points).variance.flatten().argsort())


def test_max_variance_spreads_a_batch(model: WISKI) -> None:
    torch.manual_seed(0)
    batch, _ = optimize_acqf(MaxVariance(model), BOUNDS, q=3, num_restarts=4, raw_samples=64)
    assert float(torch.pdist(batch).min()) > 0.2


def test_max_variance_counts_pending_points(model: WISKI) -> None:
    joint = MaxVariance(model)(torch.stack([X[:2].flip(-1)]))
    pending = MaxVariance(model, X_pending=X[1:2].flip(-1))(X[:1].flip(-1))
    torch.testing.assert_close(pending, joint, rtol=1e-12, atol=0.0)


def test_max_variance_wants_a_surrogate_of_ours() -> None:
    with pytest.raises(UnsupportedError, match="qPosteriorStandardDeviation"):
        MaxVariance(SingleTaskGP(X, Y))


def test_random_is_uniform_repeatable_and_flat(model: WISKI) -> None:
    torch.manual_seed(1)
    batch = X[:1].expand(4000, 1, 2).clone().requires_grad_()
    values = Random(model)(batch)
    assert abs(float(values.detach().mean()) - 0.5) < 5 / math.sqrt(12 * 4000)
    assert float(values.detach().min()) >= 0.0 and float(values.detach().max()) < 1.0
    values.sum().backward()
    assert float(batch.grad.abs().max()) == 0.0
    torch.manual_seed(1)
    assert torch.equal(values, Random(model)(batch))


def test_near_most_uncertain_takes_the_nearest_free_candidates() -> None:
    data = torch.tensor([[0.2, 0.2]], dtype=torch.float64)
    model = WISKI(data, data[:, :1], bounds=BOUNDS, grid_size=12, **RAW)
    model.covar_module.base_kernel.lengthscale = 0.5
    test = torch.tensor([[0.9, 0.9], [0.95, 0.95], [0.2, 0.2]], dtype=torch.float64)
    pool = torch.tensor([[0.2, 0.25], [0.9, 0.91], [0.8, 0.8]], dtype=torch.float64)
    # most uncertain first: test point 1, then 0; both are nearest to candidate 1
    assert near_most_uncertain(model, test, pool, 2).tolist() == [1, 2]
    assert near_most_uncertain(model, test, pool, 3).tolist() == [1, 2, 0]
    with pytest.raises(ShapeError, match="at least 4"):
        near_most_uncertain(model, test, pool, 4)
