"""Dense oracles for the papers' formulas: Gaussian identities as a textbook has them.

Everything is float64, and every problem small enough for plain inverses.
"""

import math

import torch
from torch import Tensor

inv, solve, chol = torch.linalg.inv, torch.linalg.solve, torch.linalg.cholesky


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(*shape: int, seed: int) -> Tensor:
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def line(n: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Evenly spaced points, ``n x 1``."""
    return torch.linspace(low, high, n, dtype=torch.float64).unsqueeze(-1)


def se(X: Tensor, Z: Tensor, ls: float | Tensor = 0.3) -> Tensor:
    """Squared-exponential kernel of amplitude one."""
    return torch.exp(-0.5 * ((X.unsqueeze(-2) - Z.unsqueeze(-3)) / ls).square().sum(-1))


def log_normal(e: Tensor, C: Tensor) -> Tensor:
    """``log N(e; 0, C)``."""
    return -0.5 * (e @ solve(C, e) + torch.logdet(C) + len(e) * math.log(2 * math.pi))


def condition(m: Tensor, K: Tensor, on: slice, y: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """The distribution of all coordinates of ``N(m, K)`` given noisy readings y of some of them."""
    gain = solve(K[on, on] + D, K[on, :]).mT
    return m + gain @ (y - m[on]), K - gain @ K[on, :]


def divergence(m: Tensor, S: Tensor, m0: Tensor, S0: Tensor) -> Tensor:
    """``KL[N(m, S) || N(m0, S0)]``."""
    e, R = m - m0, solve(S0, S)
    return 0.5 * (R.trace() + e @ solve(S0, e) - len(m) - torch.logdet(R))


def keys(x: Tensor, nodes: Tensor) -> Tensor:
    """Keys' cubic interpolation weights (a = -1/2) of points ``n`` over nodes ``m``."""
    s = ((x.unsqueeze(-1) - nodes) / (nodes[1] - nodes[0])).abs()
    near = 1.5 * s**3 - 2.5 * s**2 + 1.0
    far = -0.5 * s**3 + 2.5 * s**2 - 4.0 * s + 2.0
    return torch.where(s < 1.0, near, torch.where(s < 2.0, far, 0.0))


def close(a: Tensor | float, b: Tensor | float, within: float = 1e-8) -> bool:
    """Whether two results agree everywhere, relative to the larger one where it exceeds 1."""
    a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (a, b))
    return bool((a - b).abs().max() <= within * max(1.0, float(b.abs().max())))
