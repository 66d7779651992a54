"""TuRBO-1: a trust region that grows with success and shrinks with failure, in plain numpy.

[TuRBO] D. Eriksson, M. Pearce, J. R. Gardner, R. Turner, M. Poloczek. Scalable Global Optimization
    via Local Bayesian Optimization. NeurIPS 2019.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.stats import qmc

from experiments.comparison.budgeted_task import BudgetedTask

FIRST, LEAST, MOST = 0.8, 0.5**7, 1.6
"""Sides of the region, as shares of the box: to begin with, before a restart, at most."""
SUCCESSES = 3
"""Batches in a row that improve before the region doubles."""
GAIN = 1e-3
"""Improvements over less than this share of the best value do not count."""
KEPT = 400
"""Points of the local GP."""
REFIT = 1.05
"""Growth of the region's points after which hyperparameters are fitted again."""
STEPS = 20
"""Of L-BFGS, from the last hyperparameters."""
LENGTHS, EXACT, NOISY = (0.005, 4.0), (1e-8, 1e-4), (1e-4, 10.0)
"""Bounds of lengthscales, and of the noise's variance over the signal's."""


@dataclass
class LocalGP:
    """A GP with Matern-5/2 ARD kernel; mean and amplitude are maximised out of its evidence.

    ``theta`` holds the logarithms of ``d`` lengthscales and of the noise over the amplitude.
    """

    X: np.ndarray
    y: np.ndarray
    theta: np.ndarray
    noise: tuple[float, float]
    L: np.ndarray = field(init=False)
    alpha: np.ndarray = field(init=False)
    mean: float = field(init=False)
    amplitude: float = field(init=False)

    def __post_init__(self) -> None:
        self._condition(self.theta)

    def fit(self) -> None:
        """Maximise the evidence from the current hyperparameters, O(n^3) a step."""
        bounds = [tuple(np.log(LENGTHS))] * self.X.shape[1] + [tuple(np.log(self.noise))]
        how = {"maxiter": STEPS}
        found = minimize(self._loss, self.theta, jac=True, bounds=bounds, options=how)
        self._condition(found.x)

    def means(self) -> np.ndarray:
        """Posterior means at its points."""
        return self.mean + _matern(self.X, self.X, self.theta) @ self.alpha

    def deviation(self, x: np.ndarray) -> float:
        """Posterior standard deviation of the latent function at a point."""
        near = _matern(x[None], self.X, self.theta)[0]
        v = solve_triangular(self.L, near, lower=True, check_finite=False)
        return math.sqrt(self.amplitude * max(1.0 - float(v @ v), 0.0))

    def draws(self, X: np.ndarray, q: int, generator: np.random.Generator) -> np.ndarray:
        """Joint samples of the latent function at ``n x d`` points, ``n x q``; O(n^3), float32."""
        near, single = _matern(X, self.X, self.theta), X.astype(np.float32)
        V = solve_triangular(self.L, near.T, lower=True, check_finite=False).astype(np.float32)
        C, jitter = _matern(single, single, self.theta.astype(np.float32)) - V.T @ V, 1e-5
        while True:
            try:
                root = np.linalg.cholesky(C + jitter * np.eye(len(C), dtype=np.float32))
                break
            except np.linalg.LinAlgError:
                jitter *= 10.0
        Z = generator.standard_normal((len(X), q)).astype(np.float32)
        return (self.mean + near @ self.alpha)[:, None] + math.sqrt(self.amplitude) * (root @ Z)

    def _condition(self, theta: np.ndarray) -> float:
        """Factorise; returns the logarithm of the kernel's determinant."""
        n, self.theta = len(self.y), theta
        C = _matern(self.X, self.X, theta) + (math.exp(theta[-1]) + 1e-9) * np.eye(n)
        self.L = np.linalg.cholesky(C)
        ones, z = cho_solve((self.L, True), np.stack([np.ones(n), self.y], axis=1)).T
        self.mean = float(z.sum() / ones.sum())
        self.alpha = z - self.mean * ones
        self.amplitude = max(float(self.alpha @ (self.y - self.mean)) / n, 1e-12)
        return 2.0 * float(np.log(np.diag(self.L)).sum())

    def _loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the evidence, and its gradient."""
        try:
            log_det = self._condition(theta)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        n, U = len(self.y), self.X / np.exp(theta[:-1])
        inverse = cho_solve((self.L, True), np.eye(n))
        W = 0.5 * (inverse - np.outer(self.alpha, self.alpha) / self.amplitude)
        s = _distances(self.X, self.X, theta)
        M = W * (5.0 / 3.0 * (1.0 + s) * np.exp(-s))
        # sum_ij M_ij (u_ik - u_jk)^2, for every input k: by the logarithm of its lengthscale
        gradient = 2.0 * (M.sum(axis=1) @ U**2 - ((M @ U) * U).sum(axis=0))
        loss = 0.5 * n * math.log(self.amplitude) + 0.5 * log_det
        return loss, np.append(gradient, math.exp(theta[-1]) * np.trace(W))


def solve(evaluate: BudgetedTask) -> None:
    """Thompson sampling over perturbed Sobol points in the region.

    Its GP has at most 400 points, those nearest to the centre, and is fitted warm. The centre is
    the best point, under noise that of the least posterior mean. A region that has shrunk to
    nothing is followed by one with a design of its own. Under noise the recommendation is that
    point, of the region in which its mean plus a standard deviation is least.
    """
    generator, task = np.random.default_rng(evaluate.seed), evaluate.task
    low, high = evaluate.bounds.numpy()
    closed: list[tuple[float, np.ndarray]] = []
    design = (evaluate.design() - low) / (high - low)
    while True:
        _region(evaluate, design, closed, generator)
        sobol = qmc.Sobol(task.box.dim, seed=generator)
        design = sobol.random(evaluate.initial)


def _region(
    evaluate: BudgetedTask,
    design: np.ndarray,
    closed: list[tuple[float, np.ndarray]],
    generator: np.random.Generator,
) -> None:
    """One region, until it is too small; ``closed`` gets its recommendation."""
    task, d = evaluate.task, design.shape[1]
    low, high = evaluate.bounds.numpy()

    def costs(X: np.ndarray) -> np.ndarray:
        return task.costs(evaluate(low + (high - low) * X))[:, 0]

    X, y = design, costs(design)
    noise = EXACT if task.deterministic else NOISY
    theta = np.append(np.full(d, math.log(0.5)), math.log(math.sqrt(noise[0] * noise[1])))
    side, wins, losses, fitted = FIRST, 0, 0, 0.0
    centre = X[y.argmin()]
    while side >= LEAST:
        near = np.argsort(((X - centre) ** 2).sum(axis=1))[:KEPT]
        scale = max(float(y[near].std()), 1e-12)
        gp = LocalGP(X[near], (y[near] - y[near].mean()) / scale, theta, noise)
        if len(y) >= REFIT * fitted:
            gp.fit()
            theta, fitted = gp.theta, len(y)
        means = gp.means()
        best = near[means.argmin()] if not task.deterministic else y.argmin()
        centre = X[best]
        bound = scale * (means.min() + gp.deviation(gp.X[means.argmin()])) + y[near].mean()
        stood = float(bound), low + (high - low) * centre
        if not task.deterministic:
            known = [*closed, stood]
            evaluate.recommender = lambda known=known: min(known, key=lambda k: k[0])[1]
        q = evaluate.batch
        candidates = _perturbed(centre, side, theta, generator)
        samples, new = gp.draws(candidates, q, generator), []
        for column in samples.T:
            new.append(int(column.argmin()))
            samples[new[-1]] = np.inf
        told, before = costs(candidates[new]), float(y.min())
        X, y = np.concatenate([X, candidates[new]]), np.append(y, told)
        won = told.min() < before - GAIN * abs(before)
        wins, losses = (wins + 1, 0) if won else (0, losses + 1)
        if wins >= SUCCESSES:
            side, wins = min(2.0 * side, MOST), 0
        elif losses >= math.ceil(max(4.0, d) / q):
            side, losses = side / 2.0, 0
    closed.append(stood)


def _perturbed(
    centre: np.ndarray, side: float, theta: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """The centre with some coordinates replaced by those of Sobol points in the region."""
    d = len(centre)
    size = min(max(1000, 100 * d), 5000)
    shares = np.exp(theta[:d] - theta[:d].mean())
    low, high = np.clip([centre - 0.5 * side * shares, centre + 0.5 * side * shares], 0.0, 1.0)
    sobol = low + (high - low) * qmc.Sobol(d, seed=generator).random(size)
    mask = generator.random((size, d)) < min(20.0 / d, 1.0)
    mask[np.arange(size), generator.integers(d, size=size)] = True
    return np.where(mask, sobol, centre)


def _distances(X: np.ndarray, Z: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Distances times the root of 5, in units of the lengthscales."""
    U, V = X / np.exp(theta[:-1]), Z / np.exp(theta[:-1])
    squared = (U**2).sum(axis=1)[:, None] + (V**2).sum(axis=1) - 2.0 * U @ V.T
    return np.asarray(np.sqrt(5.0 * squared.clip(min=0.0)))


def _matern(X: np.ndarray, Z: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Matern-5/2 correlations."""
    s = _distances(X, Z, theta)
    return np.asarray((1.0 + s * (1.0 + s / 3.0)) * np.exp(-s))
