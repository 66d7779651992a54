"""Maximisers of functions drawn from posterior processes, and of posterior means [MATHS 12.3]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Size, Tensor

from acquisitions.ascent import climb
from acquisitions.domain import Domain
from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.mathematics.posterior.process import Path, PosteriorProcess

__all__ = ["Draws", "MeanFunction", "candidates", "maximised"]

SPREAD, LOCAL = 500, 500
"""Candidates over the whole box, and about points that were good."""
STEPS = (0.05, 0.2)
"""Standard deviations of local candidates, in widths of the box."""
MOVING = 4.0
"""Inputs of a local candidate that move, on average, where there are more."""
SHORTLIST = 4
"""Candidates considered for each that is climbed from."""
SAME_PEAK = 0.5
"""Distance, in lengthscales, within which two candidates are taken to be on one peak."""


@dataclass(frozen=True)
class Draws:
    """Functions drawn from processes, in transformed units of the outcome.

    Attributes:
        model: The surrogate, which transforms points.
        paths: Functions drawn from each process.
        counts: Number of functions in each.
    """

    model: BoTorchModel
    paths: tuple[Path, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(
        cls, model: BoTorchModel, processes: Sequence[PosteriorProcess], counts: Sequence[int]
    ) -> Draws:
        """Draw so many functions from each process."""
        used = [(p, count) for p, count in zip(processes, counts, strict=True) if count]
        with torch.no_grad():
            paths = tuple(process.path(Size([count])) for process, count in used)
        return cls(model, paths, tuple(count for _, count in used))

    @property
    def size(self) -> int:
        """The number of functions."""
        return sum(self.counts)

    def __call__(self, X: Tensor) -> Tensor:
        """All functions at raw points ``P x d``, or each at its own, ``S x k x d``: ``S x P``."""
        Z = self.model.transformed(X)
        if X.ndim == 2:
            return torch.cat([path(Z).squeeze(-2) for path in self.paths])
        own = Z.split(self.counts)
        return torch.cat([path(z).squeeze(-2) for path, z in zip(self.paths, own, strict=True)])


@dataclass(frozen=True)
class MeanFunction:
    """The weighted mean of the means of processes, as a single function; see `Draws`."""

    model: BoTorchModel
    processes: Sequence[PosteriorProcess]
    weights: Sequence[float]
    size: int = 1

    def __call__(self, X: Tensor) -> Tensor:
        """Values at raw points ``P x d``, or ``1 x P x d``: ``1 x P``."""
        Z = self.model.transformed(X if X.ndim == 2 else X.squeeze(0))
        pairs = zip(self.processes, self.weights, strict=True)
        return torch.stack([weight * process.at(Z).mean for process, weight in pairs]).sum(0)


@torch.no_grad()
def candidates(domain: Domain, near: Tensor, seed: int | None = None) -> Tensor:
    """Points of the box, and perturbations of good points, ``P x d``.

    Args:
        domain: The feasible set.
        near: Good feasible points, ``n' x d``; they are among the candidates.
        seed: Seed of the points over the box; by default torch's global generator gives it.
    """
    if not len(near):
        return domain.spread(SPREAD + LOCAL, seed)
    X = domain.spread(SPREAD, seed)
    about = near.repeat(-(-LOCAL // len(near)), 1)[:LOCAL]
    steps = torch.tensor(STEPS).to(about)[torch.randint(len(STEPS), (len(about), 1))]
    moving = torch.rand_like(about) < min(1.0, MOVING / domain.dim)
    one = torch.randint(domain.dim, (len(about), 1), device=moving.device)
    moving = moving.scatter(1, one, True)
    return torch.cat([X, domain.perturbed(about, steps, moving), near])


@torch.no_grad()
def maximised(
    functions: Callable[[Tensor], Tensor],
    X: Tensor,
    domain: Domain,
    lengths: Tensor,
    starts: int = 4,
    evaluations: int = 12,
) -> tuple[Tensor, Tensor]:
    """The maximiser of each function, ``S x d``, and its values, ``S``.

    All functions are evaluated at all candidates, and climbed from the best of each, different
    peaks first.

    Args:
        functions: `Draws` or a `MeanFunction`.
        X: Feasible candidates, ``P x d``.
        domain: The feasible set.
        lengths: Distances over which functions vary, in raw units, ``d``.
        starts: Candidates that each function is climbed from.
        evaluations: Evaluations of each climb.
    """
    best = functions(X).topk(min(SHORTLIST * starts, len(X)), dim=-1).indices
    first = _apart(X[best] / lengths)[:, :starts]
    found, values = climb(functions, X[best.gather(1, first)], domain, evaluations)
    top = values.argmax(-1)
    rows = torch.arange(len(found), device=found.device)
    return found[rows, top], values[rows, top]


def _apart(X: Tensor) -> Tensor:
    """The order of points ``S x k x d``, best first, with those near a better one last."""
    near = torch.cdist(X, X) < SAME_PEAK
    later = torch.zeros_like(near[..., 0])
    for i in range(1, X.shape[1]):
        later[:, i] = (near[:, i, :i] & ~later[:, :i]).any(-1)
    return later.long().argsort(dim=-1, stable=True)
