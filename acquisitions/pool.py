"""Choosing points of a pool: greedily by an acquisition function, or without look-ahead.

Without look-ahead are the largest variance, random choice, and the WISKI study's policy for
surrogates that cannot fantasize: candidates near the most uncertain test points [Stanton2021]. They
are baselines for integrated variance.

Selection is greedy. For `NIPV` and `MaxVariance`, every candidate is scored at q = 1 in chunks, and
each pick borders a factor by one row, so that the batch is never scored again [MATHS 10]. Any other
acquisition function is maximised one point at a time with the earlier picks pending, as in
BoTorch's `optimize_acqf_discrete`.

References:
    [MacKay1992] D. J. C. MacKay. Information-based objective functions for active data selection.
        Neural Computation 4(4), 1992.
    [Stanton2021] S. Stanton, W. J. Maddox, I. Delbridge, A. G. Wilson. Kernel Interpolation for
        Scalable Online Gaussian Processes. AISTATS 2021.
"""

from __future__ import annotations

from typing import cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.transforms import concatenate_pending_points, t_batch_mode_transform
from torch import Tensor

from acquisitions.nipv import NIPV
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import InputError, NoiseError, ShapeError, UnsupportedError
from bo_stream.mathematics.joint import Integral, Joint
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["MaxVariance", "Random", "near_most_uncertain", "select_from_pool"]

SMALLEST = 1e-12
"""A noiseless candidate with less than this share of the largest variance counts as known."""


class MaxVariance(AcquisitionFunction):
    """Entropy of the candidates' noisy observations; at q = 1 it increases with the variance.

    The value is ``1/2 log det (cov(X, X) + D)``, summed over outputs, in transformed units. For
    several points it is MacKay's total information gain [MacKay1992], which spreads them.
    Candidates have the typical noise. An evaluation costs one joint posterior and a ``q x q``
    Cholesky factor.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one.
        X_pending: ``n' x d`` points under evaluation.
    """

    def __init__(self, model: GaussianModel, X_pending: Tensor | None = None) -> None:
        if not isinstance(model, GaussianModel):
            raise UnsupportedError(
                "a surrogate of bo_stream",
                type(model).__name__,
                "Use botorch's qPosteriorStandardDeviation for other models.",
            )
        super().__init__(model=model)
        self.set_X_pending(X_pending)

    def noise(self, X: Tensor) -> Tensor:
        """Transformed noise variances of future outcomes at ``... x q x d`` raw points, ``m x
        q``.
        """
        model = cast(GaussianModel, self.model)
        return model.typical_noise().unsqueeze(-1).expand(model.num_outputs, X.shape[-2])

    @concatenate_pending_points
    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x q x d`` raw points: ``batch_shape``."""
        model = cast(GaussianModel, self.model)
        f = model.process().at(model.transformed(X))
        L = chol_psd(f.covariance(f) + torch.diag_embed(self.noise(X)))
        return L.diagonal(dim1=-2, dim2=-1).log().sum((-1, -2)).to(X)


class Random(AcquisitionFunction):
    """A new uniform number for each set of candidates and call, with zero gradient.

    Under `optimize_acqf` the result is one of the raw samples; over a pool it is a random choice.
    Draws come from torch's global generator.

    Args:
        model: Any model; only its output shape matters to BoTorch.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model=model)
        self.set_X_pending(None)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Uniform numbers, ``batch_shape``."""
        return torch.rand(X.shape[:-2], dtype=X.dtype).to(X.device) + 0.0 * X.sum((-1, -2))


def near_most_uncertain(model: Model, test_X: Tensor, pool: Tensor, q: int) -> Tensor:
    """The pool's points nearest to the q most uncertain test points; no point is chosen twice.

    This is the policy of the WISKI study for surrogates without fantasies [Stanton2021]. It uses
    marginal variances. O(P) variances, and O(q N d) for a pool of N.

    Args:
        model: Any BoTorch model; variances of several outputs are summed.
        test_X: ``P x d`` raw test points.
        pool: ``N x d`` raw candidates.
        q: Number of points, at most P and N.

    Returns:
        ``q`` indices into the pool, by decreasing uncertainty; ties go to the lowest index.

    Raises:
        ShapeError: if there are fewer test points or candidates than q.
    """
    if q > min(len(test_X), len(pool)):
        raise ShapeError(
            f"at least {q} test points and candidates",
            f"{len(test_X)} and {len(pool)}",
            "Lower q.",
        )
    with torch.no_grad():
        posterior = cast(GPyTorchPosterior, model.posterior(test_X))
        variance = posterior.variance.sum(-1)
    taken = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    chosen = []
    for i in variance.argsort(descending=True, stable=True)[:q].tolist():
        distance = (pool - test_X[i]).square().sum(-1)
        nearest = int(distance.masked_fill(taken, torch.inf).argmin())
        taken[nearest] = True
        chosen.append(nearest)
    return torch.tensor(chosen, device=pool.device)


def select_from_pool(
    acqf: AcquisitionFunction,
    pool: Tensor,
    q: int,
    chunk_size: int = 4096,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Greedily select q points from a pool, no point twice; ties go to the lowest index.

    `NIPV` and `MaxVariance` cost O(N (r^2 + P r)) for N candidates and P test points, with r the
    rank of the family's factors (n for an exact GP); O(N 16^d) on a grid, O(N r^2) on features.

    Args:
        acqf: `NIPV` or `MaxVariance` (in closed form), or any BoTorch acquisition function that
            takes pending points. Its own pending points are taken into account and restored.
        pool: ``N x d`` raw candidates.
        q: Number of points to select.
        chunk_size: Candidates scored at a time, which bounds the memory.
        noise: ``N`` (or ``N x m``) raw noise variances of the candidates, for the closed forms; by
            default those of `NIPV`, or the typical noise.

    Returns:
        ``q`` indices into the pool in the order of choice, and ``q`` values: the acquisition
        value after each pick (`NIPV`, `MaxVariance`: of all picks so far; others: of the pick
        given the earlier ones).

    Raises:
        ShapeError, NoiseError: for an invalid pool or noise.
        InputError: if the pool has fewer than q different points.
        UnsupportedError: for noise per candidate under another acquisition function.
    """
    if pool.ndim != 2 or q < 1 or chunk_size < 1:
        raise ShapeError(
            "a pool `N x d`, q >= 1 and chunk_size >= 1",
            f"{tuple(pool.shape)}, q = {q}, chunk_size = {chunk_size}",
            "Give candidates as rows.",
        )
    if isinstance(acqf, NIPV | MaxVariance):
        with torch.no_grad():
            scorer: _Border | _OneByOne = _Border(acqf, pool, noise, chunk_size)
    elif noise is not None:
        raise UnsupportedError(
            "no noise per candidate",
            f"noise for {type(acqf).__name__}",
            "Only NIPV and MaxVariance use it.",
        )
    else:
        scorer = _OneByOne(acqf, pool, chunk_size)
    taken = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    indices: list[int] = []
    values: list[Tensor] = []
    with torch.no_grad():
        for _ in range(q):
            if bool(taken.all()):
                raise InputError(
                    f"a pool of at least {q} different points", f"{len(indices)}", "Lower q."
                )
            scores = scorer.scores().masked_fill(taken, -torch.inf)
            best = _first_like(int((scores == scores.max()).nonzero()[0]), pool, noise)
            indices.append(best)
            values.append(scores[best])
            taken |= (pool == pool[best]).all(-1)
            if len(indices) < q:
                scorer.add(best)
    return torch.tensor(indices, device=pool.device), torch.stack(values).to(pool)


def _first_like(index: int, pool: Tensor, noise: Tensor | None) -> int:
    """The first row of the pool that equals this one, since rounding may favour a later one."""
    same = (pool == pool[index]).all(-1)
    if noise is not None:
        same &= (noise == noise[index]).reshape(len(pool), -1).all(-1)
    return int(same.nonzero()[0])


class _OneByOne:
    """Any acquisition function: the pool at q = 1, given the picks as pending points."""

    def __init__(self, acqf: AcquisitionFunction, pool: Tensor, chunk_size: int) -> None:
        self.acqf, self.pool, self.chunk_size = acqf, pool, chunk_size
        self.picked: list[int] = []

    def scores(self) -> Tensor:
        before = getattr(self.acqf, "X_pending", None)
        try:
            if self.picked:
                new = self.pool[self.picked]
                self.acqf.set_X_pending(new if before is None else torch.cat([before, new]))
            parts = [self.acqf(c.unsqueeze(-2)) for c in self.pool.split(self.chunk_size)]
        finally:
            if self.picked:
                self.acqf.set_X_pending(before)
        return torch.cat(parts)

    def add(self, index: int) -> None:
        self.picked.append(index)


class _Border:
    """NIPV or largest variance over a pool, from covariances with the points of the batch.

    With S the batch so far (pending points first), ``C = cov(S, S) + D = L L'`` and
    ``H = gram(S, S)``, a candidate c of variance v, noise r and row l = L^-1 cov(S, c) adds

        ``d = v + r - l'l``   to the determinant of C (as a factor), and
        ``( gram(c, c) - 2 l'L^-1 gram(S, c) + l' L^-1 H L^-T l ) / d``   to ``tr(C^-1 H)``.

    Memory O(o q N), plus that of the sums or of one chunk's posteriors.
    """

    def __init__(
        self, acqf: NIPV | MaxVariance, pool: Tensor, noise: Tensor | None, chunk_size: int
    ) -> None:
        model = cast(GaussianModel, acqf.model)
        if model.batch_shape:
            raise UnsupportedError(
                "an unbatched model",
                f"batch shape {tuple(model.batch_shape)}",
                "Condition on unbatched data.",
            )
        self.process = model.process()
        self.integral = acqf.sums() if isinstance(acqf, NIPV) else None
        self.scales = acqf.raw_scales() if isinstance(acqf, NIPV) else None
        self.X = model.transformed(pool)
        self.chunks = self.X.split(chunk_size)
        if noise is None:
            noises = [acqf.noise(part) for part in pool.split(chunk_size)]
            self.noise = torch.cat(noises, -1)
        else:
            self.noise = _noise_of(model, pool, noise)
        variance, gram = [], []
        for chunk in self.chunks:
            self.last = self.process.at(chunk)
            variance.append(self.last.variance())
            none = torch.zeros_like(variance[-1])
            gram.append(none if self.integral is None else self.integral.gram_diagonal(self.last))
        self.variance, self.gram = torch.cat(variance, -1), torch.cat(gram, -1)  # o x N
        shape = (*self.variance.shape[:-1], 0, self.variance.shape[-1])
        self.cov_rows = self.variance.new_empty(shape)  # o x |S| x N
        self.gram_rows = self.variance.new_empty(shape)
        self.C = self.variance.new_empty(len(self.variance), 0, 0)  # noise included
        self.H = self.C
        if acqf.X_pending is not None:
            s = self.process.at(model.transformed(acqf.X_pending))
            cov, self.H = self._products(s, s)
            self.C = cov + torch.diag_embed(acqf.noise(acqf.X_pending))
            self._extend(s)

    def scores(self) -> Tensor:
        """Value of the batch with each candidate added, ``N``."""
        d, gain = self.variance + self.noise, self.gram
        before = logdet = torch.zeros_like(d[:, :1])
        if self.C.shape[-1]:
            L = chol_psd(self.C)
            rows = _solve(L, self.cov_rows)
            d = d - rows.square().sum(-2)
            logdet = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1, True)
            if self.scales is not None:
                M = _solve(L, _solve(L, self.H).mT)
                before = M.diagonal(dim1=-2, dim2=-1).sum(-1, True)
                gain = gain + (rows * (M @ rows - 2.0 * _solve(L, self.gram_rows))).sum(-2)
        d = d.clamp_min(SMALLEST * float(self.variance.max()))
        if self.scales is None:
            return 0.5 * (logdet + d.log()).sum(0)
        left = cast(Integral, self.integral).total.unsqueeze(-1) - before - gain / d
        return -(left * self.scales.unsqueeze(-1)).sum(0)

    def add(self, index: int) -> None:
        """Put a candidate into the batch."""
        corner = self.variance[..., index] + self.noise[..., index]
        self.C = _bordered(self.C, self.cov_rows[..., index], corner)
        self.H = _bordered(self.H, self.gram_rows[..., index], self.gram[..., index])
        self._extend(self.process.at(self.X[index : index + 1]))

    def _extend(self, s: Joint) -> None:
        """Add rows of covariances between points and all candidates, in chunks; the joint posterior
        of a pool of one chunk is kept.
        """
        parts = []
        for chunk in self.chunks:
            c = self.last if len(self.chunks) == 1 else self.process.at(chunk)
            parts.append([product.mT for product in self._products(c, s)])
        cov, gram = (torch.cat(rows, -1) for rows in zip(*parts, strict=True))
        self.cov_rows = torch.cat([self.cov_rows, cov], -2)
        self.gram_rows = torch.cat([self.gram_rows, gram], -2)

    def _products(self, c: Joint, s: Joint) -> tuple[Tensor, Tensor]:
        """``cov`` and ``sum_t w_t cov(., t) cov(t, .)`` between two sets of points."""
        cov = c.covariance(s)
        return cov, torch.zeros_like(cov) if self.integral is None else self.integral.gram(c, s)


def _bordered(C: Tensor, row: Tensor, corner: Tensor) -> Tensor:
    """A symmetric matrix with one more row and column."""
    wide = torch.cat([C, row.unsqueeze(-2)], -2)
    return torch.cat([wide, torch.cat([row, corner.unsqueeze(-1)], -1).unsqueeze(-1)], -1)


def _solve(L: Tensor, B: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L, B, upper=False)


def _noise_of(model: GaussianModel, pool: Tensor, noise: Tensor) -> Tensor:
    """Noise variances of the candidates, ``o x N``, transformed."""
    m = model.num_outputs
    if noise.shape not in ((len(pool),), (len(pool), m)) or (noise.ndim == 1 and m > 1):
        raise NoiseError(
            f"noise `{len(pool)} x {m}`, one variance per candidate and output",
            f"{tuple(noise.shape)}",
            "Give raw variances in the order of the pool.",
        )
    if not bool(noise.isfinite().all()) or bool((noise < 0).any()):
        raise NoiseError("finite, non-negative variances", "others", "Put a floor under them.")
    Yvar = noise.detach().double().reshape(len(pool), m)
    transform = model.outcome_map()
    if transform is not None:
        scaled = transform(torch.zeros_like(Yvar), Yvar, X=pool.double())[1]
        return cast(Tensor, scaled).mT
    return Yvar.mT
