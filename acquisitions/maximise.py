"""Maximisers of functions drawn from posterior processes, and of posterior means [MATHS 12.3]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Size, Tensor

from acquisitions.ascent import alternate, climb
from acquisitions.domain import Domain
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.mathematics.linalg import chol_psd, with_jitter
from bo_stream.mathematics.process import FeaturePath, Path, PosteriorProcess
from bo_stream.mathematics.sines import Basis, grid_maximisers

__all__ = ["Draws", "MeanFunction", "SineFunctions", "candidates", "drawn_at", "maximised"]

SPREAD, LOCAL = 500, 500
"""Candidates over the whole box, and about points that were good."""
STEPS = (0.05, 0.2)
"""Standard deviations of local candidates, in widths of the box."""
MOVING = 4.0
"""Inputs of a local candidate that move, on average, where there are more."""
PER_AXIS = {1: 1000, 2: 160, 3: 40}
"""Points along each axis of the grid that functions on sine features are evaluated on. With 28 in
place of 40, maxima of draws for Rastrigin were missed by .05 of the deviation of outcomes."""
SHORTLIST = 4
"""Candidates considered for each that is climbed from."""
SAME_PEAK = 0.5
"""Distance, in lengthscales, within which two candidates are taken to be on one peak."""
JITTER = 1e-8
"""Added to the diagonal of the covariance of candidates, of which some nearly coincide: a share."""


@dataclass(frozen=True)
class Draws:
    """Functions drawn from processes, in transformed units of the outcome.

    Attributes:
        model: The surrogate, which transforms points.
        paths: Functions drawn from each process.
        counts: Number of functions in each.
    """

    model: GaussianModel
    paths: tuple[Path, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(
        cls, model: GaussianModel, processes: Sequence[PosteriorProcess], counts: Sequence[int]
    ) -> Draws:
        """Draw so many functions from each process."""
        used = [(p, count) for p, count in zip(processes, counts, strict=True) if count]
        with torch.no_grad():
            paths = tuple(process.path(Size([count])) for process, count in used)
        return cls(model, paths, tuple(count for _, count in used))

    def on_sines(self, domain: Domain) -> SineFunctions | None:
        """The same functions over a box, if all are on the same sine features of few inputs."""
        return SineFunctions.of(self.model, self.paths, [1.0] * len(self.paths), domain)

    def __call__(self, X: Tensor) -> Tensor:
        """All functions at raw points ``P x d``, or each at its own, ``S x k x d``: ``S x P``."""
        Z = self.model.transformed(X)
        if X.ndim == 2:
            return torch.cat([path(Z).squeeze(-2) for path in self.paths])
        parts = Z.split(self.counts)
        return torch.cat([path(z).squeeze(-2) for path, z in zip(self.paths, parts, strict=True)])


@dataclass(frozen=True)
class MeanFunction:
    """The weighted mean of the means of processes, as a single function; see `Draws`."""

    model: GaussianModel
    processes: Sequence[PosteriorProcess]
    weights: Sequence[float]

    def on_sines(self, domain: Domain) -> SineFunctions | None:
        """As `Draws.on_sines`."""
        paths = [process.mean_function() for process in self.processes]
        sines = SineFunctions.of(self.model, paths, self.weights, domain)
        return None if sines is None else replace(sines, weights=sines.weights.sum(0, keepdim=True))

    def __call__(self, X: Tensor) -> Tensor:
        """Values at raw points ``P x d``, or ``1 x P x d``: ``1 x P``."""
        Z = self.model.transformed(X if X.ndim == 2 else X.squeeze(0))
        pairs = zip(self.processes, self.weights, strict=True)
        return torch.stack([weight * process.at(Z).mean for process, weight in pairs]).sum(0)


@dataclass(frozen=True)
class SineFunctions:
    """Functions on sine features, without constant means, which move no maximiser.

    Attributes:
        model: The surrogate, which transforms points.
        basis: The features, of at most three inputs.
        weights: Coefficients, ``S x f``.
        domain: The box.
    """

    model: GaussianModel
    basis: Basis
    weights: Tensor
    domain: Domain

    @classmethod
    def of(
        cls, model: GaussianModel, paths: Sequence[Path], scales: Sequence[float], domain: Domain
    ) -> SineFunctions | None:
        """Scaled paths as such functions; None where they are not, or not over the whole box."""
        if not (domain.is_box and domain.dim in PER_AXIS):
            return None
        if not all(isinstance(p, FeaturePath) and isinstance(p.basis, Basis) for p in paths):
            return None
        parts = [cast(FeaturePath, path) for path in paths]
        bases, box = [cast(Basis, part.basis) for part in parts], model.transformed(domain.bounds)
        basis = bases[0]
        whole = torch.equal(box[0], basis.low) and torch.allclose(box[1], basis.low + basis.width)
        if not whole or not all(basis.same_as(other) for other in bases):
            return None
        scaled = zip(parts, scales, strict=True)
        weights = [scale * part.weights.flatten(0, -2) for part, scale in scaled]
        return cls(model, basis, torch.cat(weights), domain)

    def maximisers(self, steps: int, starts: int = 1) -> Tensor:
        """The maximiser of each function, ``S x d``, raw.

        Args:
            steps: Newton steps.
            starts: Points of the grid that each function is climbed from.
        """
        per_axis = PER_AXIS[self.domain.dim]
        Z, _ = grid_maximisers(
            self.basis, self.weights, per_axis=per_axis, steps=steps, starts=starts
        )
        return self.domain.clipped(self.model._raw_inputs(Z))


@torch.no_grad()
def drawn_at(
    X: Tensor,
    model: GaussianModel,
    processes: Sequence[PosteriorProcess],
    counts: Sequence[int],
) -> Tensor:
    """Values of functions that are drawn from processes at raw points only, ``S x P``: O(P^3).

    For kernels without random features, such as those over categories.

    Args:
        X: ``P x d``.
        model: The surrogate, which transforms points.
        processes: Of one output.
        counts: Number of functions drawn from each.
    """
    Z, values = model.transformed(X), list[Tensor]()
    for process, count in zip(processes, counts, strict=True):
        joint = process.at(Z)
        L = _root(joint.covariance(joint)[0])
        normal = torch.randn(count, len(Z), dtype=L.dtype, device=L.device)
        values.append(joint.mean + normal @ L.mT)
    return torch.cat(values)


def _root(C: Tensor) -> Tensor:
    """A root of a covariance ``P x P``; of its positive part where that is all it has but rounding
    errors.
    """
    try:
        return chol_psd(with_jitter(C, JITTER), repair=100.0 * JITTER)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = torch.linalg.eigh(C)
        return vectors * values.clamp_min(0.0).sqrt()


@torch.no_grad()
def candidates(domain: Domain, near: Tensor) -> Tensor:
    """Points of the box, and perturbations of good points, ``P x d``.

    Args:
        domain: The feasible set.
        near: Good feasible points, ``n' x d``; they are among the candidates.
    """
    if not len(near):
        return domain.spread(SPREAD + LOCAL)
    X = domain.spread(SPREAD)
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
        starts: Candidates that each function is climbed from; a quarter of them to the end.
        evaluations: Evaluations of a climb to the end, after a third of them from all starts.
    """
    best = functions(X).topk(min(SHORTLIST * starts, len(X)), dim=-1).indices
    first = _apart(X[best] / lengths)[:, :starts]
    found, values = climb(functions, X[best.gather(1, first)], domain, evaluations // 3)
    ahead = values.topk(-(-starts // 4), dim=-1).indices
    found, values = alternate(functions, _rows(found, ahead), domain, evaluations)
    top = values.argmax(-1, keepdim=True)
    return _rows(found, top).squeeze(1), values.gather(1, top).squeeze(1)


def _rows(X: Tensor, places: Tensor) -> Tensor:
    """Rows of ``S x k x d`` points by places ``S x j``."""
    return X.gather(1, places.unsqueeze(-1).expand(-1, -1, X.shape[-1]))


def _apart(X: Tensor) -> Tensor:
    """The order of points ``S x k x d``, best first, with those near a better one last."""
    near = torch.cdist(X, X) < SAME_PEAK
    later = torch.zeros_like(near[..., 0])
    for i in range(1, X.shape[1]):
        later[:, i] = (near[:, i, :i] & ~later[:, :i]).any(-1)
    return later.long().argsort(dim=-1, stable=True)
