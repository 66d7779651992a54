"""WISKI's prior ``W K W'`` written out, kernels and data to try it with."""

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Size, Tensor

from bo_stream import WISKI
from tests.raw import RAW

SIZES = {1: (20,), 2: (9, 8), 3: (7, 6, 8)}
BOUNDS = torch.tensor([[-1.0, 0.5, 2.0], [1.0, 2.0, 5.0]], dtype=torch.float64)


# -- the oracle ----------------------------------------------------------------------------------


def keys_row(x: Tensor, nodes: Tensor) -> Tensor:
    """Weights of coordinates, ``n x 1``, over all nodes (MATHS 2.1, Keys 1981, a = -1/2)."""
    s = (x - nodes).abs() / (nodes[1] - nodes[0])
    near = 1.5 * s**3 - 2.5 * s**2 + 1.0
    far = -0.5 * s**3 + 2.5 * s**2 - 4.0 * s + 2.0
    return torch.where(s < 1, near, torch.where(s < 2, far, 0.0 * s))


def folded_row(x: Tensor, nodes: Tensor) -> Tensor:
    """Weights on the nodes and a ghost beyond each end, whose weight goes to the nearest three."""
    h, g = nodes[1] - nodes[0], len(nodes)
    T = torch.zeros(g + 2, g, dtype=torch.float64)
    T[1:-1] = torch.eye(g)
    T[0, :3] = torch.tensor([3.0, -3.0, 1.0])
    T[-1, -3:] = torch.tensor([1.0, -3.0, 3.0])
    return keys_row(x, torch.cat([nodes[:1] - h, nodes, nodes[-1:] + h])) @ T


def nodes_for(bounds: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Nodes from bound to bound."""
    ends = zip(*bounds.tolist(), sizes, strict=True)
    return [torch.linspace(low, high, g, dtype=torch.float64) for low, high, g in ends]


def padded_nodes(bounds: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Nodes whose third and last but two are the bounds."""
    axes = []
    for low, high, g in zip(*bounds.tolist(), sizes, strict=True):
        h = (high - low) / (g - 5)
        axes.append(low + h * (torch.arange(g, dtype=torch.float64) - 2))
    return axes


def dense_rows(X: Tensor, axes: list[Tensor], row_of: Any = folded_row) -> Tensor:
    """W, ``n x m``."""
    W = torch.ones(len(X), 1, dtype=torch.float64)
    for values, nodes in zip(X.unbind(-1), axes, strict=True):
        own = row_of(values.unsqueeze(-1), nodes)
        W = (W.unsqueeze(-1) * own.unsqueeze(-2)).flatten(1)
    return W


def points(n: int, d: int, seed: int) -> Tensor:
    """Points anywhere in the bounds, some exactly on them."""
    generator = torch.Generator().manual_seed(seed)
    U = torch.rand(n, d, generator=generator, dtype=torch.float64)
    U[:2] = U[:2].round()
    return BOUNDS[0, :d] + (BOUNDS[1, :d] - BOUNDS[0, :d]) * U


def data(n: int, d: int, noise: str, m: int = 1, seed: int = 0) -> tuple[Any, Any, Any]:
    X = points(n, d, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    wave = (2.0 * X.sum(-1, keepdim=True) + torch.arange(m)).sin()
    Y = 0.7 + wave + 0.3 * torch.randn(n, m, generator=generator, dtype=torch.float64)
    Yvar = 0.1 + torch.rand(n, m, generator=generator, dtype=torch.float64)
    return X, Y, None if noise == "learned" else Yvar


def build(d: int, kernel: Kernel | None, noise: str, m: int = 1, n: int = 15, **kw: Any) -> Any:
    """A model with unusual hyperparameters, and its data."""
    X, Y, Yvar = data(n, d, noise, m)
    batch = Size([m] if m > 1 else [])
    likelihood = None if noise == "known" else GaussianLikelihood(batch_shape=batch)
    bounds = BOUNDS[:, :d]
    kw = {"grid_size": SIZES[d], **kw}
    model = WISKI(
        X[:5],
        Y[:5],
        None if Yvar is None else Yvar[:5],
        bounds=bounds,
        covar_module=copy.deepcopy(kernel),
        likelihood=likelihood,
        **{**RAW, **kw},
    )
    model.observe(X[5:], Y[5:], None if Yvar is None else Yvar[5:])
    generator = torch.Generator().manual_seed(2)
    for p in model.parameters():
        p.data.add_(0.5 * torch.rand(p.shape, generator=generator, dtype=p.dtype))
    return model, X, Y, Yvar
