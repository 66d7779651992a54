"""Evidence and posterior at small n against dense algebra and central differences."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy.stats import multivariate_normal

from bo_stream.mathematics.exact import Evidence, Priors, Targets, maximised
from bo_stream.mathematics.expanded import ExpandedProcess, Expansion, LatentProcess
from bo_stream.mathematics.radial import RadialCovariance
from bo_stream.mathematics.warp import (
    ASCENT,
    TAU,
    coefficients,
    contradicted,
    evidence_of,
    fitted,
    unit,
)

RNG = np.random.default_rng(0)
X = RNG.random((18, 3))
Y = np.sin(9.0 * X[:, 0]) - 10.0 * ((X - 0.4) ** 2).sum(1) + 0.1 * RNG.standard_normal(18)
KINDS = [(learned, warp) for learned in (False, True) for warp in (False, True)]


def correlations(a: np.ndarray, b: np.ndarray, lengthscales: np.ndarray) -> np.ndarray:
    """Matern-5/2 as in the textbook."""
    r = np.sqrt(5.0 * (((a[:, None] - b) / lengthscales) ** 2).sum(-1))
    return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))


@pytest.mark.parametrize(("learned", "warp"), KINDS)
def test_gradients_of_the_evidence(learned: bool, warp: bool) -> None:
    evidence = evidence_of(X, Y, unit(Y), learned=learned, warp=warp)
    theta = evidence.priors.centre + 0.1 * np.arange(3 + learned + warp)
    _, gradient = evidence(theta)
    for i, e in enumerate(1e-5 * np.eye(len(theta))):
        quotient = (evidence(theta + e)[0] - evidence(theta - e)[0]) / 2e-5
        assert gradient[i] == pytest.approx(quotient, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("learned", "warp"), KINDS)
def test_the_value_is_that_of_dense_algebra(learned: bool, warp: bool) -> None:
    """Gaussian log density of the warped outcomes, the slopes of the warp, and the priors."""
    evidence, found, _ = fitted(X, Y, np.empty(0), learned=learned, warp=warp, most=None)
    scale, centre, spread = evidence.targets_at(found.theta).units
    lengthscales, noise = np.exp(found.theta[:3]), evidence.noise_at(found.theta)
    if scale:
        top, _, centre, spread, _ = coefficients(
            torch.from_numpy(Y), torch.tensor(scale, dtype=torch.float64)
        ).tolist()
        w = (centre - np.log1p((top - Y) / scale)) / spread
        slopes = -np.log((scale + top - Y) * spread).sum()
    else:
        w, slopes = (Y - centre) / spread, -len(Y) * math.log(spread)
    C = correlations(X, X, lengthscales) + noise * np.eye(18)
    solved = evidence.solved_at(found.theta)
    m, v = solved.mean, solved.variance
    density = multivariate_normal(np.full(18, m), v * C).logpdf(w)
    priors = -0.5 * m * m / v - math.log(v) - 1.0 / v
    priors -= 0.5 * (np.log(lengthscales) ** 2).sum()
    if learned:
        priors -= 0.5 * ((math.log(noise - 1e-6) - TAU[0]) / TAU[1]) ** 2
    if scale:
        priors -= 0.5 * (math.log(scale / unit(Y)) / 2.0) ** 2
    assert found.value == pytest.approx(density + slopes + priors, rel=1e-9)
    assert abs(w.mean()) < 1e-9 and w.std() == pytest.approx(1.0)


def test_it_stops_at_the_number_of_evaluations_and_keeps_the_best() -> None:
    evidence = evidence_of(X, Y, unit(Y), learned=True, warp=True)
    start = evidence.priors.centre
    bounds = evidence.priors.bounds
    found = maximised(evidence, bounds, [start, start + 1.0], 4, **ASCENT)
    assert found.evaluations == 4 and not found.converged
    assert evidence(found.theta)[0] == found.value > evidence(start)[0]


@pytest.mark.parametrize("k", [0.0, 1.0])
def test_mean_and_variance_are_optimal(k: float) -> None:
    """With and without their priors, beside other values of both; and the gradient."""
    rows = [(0.2, 1.0, -3.0, 3.0)] * 3 + [(-3.0, 2.0, -16.0, 2.0)]
    evidence = Evidence(X - 0.5, Targets(Y), Priors(np.array(rows).T, k))
    theta = np.array([-0.4, 0.1, 0.5, -2.5])
    C = correlations(X, X, np.exp(theta[:3])) + math.exp(-2.5) * np.eye(18)

    def value(m: float, v: float) -> float:
        density = multivariate_normal(np.full(18, m), v * C).logpdf(Y)
        return float(density - k * (0.5 * m * m / v + math.log(v) + 1.0 / v))

    found = evidence.solved_at(theta)
    best = value(found.mean, found.variance)
    assert found.value == pytest.approx(best, rel=1e-9)
    for m, v in ((0.1, 1.0), (-0.1, 1.0), (0.0, 1.1), (0.0, 0.9)):
        assert value(found.mean + m, v * found.variance) < best
    for i, e in enumerate(1e-5 * np.eye(4)):
        quotient = (evidence(theta + e)[0] - evidence(theta - e)[0]) / 2e-5
        assert evidence(theta)[1][i] == pytest.approx(quotient, rel=1e-6, abs=1e-6)


SCALES = np.array([0.5, 0.8, 1.3])


def given(points: np.ndarray, y: np.ndarray, noise: float = 0.01) -> LatentProcess:
    """A process of mean 0.3 and variance 2."""
    sd, (low, width) = math.sqrt(2.0), (np.zeros(3), np.ones(3))
    own = Expansion.given(RadialCovariance(1.0 / SCALES), points, (y - 0.3) / sd, noise)
    made = ExpandedProcess(own, SCALES, low, width, 0.3, sd)
    return LatentProcess(made, made.marginals(points)[0])


def slopes(latent: LatentProcess, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of means and variances, ``p x d`` each."""
    one, none = np.ones((len(Z), 1)), np.zeros((len(Z), 1))
    pull = latent.process.moments(Z[:, None]).pull
    return pull(one, none[:, None])[:, 0], pull(none, one[:, None])[:, 0]


def test_points_may_be_far_from_the_origin() -> None:
    Z, near, far = RNG.random((5, 3)), given(X, Y, 1e-6), given(X + 2.0**20, Y, 1e-6)
    here, there = near.process.moments(Z[None]), far.process.moments(Z[None] + 2.0**20)
    assert there.mean == pytest.approx(here.mean, abs=1e-6)
    assert there.covariance == pytest.approx(here.covariance, abs=1e-6)
    near, far = near.believing(Z), far.believing(Z + 2.0**20)
    for a, b in zip(slopes(near, Z + 0.1), slopes(far, Z + (2.0**20 + 0.1)), strict=True):
        assert b == pytest.approx(a, rel=1e-4, abs=1e-4)


def test_moments_are_those_of_dense_algebra() -> None:
    Z = RNG.random((5, 3))
    k = correlations(Z, X, SCALES) @ np.linalg.inv(correlations(X, X, SCALES) + 0.01 * np.eye(18))
    mean, variance = given(X, Y).process.marginals(Z)
    assert mean == pytest.approx(0.3 + k @ (Y - 0.3), rel=1e-8)
    expected = 2.0 * (1.0 - (k * correlations(Z, X, SCALES)).sum(1))
    assert variance == pytest.approx(expected, rel=1e-8)
    kernel = MaternKernel(nu=2.5)
    kernel.lengthscale = 1.0
    assert correlations(Z, Z, np.ones(3)) == pytest.approx(
        kernel.double()(torch.from_numpy(Z)).to_dense().detach().numpy()
    )


def test_slopes_of_the_moments() -> None:
    Z, latent = RNG.random((5, 3)), given(X, Y)
    marginals = latent.process.marginals
    for part, slope in enumerate(slopes(latent, Z)):
        for i, e in enumerate(1e-6 * np.eye(3)):
            quotient = (marginals(Z + e)[part] - marginals(Z - e)[part]) / 2e-6
            assert slope[:, i] == pytest.approx(quotient, rel=1e-5, abs=1e-7)


def test_believing_is_observing_the_mean() -> None:
    new, Z, latent = RNG.random((2, 3)), RNG.random((5, 3)), given(X, Y)
    believed = latent.believing(new, 0.01)
    w = np.concatenate([Y, latent.process.marginals(new)[0]])
    observed = given(np.vstack([X, new]), w)
    assert np.allclose(believed.process.marginals(Z), observed.process.marginals(Z), rtol=1e-8)
    assert believed.values == pytest.approx(observed.values, rel=1e-8)
    assert latent.believing(new[:0]) is latent


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([3.0, 1.0, 0.0, -1e9], 2.5),
        ([3.0, 3.0, 3.0, 1.0, 0.0], 2.0),
        ([3.0, 3.0, 3.0 * (1.0 - 1e-14), 3.0, 1.0, 0.0], 2.0),
        ([3.0, 0.0, 0.0, 0.0, 0.0], 1.5),
        ([3.0, 1.0, 1.0, 1.0, 0.0], 2.0),
        ([0.3, 0.3, 0.1 + 0.2], 0.0),
        ([-5.0, -5.0], 0.0),
    ],
)
def test_the_unit_of_the_warp_counts_each_value_once(y: list[float], expected: float) -> None:
    """It scales with the outcomes; without ties it is the gap from the best to the median."""
    for scale in (1e-12, 1.0, 1e12):
        assert unit(scale * np.array(y)) == pytest.approx(scale * expected, rel=1e-9, abs=0.0)
    assert unit(Y) == Y.max() - np.median(Y)


def test_exactness_is_contradicted_where_outcomes_differ_at_one_point() -> None:
    twice = np.vstack([X, X[:2]])
    assert not contradicted(X, Y)
    assert not contradicted(twice, np.append(Y, Y[:2] + 1e-12))
    assert contradicted(twice, np.append(Y, [Y[0], Y[1] + 1e-3]))
