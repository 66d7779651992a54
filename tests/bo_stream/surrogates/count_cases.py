"""Full-batch expectation propagation in numpy, and draws of counts, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, gammaln, log_expit
from torch import Tensor

FAMILIES = ("exact", "node_wiski", "wiski", "hsgp")
WITHIN = {"exact": 0.005, "node_wiski": 0.005, "wiski": 0.02, "hsgp": 0.1}
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
NODES = np.linspace(-9.0, 9.0, 801)
"""The tilted distribution is summed on this grid of standard deviations: slow and obvious."""


def log_binomial(g: np.ndarray, y: np.ndarray, n: np.ndarray) -> np.ndarray:
    ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
    return ways + y * log_expit(g) + (n - y) * log_expit(-g)


def log_poisson(g: np.ndarray, y: np.ndarray, n: np.ndarray) -> np.ndarray:
    return y * (g + np.log(n)) - n * np.exp(g) - gammaln(y + 1)


def tilted(log_p, m, v, y, n):
    """Log norm, mean and variance of ``N(g; m, v) p(y | g)`` on a grid around its mode."""
    wide = m[:, None] + np.sqrt(v)[:, None] * NODES
    best = wide[np.arange(len(m)), (log_p(wide, y[:, None], n[:, None]) - NODES**2 / 2).argmax(1)]
    h = 1e-3
    bend = log_p(best + h, y, n) + log_p(best - h, y, n) - 2 * log_p(best, y, n)
    scale = 1 / np.sqrt(1 / v + np.maximum(-bend / h**2, 0.0))
    g = best[:, None] + scale[:, None] * NODES
    logs = log_p(g, y[:, None], n[:, None]) - (g - m[:, None]) ** 2 / (2 * v[:, None])
    top = logs.max(1, keepdims=True)
    w = np.exp(logs - top)
    step = scale * (NODES[1] - NODES[0])
    norm = np.log(w.sum(1) * step) + top[:, 0] - np.log(2 * np.pi * v) / 2
    w /= w.sum(1, keepdims=True)
    mean = (w * g).sum(1)
    return norm, mean, (w * (g - mean[:, None]) ** 2).sum(1)


def full_batch(K, mean, tau2, y, n, log_p=log_binomial, sweeps=40):
    """EP on all data at once: means and variances of f, and the log evidence."""
    S, N = K + tau2 * np.eye(len(y)), len(y)
    l1, l2 = np.zeros(N), np.full(N, 1e-3)
    for _ in range(sweeps):
        C = np.linalg.inv(np.linalg.inv(S) + np.diag(l2))
        m, v = C @ (np.linalg.solve(S, mean) + l1), C.diagonal()
        cv = 1 / (1 / v - l2)
        cm = cv * (m / v - l1)
        norm, tm, tv = tilted(log_p, cm, cv, y, n)
        l1, l2 = l1 + 0.7 * (tm / tv - cm / cv - l1), l2 + 0.7 * (1 / tv - 1 / cv - l2)
    t, V = l1 / l2, 1 / l2
    A = S + np.diag(V)
    gap = t - mean
    evidence = -(gap @ np.linalg.solve(A, gap) + np.linalg.slogdet(2 * np.pi * A)[1]) / 2
    extra = norm + np.log(2 * np.pi * (cv + V)) / 2 + (cm - t) ** 2 / (2 * (cv + V))
    gain = np.linalg.solve(K + np.diag(tau2 + V), K).T
    return mean + gain @ gap, (K - gain @ K).diagonal(), evidence + extra.sum()


def slice_samples(K, mean, y, n, draws, seed=0):
    """Draws of the latent values by elliptical slice sampling, without a nugget."""
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky(K + 1e-9 * np.eye(len(y)))
    f, kept = np.zeros(len(y)), np.empty((draws, len(y)))
    for i in range(draws):
        nu = L @ rng.standard_normal(len(y))
        level = log_binomial(mean + f, y, n).sum() + np.log(rng.random())
        angle = rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while True:
            step = f * np.cos(angle) + nu * np.sin(angle)
            if log_binomial(mean + step, y, n).sum() > level:
                break
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            angle = rng.uniform(low, high)
        f = step
        kept[i] = mean + f
    return kept


def against_oracle(model, X: Tensor, y: Tensor, n: Tensor, log_p=log_binomial):
    """Error of the latent mean in posterior sds (rms), and of the log evidence in nats."""
    raw = model.model.transformed(X)
    K = model.model.covar_module(raw).to_dense().detach().numpy()
    mean = np.full(len(y), float(model.model.mean_module.constant.detach()))
    m, v, evidence = full_batch(K, mean, model.nugget, y.numpy(), n.numpy(), log_p)
    ours = model.response(X, nugget=False)
    error = np.sqrt(((ours.means[0].numpy() - m) ** 2 / v).mean())
    return float(error), abs(float(model.log_evidence()) - evidence)


def field(X: Tensor) -> Tensor:
    return 1.2 * torch.sin(5 * X[:, 0]) + torch.cos(4 * X[:, 1]) - 1.0


def survey(points: int, trials: tuple[int, int] = (5, 60), nugget: float = 0.2, seed: int = 0):
    """Points, positives, numbers examined, and latent values of a smooth surface."""
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.random((points, 2)))
    n = torch.from_numpy(rng.integers(*trials, size=points)).double()
    f = field(X)
    g = f.numpy() + np.sqrt(nugget) * rng.standard_normal(points)
    k = torch.from_numpy(rng.binomial(n.numpy().astype(int), expit(g))).double()
    return X, k, n, f


def close(a: Tensor, b: Tensor, within: float = 1e-6) -> None:
    torch.testing.assert_close(a, b, rtol=within, atol=within)


def latent(model: Any, Z: Tensor) -> tuple[Tensor, Tensor]:
    here = model.response(Z, nugget=False)
    return here.means[0], here.variances[0]


def assert_alike(a: Any, b: Any, within: float = 1e-6) -> None:
    Z = torch.rand(9, 2, dtype=torch.double)
    for one, other in zip(latent(a, Z), latent(b, Z), strict=True):
        close(one, other, within)
    close(a.log_evidence(), b.log_evidence(), within)
    assert a.nugget == pytest.approx(b.nugget)
