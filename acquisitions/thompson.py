"""Thompson sampling: trials at the maximisers of functions drawn from the posterior.

A function drawn from the posterior is maximised in milliseconds, and a batch of any size costs
little more than the draws: no joint posterior of its points is needed [Thompson1933]. Draws are
exact for `WISKI` and `HSGP`, and follow Matheron's rule for other families [Wilson2020]. How they
are maximised and shared out is in MATHS 12.3. Kernels without random features, such as those over
categories, are drawn at candidates only, jointly, and the best candidate of each draw is taken.

References:
    [Thompson1933] W. R. Thompson. On the likelihood that one unknown probability exceeds another in
        view of the evidence of two samples. Biometrika 25, 1933.
    [Wilson2020] J. T. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky, M. P. Deisenroth.
        Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Size, Tensor

from acquisitions.ascent import alternate, by_autograd
from acquisitions.climb import climb
from acquisitions.domain import Domain
from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import BoundsError, InputError, ShapeError, UnsupportedError
from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.expanded import ProductFunctions
from bo_stream.mathematics.grid import ProductFeatures
from bo_stream.mathematics.kernels import shortest_lengths
from bo_stream.mathematics.linalg import with_jitter
from bo_stream.mathematics.process import FeaturePath, Path, PosteriorProcess
from bo_stream.mathematics.sines import Basis, best_on_grid
from bo_stream.surrogates.projected_wiski import ProjectedWISKI

__all__ = [
    "Draws",
    "ThompsonSampling",
    "candidates",
    "distinct_winners",
    "drawn_at",
    "maximised",
]

OVERVIEW = 2000
"""Points over the box from which the maximum of the mean is climbed."""
WITHIN_REGION = 0.3
"""Share of the points that are not uniform that are drawn in the region, where there is one. Of 22
runs on noisy functions of three inputs with 20,000 to 25,000 trials, 11 ended with less regret than
without (in the median .30 of it), 8 with more (1.28), 3 with the same."""
JOINTLY = 2000
"""Rows of a pool, at random, among which the best are chosen by draws that are joint."""
SPREAD, LOCAL = 500, 500
"""Candidates over the whole box, and about points that were good."""
STEPS = (0.05, 0.2)
"""Standard deviations of local candidates, in widths of the box."""
MOVING = 4.0
"""Inputs of a local candidate that move, on average, where there are more."""
PER_AXIS = {1: 1000, 2: 160, 3: 40}
"""Points along each axis of the grid that functions on features are evaluated on. With 28 in
place of 40, maxima of draws for Rastrigin were missed by .05 of the deviation of outcomes."""
SHORTLIST = 4
"""Candidates considered for each that is climbed from."""
PART = 256
"""Number of points at which functions are evaluated at a time, so that their features stay in the
processor's cache."""
TOLERANCE, CLOSE = 1e-5, 1e-13
"""Promised gain at which a climb ends, in transformed units of the outcome, and where functions on
features are recommended by."""
MOST = 40
"""Evaluations of functions on features in a climb."""
SAME_PEAK = 0.5
"""Distance, in lengthscales, within which two candidates are taken to be on one peak."""
JITTER = 1e-8
"""Share added to the diagonal of the covariance of candidates, of which some nearly coincide."""


class ThompsonSampling:
    """Thompson sampling over a box or a pool, for one outcome, which is maximised.

    A batch has the maximisers of up to ``samples`` functions. A larger batch repeats them in turn,
    each moved a little. A share of the points is uniform: without it, a surrogate that is
    confidently wrong about a region would never look there again. Running trials are ignored,
    because new functions are drawn at each call. Points come from torch's global generator.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one, of one output.
        bounds: ``2 x d`` raw bounds; the model's by default.
        samples: Number of functions drawn at most.
        explore: Share of uniform points; their number is rounded up or down by chance.
        jitter: Standard deviation of the move of a maximiser that is used again, in lengthscales
            of the kernel (at most a width of the box; in widths where there is none).
        near: ``n' x d`` raw points where high values are expected, such as the best trials: some
            candidates are drawn about them.
        ensemble: Kernels to divide the functions among, in proportion to their weights, drawn for
            the same surrogate; the recommendation is by their weighted mean.
        region: A point and radii, raw, ``2 x d``: a share of the points is drawn in the ellipsoid
            about it, at distances that are uniform. So a polynomial fitted there becomes more exact
            (MATHS 12.4), and one in half of the region can contradict it.
        domain: The feasible set, in place of bounds.

    Attributes:
        ahead: Share of all observations that may be chosen at once, before those chosen are
            observed.

    Raises:
        UnsupportedError: for another model, or several outputs.
        BoundsError: without bounds, or for bounds beyond the model's.
        InputError: for numbers that make no sense.

    Example:
        >>> from bo_stream import WISKI
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> thompson = ThompsonSampling(model)
        >>> thompson.propose(50).shape, thompson.recommend().shape
        (torch.Size([50, 2]), torch.Size([2]))
    """

    ahead: ClassVar[float] = 0.15

    def __init__(
        self,
        model: GaussianModel,
        bounds: Tensor | None = None,
        *,
        samples: int = 32,
        explore: float = 0.1,
        jitter: float = 0.05,
        near: Tensor | None = None,
        ensemble: KernelEnsemble | None = None,
        region: Tensor | None = None,
        domain: Domain | None = None,
    ) -> None:
        _check_model(model, ensemble)
        if samples < 1 or not 0.0 <= explore <= 1.0 or not jitter >= 0.0:
            got = f"{samples}, {explore} and {jitter}"
            raise InputError("samples >= 1, explore from 0 to 1, jitter >= 0", got, "Correct them.")
        self.model, self.ensemble = model, ensemble
        self.samples, self.explore, self.jitter = samples, explore, jitter
        box = model.bounds if bounds is None else bounds
        box = box if domain is None else domain.bounds
        if box is None:
            remedy = "Give `bounds`, or build the model with them."
            raise BoundsError("bounds `2 x d`", "none", remedy)
        model.transformed(box)  # which refuses bounds beyond the model's
        self.domain = domain or Domain.of(box)
        self._like = box
        self._lengths = _lengths(model, self.domain)
        self._near = self.domain.bounds[:0]
        if near is not None:
            X = near.detach().to(self._near).reshape(-1, self.domain.dim)
            self._near = X[self.domain.contains(X)]
        self._region = None if region is None else region.detach().to(self.domain.bounds)

    @torch.no_grad()
    def propose(self, q: int) -> Tensor:
        """The next trials, ``q x d``, raw, in random order.

        Points differ from each other, unless discrete inputs have fewer than q combinations.
        """
        wanted = not_uniform = self._shared(q)
        X = self.domain.bounds[:0]
        if self._region is not None:
            within = int(WITHIN_REGION * wanted + float(torch.rand(())))
            X, wanted = self._about(self._region, within), wanted - within
        if wanted:
            optima = self._maximisers(min(self.samples, wanted))
            self._near = torch.cat([optima, self._near])[: 2 * self.samples]
            again = torch.randperm(len(optima)).repeat(-(-wanted // len(optima)))[:wanted]
            X = torch.cat([X, optima[again]])
        X = torch.cat([X, self.domain.uniform(q - not_uniform)])
        return self._distinct(X)[torch.randperm(q)].to(self._like)

    @torch.no_grad()
    def recommend(self) -> Tensor:
        """The maximiser of the posterior mean, ``d``, raw. It leaves torch's generator alone."""
        processes, weights = self._processes()
        means = Draws(self.model, [p.mean_function() for p in processes], [1] * len(processes))
        found = means.on_grid(self.domain, starts=24, tolerance=CLOSE, mixed=weights)
        if found is not None:
            return found[0].to(self._like)

        def mean(X: Tensor) -> Tensor:
            return weights @ means(X.reshape(-1, self.domain.dim))

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            X = torch.cat([self.domain.spread(OVERVIEW), self._near])
        X, _ = maximised(mean, X, self.domain, self._lengths, starts=16, evaluations=30)
        return X[0].to(self._like)

    @torch.no_grad()
    def select(self, points: Tensor, q: int) -> Tensor:
        """Rows of a pool to try next, in random order.

        Args:
            points: The pool, ``P x d``, raw.
            q: Number of rows, at most P.

        Returns:
            ``q`` different indices.

        Raises:
            ShapeError: for fewer than q rows.
        """
        if points.ndim != 2 or not 1 <= q <= len(points):
            raise ShapeError(
                f"a pool `P x d` of at least q = {q} >= 1 rows",
                f"{tuple(points.shape)}",
                "Lower q.",
            )
        wanted, chosen = self._shared(q), list[int]()
        if wanted:
            draws, rows = self._draws(min(self.samples, wanted)), torch.arange(len(points))
            if isinstance(draws, Draws):
                values = draws(points.double())
            else:
                rows = torch.randperm(len(points))[:JOINTLY]
                values, wanted = draws(points[rows].double()), min(wanted, len(rows))
            chosen = rows[distinct_winners(values.mT, wanted)].tolist()
        order = dict.fromkeys([*chosen, *torch.randperm(len(points)).tolist()])
        rows = torch.tensor([*order][:q], device=points.device)
        return rows[torch.randperm(q)]

    # -- parts of a batch ------------------------------------------------------------------------

    def _shared(self, q: int) -> int:
        """How many of q trials are maximisers; the others are uniform."""
        if q < 1:
            raise InputError("q >= 1", f"{q}", "Ask for at least one trial.")
        return q - min(q, int(self.explore * q + float(torch.rand(()))))

    def _processes(self) -> tuple[list[PosteriorProcess], Tensor]:
        """The posterior process of each kernel, and their weights, ``1 x kernels``."""
        if self.ensemble is None:
            return [self.model.process()], self.domain.bounds.new_ones(1, 1)
        model = cast(StreamingGP, self.model)
        return self.ensemble.processes(model), self.ensemble.weights.unsqueeze(0)

    def _draws(self, samples: int) -> Draws | Callable[[Tensor], Tensor]:
        """Functions of raw points; without random features they may be called only once."""
        processes, _ = self._processes()
        counts = [samples] if self.ensemble is None else self.ensemble.counts(samples)
        try:
            return Draws.of(self.model, processes, counts)
        except UnsupportedError:
            return partial(drawn_at, model=self.model, processes=processes, counts=counts)

    def _maximisers(self, samples: int) -> Tensor:
        """The maximiser of each function, ``S x d``."""
        draws = self._draws(samples)
        if not isinstance(draws, Draws):
            X = candidates(self.domain, self._near).unique(dim=0)
            return X[draws(X).argmax(-1)]
        found = draws.on_grid(self.domain)
        if found is not None:
            return found
        return maximised(draws, candidates(self.domain, self._near), self.domain, self._lengths)[0]

    def _about(self, region: Tensor, count: int) -> Tensor:
        """Feasible points of an ellipsoid, at distances that are uniform, ``count x d``."""
        centre, radii = region
        P = torch.randn(count, len(centre)).to(region)
        distances = torch.rand(count, 1).to(region)
        P = radii * P * distances / P.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        return self.domain.moved(centre.expand_as(P), P * self.domain.continuous)

    def _distinct(self, X: Tensor) -> Tensor:
        """The batch with repeated points moved a little, or else replaced by uniform ones."""
        again = self.domain.repeats(X, X[:0])
        if not bool(again.any()):
            return X
        P = torch.randn_like(X) * self.jitter * self._lengths * self.domain.continuous
        return self.domain.distinct(self.domain.moved(X, P * again.unsqueeze(-1)), X[:0])


def _check_model(model: GaussianModel, ensemble: KernelEnsemble | None) -> None:
    if not isinstance(model, GaussianModel):
        raise UnsupportedError(
            "a surrogate of bo_stream",
            type(model).__name__,
            "Use botorch's PathwiseThompsonSampling for other models.",
        )
    if model.num_outputs != 1 or model.batch_shape:
        raise UnsupportedError(
            "an unbatched model of one output",
            f"{model.num_outputs} outputs, batch shape {tuple(model.batch_shape)}",
            "Select one with `subset_output`.",
        )
    if ensemble is not None and not ensemble.serves(model):
        raise UnsupportedError(
            "no ensemble, or one of a surrogate whose state is a sum over observations, or these",
            f"an ensemble and a {type(model).__name__}",
            "Leave the ensemble out.",
        )


def _lengths(model: GaussianModel, domain: Domain) -> Tensor:
    """The kernel's lengthscales in raw units, at most widths of the box: ``d``."""
    kernel = getattr(model, "covar_module", None)
    if kernel is None or isinstance(model, ProjectedWISKI):  # a kernel of other inputs
        return domain.width
    ends = model.transformed(domain.bounds)
    scale = (ends[1] - ends[0]).abs() / domain.width
    lengths = torch.from_numpy(shortest_lengths(kernel, domain.dim)).to(scale)
    return torch.minimum(lengths / scale, domain.width)


# -- functions and their maximisers --------------------------------------------------------------


@dataclass(frozen=True)
class Draws:
    """Functions drawn from processes, in transformed units of the outcome.

    Attributes:
        model: The surrogate, which transforms points.
        paths: Functions drawn from each process.
        counts: Number of functions in each.
    """

    model: GaussianModel
    paths: Sequence[Path]
    counts: Sequence[int]

    @classmethod
    def of(
        cls, model: GaussianModel, processes: Sequence[PosteriorProcess], counts: Sequence[int]
    ) -> Draws:
        """Draw so many functions from each process."""
        used = [(p, count) for p, count in zip(processes, counts, strict=True) if count]
        with torch.no_grad():
            paths = [process.path(Size([count])) for process, count in used]
        return cls(model, paths, [count for _, count in used])

    def __call__(self, X: Tensor) -> Tensor:
        """All functions at raw points ``P x d``, or each at its own, ``S x k x d``: ``S x P``."""
        if X.ndim == 2 and len(X) > PART:
            return torch.cat([self(part) for part in X.split(PART)], -1)
        Z = self.model.transformed(X)
        parts = [Z] * len(self.paths) if X.ndim == 2 else Z.split(list(self.counts))
        values = [path(z) for path, z in zip(self.paths, parts, strict=True)]
        return torch.cat([value.flatten(0, -2) for value in values])

    def on_grid(
        self,
        domain: Domain,
        starts: int = 1,
        tolerance: float = TOLERANCE,
        mixed: Tensor | None = None,
    ) -> Tensor | None:
        """Maximisers ``S x d``, raw, of functions on features that are products over few inputs.

        Args:
            domain: Where to look; None is returned unless it is a box.
            starts: Points of a grid that each function is climbed from.
            tolerance: Promised gain at which a climb ends.
            mixed: Weights of sums of the functions to maximise instead, ``S x functions``; None is
                returned if these are on different features.
        """
        paths = [path for path in self.paths if isinstance(path, FeaturePath)]
        bases = [path.basis for path in paths if isinstance(path.basis, Basis | ProductFeatures)]
        if not (domain.is_box and domain.dim in PER_AXIS and len(bases) == len(self.paths)):
            return None
        basis, functions = bases[0], bases[0].functions()
        apart = len(bases) > 1 and isinstance(basis, ProductFeatures)  # each has its own
        if not isinstance(functions, ProductFunctions) or (apart and mixed is not None):
            return None
        if apart:
            each = [
                Draws(self.model, [path], [1]).on_grid(domain, starts, tolerance) for path in paths
            ]
            return torch.cat(cast(list[Tensor], each))
        ends = self.model.transformed(domain.bounds).sort(0).values
        weights = torch.cat([path.weights.flatten(0, -2) for path in paths])
        weights = weights if mixed is None else mixed @ weights
        W = weights.numpy(force=True)

        def values(X: Array, of: np.ndarray) -> tuple[Array, Array]:
            rows, pull = functions(X)
            return np.einsum("lf,lf->l", rows, W[of]), pull(W[of])

        grid = best_on_grid(basis, weights, ends, PER_AXIS[domain.dim], starts).flatten(0, 1)
        lengths = (
            basis.lengthscales if isinstance(basis, Basis) else ends.new_tensor(basis.grid.step)
        )
        unit, of = lengths.minimum(ends[1] - ends[0]), np.arange(len(W)).repeat(starts)
        first, box, units = (t.numpy(force=True) for t in (grid, ends, unit))
        X, f = climb(values, first, box, units, MOST, tolerance, of=of)
        best = f.reshape(len(W), starts).argmax(1) + starts * np.arange(len(W))
        return domain.clipped(self.model._raw_inputs(torch.from_numpy(X[best]).to(grid)))


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
        R = _root(joint.covariance(joint)[0])
        normal = torch.randn(count, len(Z), dtype=R.dtype, device=R.device)
        values.append(joint.mean + normal @ R.mT)
    return torch.cat(values)


def _root(C: Tensor) -> Tensor:
    """A root of a covariance; of its positive part where rounding errors outweigh the jitter, as
    with a prior variance 1e10 times as large.
    """
    try:
        return torch.linalg.cholesky(with_jitter(C, JITTER))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        D, V = torch.linalg.eigh(C)
        return V * D.clamp_min(0.0).sqrt()


@torch.no_grad()
def candidates(domain: Domain, near: Tensor, deviations: Sequence[float] = STEPS) -> Tensor:
    """Points of the box, perturbations of good points, and these, ``P x d``.

    Args:
        domain: The feasible set.
        near: Good feasible points, ``n' x d``; they are the last of the candidates.
        deviations: Standard deviations of perturbations, in widths of the box.
    """
    if not len(near):
        return domain.spread(SPREAD + LOCAL)
    X = domain.spread(SPREAD)
    about = near.repeat(-(-LOCAL // len(near)), 1)[:LOCAL]
    steps = torch.tensor(deviations).to(about)[torch.randint(len(deviations), (len(about), 1))]
    return torch.cat([X, domain.perturbed(about, steps, min(1.0, MOVING / domain.dim)), near])


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
        functions: Values ``S x P`` of points ``P x d``, or of ``S x k x d``, those of each.
        X: Feasible candidates, ``P x d``.
        domain: The feasible set.
        lengths: Distances over which functions vary, in raw units, ``d``.
        starts: Candidates that each function is climbed from.
        evaluations: Evaluations of a climb.
    """
    values, starts = functions(X), starts // 2 if domain.choices else starts
    best = values.topk(min(SHORTLIST * starts, len(X)), dim=-1).indices
    first = best.gather(1, _apart(X[best] / lengths)[:, :starts])
    each = torch.arange(len(first), device=X.device)
    of = each.repeat_interleave(first.shape[1])

    def value(X: Tensor, of: Tensor) -> Tensor:
        """Each function at its own points, of which there are not equally many."""
        counts = of.bincount(minlength=len(first))
        slots = torch.arange(len(X), device=X.device) - (counts.cumsum(0) - counts)[of]
        padded = X[:1].detach().repeat(len(first), int(counts.max()), 1)
        padded[of, slots] = X
        return functions(padded)[of, slots]

    climbs = lengths, evaluations, TOLERANCE, of
    found, reached = alternate(
        value, by_autograd(value, X), X[first].flatten(0, 1), domain, *climbs
    )
    most, place = reached.view(len(first), -1).max(-1)
    return found.view(*first.shape, -1)[each, place], most


def _apart(X: Tensor) -> Tensor:
    """The order of points ``S x k x d``, best first, with those near a better one last."""
    near = torch.cdist(X, X) < SAME_PEAK
    later = torch.zeros_like(near[..., 0])
    for i in range(1, X.shape[1]):
        later[:, i] = (near[:, i, :i] & ~later[:, :i]).any(-1)
    return later.long().argsort(dim=-1, stable=True)


def distinct_winners(values: Tensor, q: int) -> list[int]:
    """Rows of ``n x s`` values of samples, which take in turn their best that is not taken yet."""
    best = values.topk(min(q, len(values)), 0).indices.T.tolist()
    orders, taken = [iter(column) for column in best], dict[int, None]()
    for i in range(q):
        taken[next(row for row in orders[i % len(orders)] if row not in taken)] = None
    return list(taken)
