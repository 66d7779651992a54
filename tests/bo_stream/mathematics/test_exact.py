"""Evidence and posterior at small n against dense algebra and central differences."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy.stats import multivariate_normal

from bo_stream.mathematics.exact import Evidence, LatentProcess, Priors, Targets, maximised
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
    found = maximised(evidence, [start, start + 1.0], 4, **ASCENT)
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


def process(noise: float = 0.01, origin: float = 0.0) -> LatentProcess:
    scales = np.array([0.5, 0.8, 1.3])
    return LatentProcess.of(X + origin, Y, noise, scales, 0.3, 2.0, exact=False)


def test_points_may_be_far_from_the_origin() -> None:
    Z, near, far = RNG.random((5, 3)), process(1e-6), process(1e-6, origin=2.0**20)
    for a, b in zip(near.joint(Z), far.joint(Z + 2.0**20), strict=True):
        assert b == pytest.approx(a, abs=1e-6)
    near, far = near.believing(Z), far.believing(Z + 2.0**20)
    for a, b in zip(near.slopes(Z + 0.1), far.slopes(Z + (2.0**20 + 0.1)), strict=True):
        assert b == pytest.approx(a, rel=1e-4, abs=1e-4)


def test_moments_are_those_of_dense_algebra() -> None:
    Z, scales = RNG.random((5, 3)), np.array([0.5, 0.8, 1.3])
    k = correlations(Z, X, scales) @ np.linalg.inv(correlations(X, X, scales) + 0.01 * np.eye(18))
    mean, sd = process().at(Z)
    assert mean == pytest.approx(0.3 + k @ (Y - 0.3), rel=1e-8)
    variance = 2.0 * (1.0 - (k * correlations(Z, X, scales)).sum(1))
    assert sd**2 == pytest.approx(variance, rel=1e-8)
    kernel = MaternKernel(nu=2.5)
    kernel.lengthscale = 1.0
    assert correlations(Z, Z, np.ones(3)) == pytest.approx(
        kernel.double()(torch.from_numpy(Z)).to_dense().detach().numpy()
    )


def test_slopes_of_the_moments() -> None:
    Z, latent = RNG.random((5, 3)), process()
    mean, sd, mean_slope, sd_slope = latent.slopes(Z)
    assert np.allclose((mean, sd), latent.at(Z), rtol=1e-12)
    for i, e in enumerate(1e-6 * np.eye(3)):
        up, down = latent.at(Z + e), latent.at(Z - e)
        assert mean_slope[:, i] == pytest.approx((up[0] - down[0]) / 2e-6, rel=1e-5, abs=1e-7)
        assert sd_slope[:, i] == pytest.approx((up[1] - down[1]) / 2e-6, rel=1e-5, abs=1e-7)


def test_believing_is_observing_the_mean() -> None:
    new, Z = RNG.random((2, 3)), RNG.random((5, 3))
    latent, scales = process(), np.array([0.5, 0.8, 1.3])
    believed = latent.believing(new, 0.01)
    every, w = np.vstack([X, new]), np.concatenate([Y, latent.at(new)[0]])
    observed = LatentProcess.of(every, w, 0.01, scales, 0.3, 2.0, exact=False)
    assert np.allclose(believed.at(Z), observed.at(Z), rtol=1e-8)
    assert believed.values == pytest.approx(observed.values, rel=1e-8)
    assert believed.best == pytest.approx(observed.best)
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
