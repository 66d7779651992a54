"""Small pieces the tests of the online sparse GP share."""

import gpytorch
import torch

from bo_stream.mathematics.inducing import Batch, empty_state, update


def se_kernel(os=1.3, ls=(0.5,)):
    """Scaled ARD squared-exponential kernel in float64."""
    base = gpytorch.kernels.RBFKernel(ard_num_dims=len(ls))
    kernel = gpytorch.kernels.ScaleKernel(base).double()
    kernel.outputscale = torch.tensor(os, dtype=torch.float64)  # a float passes through float32
    kernel.base_kernel.lengthscale = torch.tensor([ls], dtype=torch.float64)
    return kernel.requires_grad_(False)


def data(n, d=1, seed=0, noise=0.01, spread=0.0):
    """A noisy smooth function on the unit cube; ``spread`` > 0 makes the noise heteroscedastic."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=g, dtype=torch.float64)
    D = noise * torch.exp(spread * torch.randn(n, generator=g, dtype=torch.float64))
    f = torch.sin(7.0 * X.sum(-1)) + X[:, 0]
    return Batch(X, f + D.sqrt() * torch.randn(n, generator=g, dtype=torch.float64), D)


def pieces(batch, sizes):
    """The batch in chunks of the given sizes."""
    out, start = [], 0
    for size in sizes:
        stop = start + size
        out.append(Batch(batch.X[start:stop], batch.y[start:stop], batch.noise[start:stop]))
        start = stop
    return out


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


def start(batch, mean=0.0, jitter=1e-8):
    return empty_state(batch.X, scalar(mean), jitter)


def index_in(old, new):
    """Row of ``new`` each row of ``old`` equals, -1 where none does."""
    rows = [tuple(z) for z in new.tolist()]
    found = [rows.index(tuple(z)) if tuple(z) in rows else -1 for z in old.tolist()]
    return torch.tensor(found, dtype=torch.long)


def step(state, batch, kernel, Z, mean=0.0, same_kernel=False):
    """`update` with old points recognised by value."""
    index = index_in(state.Z, Z)
    return update(state, batch, kernel, scalar(mean), Z, index, same_kernel=same_kernel)


def numbers(X):
    return X.tolist()


K_A, K_B, K_C = (1.3, [0.5, 0.7]), (0.8, [0.3, 0.4]), (2.0, [0.9, 0.35])
CASES = {
    # per batch: kernel, prior mean, inducing points (o: rows of the pool), noise spread
    "growing": [(K_A, 0.0, [0, 1, 2]), (K_A, 0.0, [0, 1, 2, 3, 4]), (K_A, 0.0, range(8))],
    "dropped": [(K_A, 0.0, range(5)), (K_A, 0.0, [1, 4, 6]), (K_A, 0.0, [6, 2, 1, 7])],
    "all dropped": [(K_A, 0.0, [0, 1, 2]), (K_A, 0.0, [3, 4, 5, 6])],
    "hyperparameters": [(K_A, 0.0, range(4)), (K_B, 0.0, range(4)), (K_C, 0.0, range(7))],
    "mean": [(K_A, 0.4, range(4)), (K_A, -0.3, range(5)), (K_A, 1.0, range(6))],
    "everything": [(K_A, 0.4, range(4)), (K_B, -0.3, [2, 0, 5]), (K_C, 1.0, [5, 6, 2, 7])],
    "from nothing": [(K_A, 0.4, []), (K_B, -0.3, [2, 0, 5]), (K_C, 1.0, [])],
}
