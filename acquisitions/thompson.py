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

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from acquisitions.domain import Domain, LinearInequality
from acquisitions.maximise import Draws, MeanFunction, candidates, drawn_at, maximised
from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import BoundsError, InputError, ShapeError, UnsupportedError
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["ThompsonSampling"]

OVERVIEW = 2000
"""Points over the box from which the maximum of the mean is climbed."""
WITHIN_REGION = 0.3
"""Share of the points that are not uniform that are drawn in the region, where there is one. Of 22
runs on noisy functions of three inputs with 20,000 to 25,000 trials, 11 ended with less regret than
without (in the median .30 of it), 8 with more (1.28), 3 with the same."""
CHUNK = 8192
"""Rows of a pool evaluated at a time."""
JOINTLY = 2000
"""Rows of a pool, at random, among which the best are chosen by draws that are joint."""


class ThompsonSampling:
    """Thompson sampling over a box or a pool, for one outcome, which is maximised.

    A batch has maximisers of up to ``samples`` functions, then these again in turn, each moved a
    little, and a share of uniform points. The share is needed: a surrogate that is confidently
    wrong about a region would never look there again. Running trials need no attention, because
    functions are drawn afresh. Points come from torch's global generator.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one, of one output.
        bounds: ``2 x d`` raw bounds; the model's by default.
        samples: Number of functions drawn at most.
        explore: Share of uniform points; in small batches each point is uniform by chance.
        jitter: Standard deviation of the move of a maximiser that is used again, in lengthscales
            of the kernel (at most a width of the box; in widths where there is none).
        near: ``n' x d`` raw points where high values are expected, such as the best trials: some
            candidates are drawn about them.
        inequality_constraints: As in BoTorch's `optimize_acqf`: tuples ``(indices, coefficients,
            rhs)`` for ``sum_i coefficients_i x_(indices_i) >= rhs``.
        choices: Allowed values of discrete inputs, by index.
        ensemble: Kernels to divide the functions among, in proportion to their weights, drawn for
            the same surrogate; the recommendation is by their weighted mean.
        region: A point and radii, raw, ``2 x d``: a share of the points is drawn in the ellipsoid
            about it, at distances that are uniform. So a polynomial fitted there becomes more exact
            (MATHS 12.4), and one in half of the region can contradict it.
        domain: The feasible set, in place of bounds, constraints and choices.

    Attributes:
        ahead: Share of all observations that may be chosen at once, before those chosen are
            observed.

    Raises:
        UnsupportedError: for another model, or several outputs.
        BoundsError: without bounds, or for bounds beyond the model's.
        ShapeError, InputError: for constraints, choices or numbers that make no sense.

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
        inequality_constraints: Sequence[LinearInequality] = (),
        choices: Mapping[int, Tensor] | None = None,
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
        box = _checked_bounds(model, bounds if domain is None else domain.bounds)
        self.domain = domain or Domain.of(box, inequality_constraints, choices)
        self._like = box
        self._lengths = _lengths(model, self.domain)
        self._near = self._usable(near)
        self._region = None if region is None else region.detach().to(self.domain.bounds)

    @torch.no_grad()
    def propose(self, q: int) -> Tensor:
        """The next trials, ``q x d``, raw, in random order.

        Points differ from each other, unless discrete inputs have fewer than q combinations.
        """
        wanted = not_uniform = self._shared(q)
        X = self.domain.bounds.new_empty(0, self.domain.dim)
        if self._region is not None:
            within = int(WITHIN_REGION * wanted + float(torch.rand(())))
            X, wanted = self._about(self._region, within), wanted - within
        if wanted:
            optima = self._maximisers(min(self.samples, wanted))
            self._near = torch.cat([optima, self._near])[: 2 * self.samples]
            X = torch.cat([X, self._repeated(optima, wanted)])
        X = torch.cat([X, self.domain.uniform(q - not_uniform)])
        return self._distinct(X)[torch.randperm(q)].to(self._like)

    @torch.no_grad()
    def recommend(self) -> Tensor:
        """The maximiser of the posterior mean, ``d``, raw. It leaves torch's generator alone."""
        processes, weights = self._processes()
        mean = MeanFunction(self.model, processes, weights)
        sines = mean.on_sines(self.domain)
        if sines is not None:
            return sines.maximisers(steps=12, starts=24)[0].to(self._like)
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
        wanted, taken, chosen = self._shared(q), set[int](), list[int]()
        if wanted:
            draws, rows = self._draws(min(self.samples, wanted)), torch.arange(len(points))
            if isinstance(draws, Draws):
                values = torch.cat([draws(part) for part in points.double().split(CHUNK)], -1)
            else:
                rows = torch.randperm(len(points))[:JOINTLY]
                values, wanted = draws(points[rows].double()), min(wanted, len(rows))
            best = rows.to(values.device)[values.topk(wanted, dim=-1).indices]
            orders = [iter(row) for row in best.tolist()]
            while len(chosen) < wanted:
                row = next(i for i in orders[len(chosen) % len(orders)] if i not in taken)
                taken.add(row)
                chosen.append(row)
        free = [i for i in torch.randperm(len(points)).tolist() if i not in taken]
        rows = torch.tensor(chosen + free[: q - wanted], device=points.device)
        return rows[torch.randperm(q)]

    # -- parts of a batch ------------------------------------------------------------------------

    def _shared(self, q: int) -> int:
        """How many of q trials are maximisers; the others are uniform."""
        if q < 1:
            raise InputError("q >= 1", f"{q}", "Ask for at least one trial.")
        return q - min(q, int(self.explore * q + float(torch.rand(()))))

    def _processes(self) -> tuple[list[PosteriorProcess], list[float]]:
        """The posterior process of each kernel, and its weight."""
        if self.ensemble is None:
            return [self.model.process()], [1.0]
        model = cast(StreamingGP, self.model)
        return self.ensemble.processes(model), self.ensemble.weights.tolist()

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
        sines = draws.on_sines(self.domain) if isinstance(draws, Draws) else None
        if sines is not None:
            return sines.maximisers(steps=2)
        X = candidates(self.domain, self._near)
        if not isinstance(draws, Draws):
            X = X.unique(dim=0)
            return X[draws(X).argmax(-1)]
        return maximised(draws, X, self.domain, self._lengths)[0]

    def _repeated(self, optima: Tensor, q: int) -> Tensor:
        """Maximisers in random order, then again in turn, moved a little: ``q x d``."""
        X = optima[torch.randperm(len(optima))].repeat(-(-q // len(optima)), 1)[:q]
        return torch.cat([X[: len(optima)], self._moved(X[len(optima) :])])

    def _about(self, region: Tensor, count: int) -> Tensor:
        """Feasible points of an ellipsoid, at distances that are uniform, ``count x d``."""
        centre, radii = region
        P = torch.randn(count, len(centre)).to(region)
        distances = torch.rand(count, 1).to(region)
        P = radii * P * distances / P.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        return self.domain.moved(centre.expand_as(P), P * self.domain.continuous)

    def _moved(self, X: Tensor) -> Tensor:
        """Points about others."""
        P = torch.randn_like(X) * self.jitter * self._lengths * self.domain.continuous
        return self.domain.moved(X, P)

    def _distinct(self, X: Tensor) -> Tensor:
        """The batch with equal points moved apart, or replaced by uniform ones."""
        again = self.domain.repeats(X, X[:0])
        if not bool(again.any()):
            return X
        X = X.masked_scatter(again.unsqueeze(-1), self._moved(X[again]))
        return self.domain.distinct(X, X[:0])

    def _usable(self, near: Tensor | None) -> Tensor:
        """Those of some raw points that are feasible."""
        domain = self.domain
        if near is None:
            return domain.bounds.new_empty(0, domain.dim)
        X = near.detach().to(domain.bounds).reshape(-1, domain.dim)
        return X[domain.contains(X)]


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


def _checked_bounds(model: GaussianModel, bounds: Tensor | None) -> Tensor:
    box = model.bounds if bounds is None else bounds
    if box is None:
        raise BoundsError("bounds `2 x d`", "none", "Give `bounds`, or build the model with them.")
    width = model.transformed(box)[1] - model.transformed(box)[0]
    if box.shape[0] != 2 or not bool((box[1] > box[0]).all() and width.isfinite().all()):
        raise BoundsError(
            "lower bounds below upper ones, `2 x d`", f"{box.tolist()}", "Correct them."
        )
    return box


def _lengths(model: GaussianModel, domain: Domain) -> Tensor:
    """The kernel's lengthscales in raw units, at most widths of the box: ``d``."""
    ends = model.transformed(domain.bounds)
    scale = (ends[1] - ends[0]).abs() / domain.width
    kernels = getattr(model, "covar_module", torch.nn.Module()).modules()
    for kernel in kernels:
        if isinstance(kernel, Kernel) and kernel.has_lengthscale and kernel.active_dims is None:
            length = kernel.lengthscale.detach().to(domain.bounds).flatten()
            if len(length) in (1, domain.dim):
                return torch.minimum(length / scale, domain.width)
    return domain.width
