"""Acquisition functions that learn: of variance, of labels; selecting from a pool [MATHS 10].

`NIPV` is a drop-in for BoTorch's `qNegIntegratedPosteriorVariance` with the same sign, scale and
pending points. Its gradient is exact, and its cost is not quadratic in the number of test points.
The idea of measuring where the integrated variance decreases most is from Seo et al. [Seo2000].

For `NIPV` and `MaxVariance` every candidate's score is updated by each pick from its covariances
with that pick, so one pass over the pool suffices for a pick, with `select_from_pool`.

References:
    [Houlsby2011] N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel. Bayesian active learning for
        classification and preference learning. arXiv:1112.5745, 2011.
    [MacKay1992] D. J. C. MacKay. Information-based objective functions for active data selection.
        Neural Computation 4, 1992.
    [Seo2000] S. Seo, M. Wallat, T. Graepel, K. Obermayer. Gaussian process regression: active data
        selection and test point rejection. IJCNN 2000.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.base import MCSampler
from botorch.utils.transforms import concatenate_pending_points, t_batch_mode_transform
from torch import Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import InputError, NoiseError, ShapeError, UnsupportedError
from bo_stream.likelihoods import Bernoulli
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.joint import Integral, Joint
from bo_stream.mathematics.labels import softmax_draws
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.process import PosteriorProcess
from bo_stream.surrogates.classifier import DirichletClassifier
from bo_stream.surrogates.counts import CountGP

__all__ = [
    "BALD",
    "NIPV",
    "MaxVariance",
    "Random",
    "response_nipv",
    "select_from_pool",
]

KEPT, ENTRIES = 12, 2**26
"""Number of chunks of a pool, and of entries of their joint posteriors, up to which these are kept
for the picks to come: at most 1 GiB, with what is computed from them."""

SMALLEST = 1e-12
"""A noiseless candidate with less than this share of the largest variance counts as known."""


class _OfVariance(AcquisitionFunction):
    """Base of functions of a surrogate's joint covariance at noisy candidates."""

    elsewhere: ClassVar[str]
    """BoTorch's class for other models."""

    def __init__(self, model: GaussianModel, X_pending: Tensor | None = None) -> None:
        if not isinstance(model, GaussianModel):
            raise UnsupportedError(
                "a surrogate of bo_stream",
                type(model).__name__,
                f"Use botorch's {self.elsewhere} for other models.",
            )
        super().__init__(model=model)
        self.set_X_pending(X_pending)

    @property
    def surrogate(self) -> GaussianModel:
        """The model."""
        return cast(GaussianModel, self.model)

    def noise(self, X: Tensor) -> Tensor:
        """Transformed noise variances of future outcomes at ``... x q x d`` raw points, ``... x m x
        q``.
        """
        typical = self.surrogate.typical_noise()
        return typical.unsqueeze(-1).expand(self.surrogate.num_outputs, X.shape[-2])

    @concatenate_pending_points
    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x q x d`` raw points: ``batch_shape``."""
        process, sums = self.current()
        f = process.at(self.surrogate.transformed(X))
        L = chol_psd(f.covariance(f) + torch.diag_embed(self.noise(X)))
        return self._value(f, L, sums).to(X)

    def current(self) -> tuple[PosteriorProcess, Integral | None]:
        """The current posterior process, and sums over test points where there are any."""
        return self.surrogate.process(), None

    @abstractmethod
    def _value(self, f: Joint, L: Tensor, sums: Integral | None) -> Tensor:
        """From the joint posterior and the factor of its noisy covariance."""


class MaxVariance(_OfVariance):
    """Entropy of the candidates' noisy observations; at q = 1 it increases with the variance.

    The value is ``1/2 log det (cov(X, X) + D)``, summed over outputs, in transformed units. For
    several points it is MacKay's total information gain [MacKay1992], which spreads them.
    Candidates have the typical noise. An evaluation costs one joint posterior and a ``q x q``
    Cholesky factor.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one.
        X_pending: ``n' x d`` points under evaluation.
    """

    elsewhere = "qPosteriorStandardDeviation"

    def _value(self, f: Joint, L: Tensor, sums: Integral | None) -> Tensor:
        return L.diagonal(dim1=-2, dim2=-1).log().sum((-1, -2))


class NIPV(_OfVariance):
    """Negative posterior variance, averaged over test points, after observing the candidates.

    The value is ``-sum_t w_t var(f(t) | y at X and X_pending)`` in raw units squared, where
    candidates are measured with the typical noise and the weights sum to one. It depends on no
    outcome, so no fantasies are needed. Sums over the test points are kept until the surrogate's
    hyperparameters change.

    An evaluation of q points costs O(16^d q^2) for WISKI, independent of the number of observations
    and of test points P; O(P q (d + r)) for other families, with r the rank of their factors. WISKI
    needs O(P 16^d + m^3) once, and O(q m^2) after an `observe` of q points. `select_from_pool`
    keeps more for a pool.

    Args:
        model: A surrogate of `bo_stream`, or a model conditioned from one.
        mc_points: ``P x d`` raw test points (leading dimensions are flattened).
        sampler: Not used; accepted for compatibility with BoTorch.
        posterior_transform: A `ScalarizedPosteriorTransform`, required for several outputs.
        X_pending: ``n' x d`` points under evaluation.
        weights: ``P`` non-negative weights of the test points, normalised to sum 1; equal by
            default.
        noise: Raw noise variances of future outcomes at raw points, ``... x q x d`` to ``... x q x
            1``, differentiable; for one output. By default the typical noise.

    Raises:
        UnsupportedError: for other models, several outputs without a transform or with ``noise``,
            other posterior transforms, and outcome transforms other than `Standardize`.
        ShapeError, InputError: for invalid weights.

    Example:
        >>> import torch
        >>> from bo_stream import WISKI
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> NIPV(model, torch.rand(1000, 2, dtype=torch.double))(X[:3].unsqueeze(-2)).shape
        torch.Size([3])
    """

    elsewhere = "qNegIntegratedPosteriorVariance"
    mc_points: Tensor
    weights: Tensor

    @lasting
    def __init__(
        self,
        model: GaussianModel,
        mc_points: Tensor,
        sampler: MCSampler | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        weights: Tensor | None = None,
        noise: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(model, X_pending)
        if noise is not None and model.num_outputs > 1:
            raise UnsupportedError("one output with `noise`", "several", "Leave `noise` out.")
        self.noise_at, self.posterior_transform = noise, posterior_transform
        self.register_buffer("mc_points", mc_points.reshape(-1, mc_points.shape[-1]))
        self.register_buffer("weights", _normalised(weights, self.mc_points))
        self.raw_scales()
        self._sums: tuple[PosteriorProcess, PosteriorProcess, Integral] | None = None

    def current(self) -> tuple[PosteriorProcess, Integral]:
        """The current posterior process, in the form in which sums cost least, and the sums."""
        process = self.surrogate.process()
        if self._sums is None or process is not self._sums[0]:
            points = self.surrogate.transformed(self.mc_points.detach())
            form = process.for_sums(len(points))
            self._sums = process, form, form.integral(points, self.weights)
        return self._sums[1:]

    def raw_scales(self) -> Tensor:
        """Factors from transformed to raw variances for each output: ``m``.

        Raises:
            UnsupportedError: for several outputs without a posterior transform, and for transforms
                that do more than shift, scale and add outputs.
        """
        m = self.surrogate.num_outputs
        if m > 1 and self.posterior_transform is None:
            raise UnsupportedError(
                "a posterior_transform from several outputs to one",
                f"none for {m} outputs",
                "Give for example a ScalarizedPosteriorTransform.",
            )
        scales = torch.ones(m, dtype=torch.float64, device=self.mc_points.device)
        for transform in (self.surrogate.outcome_map(), self.posterior_transform):
            if transform is None:
                continue
            if not isinstance(transform, Standardize | ScalarizedPosteriorTransform):
                raise UnsupportedError(
                    "linear outcome and posterior transforms, the same at every point, to one "
                    "output",
                    type(transform).__name__,
                    "Use Standardize and ScalarizedPosteriorTransform, or botorch's "
                    f"{self.elsewhere}.",
                )
            factors = transform.stdvs if isinstance(transform, Standardize) else transform.weights
            scales = scales * cast(Tensor, factors).reshape(-1, m)[0].square().to(scales)
        return scales

    def noise(self, X: Tensor) -> Tensor:
        """As for every class here, by the argument ``noise`` where there is one."""
        if self.noise_at is None:
            return super().noise(X)
        return self.noise_at(X).mT / self.raw_scales().unsqueeze(-1)

    def _value(self, f: Joint, L: Tensor, sums: Integral | None) -> Tensor:
        sums = cast(Integral, sums)
        gain = (torch.cholesky_inverse(L) * sums.gram(f, f)).sum((-1, -2))
        return -((sums.total - gain) * self.raw_scales()).sum(-1)


def response_nipv(
    model: CountGP, mc_points: Tensor, trials: Any = None, X_pending: Tensor | None = None
) -> NIPV:
    """Negative integrated variance of the response, to first order, after future counts.

    Test points are weighted by the squared mean slope of the response, and a future count is as
    noisy as its expected information says.

    Args:
        model: A surrogate of counts.
        mc_points: ``P x d`` raw test points.
        trials: Trials or exposure of a future count; by default the mean of those seen.
        X_pending: ``n' x d`` raw points under evaluation.

    Returns:
        An acquisition function on the latent surface, for a box or for `select_from_pool`.
    """
    noise, weights = partial(model.future_noise, trials=trials), model.response_weights(mc_points)
    return NIPV(model.model, mc_points, X_pending=X_pending, weights=weights, noise=noise)


def _normalised(weights: Tensor | None, points: Tensor) -> Tensor:
    """The weights normalised to sum one, float64."""
    count = len(points)
    if count == 0:
        raise ShapeError("at least one test point", "none", "Give mc_points `P x d`.")
    if weights is None:
        return torch.full((count,), 1.0 / count, dtype=torch.float64, device=points.device)
    value = weights.detach().double().to(points.device)
    if value.shape != (count,):
        raise ShapeError(
            f"weights of shape ({count},), one per test point",
            f"{tuple(weights.shape)}",
            "Flatten them in the order of mc_points.",
        )
    if not bool(value.isfinite().all()) or bool((value < 0).any()) or not bool(value.sum() > 0):
        raise InputError(
            "finite, non-negative weights, not all zero",
            f"between {float(value.min())} and {float(value.max())}",
            "Leave out unimportant test points instead.",
        )
    return value / value.sum()


class Random(AcquisitionFunction):
    """A new uniform number for each set of candidates and call, with zero gradient.

    Under `optimize_acqf` the result is one of the raw samples; over a pool it is a random choice.
    Draws come from torch's global generator.

    Args:
        model: Any model; only its output shape matters to BoTorch.
    """

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Uniform numbers, ``batch_shape``."""
        return torch.rand(X.shape[:-2], dtype=X.dtype).to(X.device) + 0.0 * X.sum((-1, -2))


# -- labels ------------------------------------------------------------------------------------


class BALD(AcquisitionFunction):
    """Mutual information of a label and the latent functions, in nats [Houlsby2011].

    It is the entropy of the label minus its expected entropy given the latent functions: large
    where these are uncertain, small where classes are known to overlap.

    Args:
        model: The classifier: a `DirichletClassifier`, or a `CountGP` of `Bernoulli` outcomes.
        X_pending: ``n' x d`` points whose labels are pending. The classifier treats them as
            labelled (`believing`), which spreads a batch.
        num_samples: Quasi-random draws of the latent values, the same at every call, so that the
            value is smooth and repeatable.

    Example:
        >>> from acquisitions import select_from_pool
        >>> X = torch.rand(40, 2, dtype=torch.double)
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = DirichletClassifier(X, (X[:, 0] > 0.5).long(), bounds=box)
        >>> len(select_from_pool(BALD(model), torch.rand(100, 2, dtype=torch.double), q=3)[0])
        3
    """

    def __init__(
        self,
        model: DirichletClassifier | CountGP,
        X_pending: Tensor | None = None,
        num_samples: int = 256,
    ) -> None:
        kind = getattr(model, "likelihood", None)
        if not isinstance(model, DirichletClassifier) and not isinstance(kind, Bernoulli):
            raise UnsupportedError(
                "a DirichletClassifier, or a CountGP of Bernoulli outcomes",
                type(model).__name__,
                "Use max_variance for regression, and NIPV for counts.",
            )
        super().__init__(model=model)
        self.num_samples = num_samples
        self._pending_model: GaussianModel | None = None
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points whose labels are pending."""
        super().set_X_pending(X_pending)
        believed = None if self.X_pending is None else self._classifier.believing(self.X_pending)
        object.__setattr__(self, "_pending_model", believed)  # not registered as a submodule

    @property
    def _classifier(self) -> DirichletClassifier | CountGP:
        return cast("DirichletClassifier | CountGP", self.model)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at ``batch_shape x 1 x d`` raw points: ``batch_shape``."""
        latent = self._classifier.model if self._pending_model is None else self._pending_model
        f = cast(GPyTorchPosterior, latent.posterior(X))
        mean, variance = f.mean.squeeze(-2), f.variance.squeeze(-2)
        if mean.shape[-1] == 1:  # the logit of two classes
            mean, variance = (torch.cat([torch.zeros_like(t), t], -1) for t in (mean, variance))
        p = softmax_draws(mean, variance, self.num_samples)  # S x batch_shape x C
        return (_entropy(p.mean(0)) - _entropy(p).mean(0)).to(X)


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)


# -- selecting from a pool -----------------------------------------------------------------------


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
            takes pending points: it is maximised with the earlier picks pending, as in BoTorch's
            `optimize_acqf_discrete`. Its own pending points are taken into account and restored.
        pool: ``N x d`` raw candidates.
        q: Number of points to select.
        chunk_size: Candidates scored at a time, which bounds the memory: that of up to
            a dozen chunks, O(r) a candidate, is kept if it is less than 1 GiB.
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
    if noise is not None and not isinstance(acqf, MaxVariance | NIPV):
        raise UnsupportedError(
            "no noise per candidate",
            f"noise for {type(acqf).__name__}",
            "Only NIPV and MaxVariance use it.",
        )
    taken = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    indices: list[int] = []
    values: list[Tensor] = []
    with torch.no_grad():
        if isinstance(acqf, MaxVariance | NIPV):
            scores = _Reductions(acqf, pool, noise, chunk_size).scores
        else:
            scores = partial(_scores, acqf, pool, chunk_size)
        for _ in range(q):
            if bool(taken.all()):
                raise InputError(
                    f"a pool of at least {q} different points", f"{len(indices)}", "Lower q."
                )
            found = scores(indices).masked_fill(taken, -torch.inf)
            best = int(found.argmax())
            same = (pool == pool[best]).all(-1)
            alike = (
                same if noise is None else same & (noise == noise[best]).view(len(pool), -1).all(-1)
            )
            indices.append(int(alike.nonzero()[0]))  # rounding may favour a later one
            values.append(found[indices[-1]])
            taken |= same
    return torch.tensor(indices, device=pool.device), torch.stack(values).to(pool)


def _scores(acqf: AcquisitionFunction, pool: Tensor, chunk_size: int, picked: list[int]) -> Tensor:
    """Any acquisition function at each row of a pool, with the picked ones pending."""
    before = getattr(acqf, "X_pending", None)
    try:
        if picked:
            new = pool[picked]
            acqf.set_X_pending(new if before is None else torch.cat([before, new]))
        return torch.cat([acqf(part.unsqueeze(-2)) for part in pool.split(chunk_size)])
    finally:
        if picked:
            acqf.set_X_pending(before)


class _Reductions:
    """NIPV or largest variance over a pool, by what each pick takes from variance and gram.

    A pick s of noisy variance d has ``r(c) = cov(s, c) / d^1/2`` and ``h(c) = gram(s, c) / d^1/2``
    with each candidate c, given the picks before. Afterwards

        ``cov(a, b)`` is less by ``r(a) r(b)``, ``sum_t w_t var(t)`` by ``e = gram(s, s) / d``, and
        ``gram(a, b)`` by ``r(a) g(b) + g(a) r(b)`` with ``g = h - e r / 2``.

    Pending points are rows before those of the pool, picked first. Memory O(o q N), plus that of
    the sums, and of the posteriors of one chunk, or of all where these are kept.
    """

    def __init__(
        self, acqf: MaxVariance | NIPV, pool: Tensor, noise: Tensor | None, chunk_size: int
    ) -> None:
        model = acqf.surrogate
        if model.batch_shape:
            raise UnsupportedError(
                "an unbatched model",
                f"batch shape {tuple(model.batch_shape)}",
                "Condition on unbatched data.",
            )
        pending = pool[:0] if acqf.X_pending is None else acqf.X_pending.to(pool)
        points = torch.cat([pending, pool])
        typical = points if noise is None else pending
        noises = [acqf.noise(part) for part in typical.split(chunk_size) if len(part)]
        if noise is not None:
            noises.append(_noise_of(model, pool, noise))
        self.noise, (self.process, self.sums) = torch.cat(noises, -1), acqf.current()
        self.scales = acqf.raw_scales() if isinstance(acqf, NIPV) else None
        self.X = model.transformed(points)
        self.chunks = self.X.split(chunk_size)
        at = self.process.pool if len(self.chunks) == 1 else self.process.at
        first, count = at(self.chunks[0]), len(self.chunks)
        few = count <= KEPT and count * first.rows.numel() <= ENTRIES
        self.kept = [first, *map(at, self.chunks[1:])] if few else None
        self.variance, self.gram = self._everywhere(None)  # o x N
        self.least = SMALLEST * float(self.variance.max())
        self.r = self.g = self.variance.unsqueeze(-2)[:, :0]  # o x picks x N
        self.value = torch.zeros_like(self.variance[:, :1])  # log det / 2, or minus the sum left
        if self.sums is not None:
            self.value = -self.sums.total.unsqueeze(-1)
        self.pending = len(pending)
        for row in range(self.pending):
            self._pick(row)

    def scores(self, picked: list[int]) -> Tensor:
        """Value of the batch with each candidate added, ``N``, after its latest pick."""
        if picked:
            self._pick(self.pending + picked[-1])
        value = self._with_each()[:, self.pending :]
        return (value if self.scales is None else value * self.scales.unsqueeze(-1)).sum(0)

    def _with_each(self) -> Tensor:
        """Value of the batch with each row added, ``o x N``."""
        d = self._noisy()
        return self.value + (0.5 * d.log() if self.sums is None else self.gram / d)

    def _noisy(self) -> Tensor:
        return (self.variance + self.noise).clamp_min(self.least)

    def _pick(self, row: int) -> None:
        """Put a row into the batch."""
        at = slice(row, row + 1)
        self.value = self._with_each()[:, at]
        cov, gram = self._everywhere(self.process.at(self.X[at]))
        root = self._noisy()[:, at].sqrt()
        r = (cov - (self.r[..., at] * self.r).sum(-2)) / root
        h = (gram - (self.r[..., at] * self.g + self.g[..., at] * self.r).sum(-2)) / root
        g = h - 0.5 * h[:, at] / root * r
        self.variance, self.gram = self.variance - r.square(), self.gram - 2.0 * r * g
        self.r = torch.cat([self.r, r.unsqueeze(-2)], -2)
        self.g = torch.cat([self.g, g.unsqueeze(-2)], -2)

    def _everywhere(self, s: Joint | None) -> tuple[Tensor, Tensor]:
        """``cov`` and ``sum_t w_t cov(., t) cov(t, .)`` of a point and all rows, ``o x N`` each; or
        of each row and itself. Joint posteriors of few chunks are kept.
        """
        cov, gram = [], []
        for c in self.kept or map(self.process.at, self.chunks):
            cov.append(c.variance() if s is None else c.covariance(s).squeeze(-1))
            if self.sums is None:
                gram.append(torch.zeros_like(cov[-1]))
            elif s is None:
                gram.append(self.sums.gram_diagonal(c))
            else:
                gram.append(self.sums.gram(c, s).squeeze(-1))
        return torch.cat(cov, -1), torch.cat(gram, -1)


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
        Yvar = cast(Tensor, transform(torch.zeros_like(Yvar), Yvar, X=pool.double())[1])
    return Yvar.mT
