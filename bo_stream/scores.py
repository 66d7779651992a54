"""Scores of predictions: at test points, along a stream, and in paired comparisons.

Test points are scored one at a time; their joint posterior is never formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd
import torch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from linear_operator.operators import DiagLinearOperator
from numpy.typing import ArrayLike
from torch import Tensor

from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.fitting import Surprise
from bo_stream.base.gaussian_model import GaussianModel, ScaleFreeNormal
from bo_stream.base.streaming_gp import PredictiveScore, StreamingGP
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.mathematics.outcomes import Linear, OutcomeDistribution
from bo_stream.mathematics.process import PosteriorProcess

__all__ = [
    "Difference",
    "OutcomeDistribution",
    "Prequential",
    "Scores",
    "Surprise",
    "ends_in_common",
    "inverse_distance",
    "marginals",
    "noise_variance",
    "outcome_distribution",
    "paired_bootstrap",
    "probability_higher",
    "prequential",
    "quantiles",
    "score",
]

CHUNK = 512
PAIRS = 2048


def outcome_distribution(
    model: GaussianModel, X: Tensor, ensemble: KernelEnsemble | None = None, *, noise: bool = False
) -> OutcomeDistribution:
    """The marginal distribution of the outcome at each of ``n x d`` raw points; one output only.

    It is exact under a `Standardize` and under the warp of `WarpedGP`, where mean and standard
    deviation describe a skewed distribution poorly.

    Args:
        model: A surrogate of `bo_stream`.
        X: ``n x d`` raw points.
        ensemble: Kernels to average over, in place of the surrogate's own.
        noise: Whether of observations with the typical noise, else of the latent function.

    Raises:
        UnsupportedError: for several outputs, or outcome transforms without a mean.

    Example:
        >>> from bo_stream import ExactGP
        >>> X = torch.linspace(0.0, 1.0, 12, dtype=torch.double).unsqueeze(-1)
        >>> found = outcome_distribution(ExactGP(X, X.sin()), X[:3])
        >>> found.mean.shape, found.quantiles([0.05, 0.95]).shape
        (torch.Size([3]), torch.Size([2, 3]))
    """
    weights, processes = _processes(model, ensemble)
    added = model.typical_noise() if noise else 0.0
    X = X.detach().clone()  # the variances are computed later: many points need only their means
    points = processes, model.transformed(X).split(CHUNK)
    means, variances = _means(*points), partial(_variances, *points, added)
    return OutcomeDistribution(weights.to(means), means, variances, _outcomes(model, X))


@torch.no_grad()
def _means(processes: Sequence[PosteriorProcess], chunks: Sequence[Tensor]) -> Tensor:
    """Means under each process, ``K x n``."""
    return torch.stack([torch.cat([p.at(X).mean[0] for X in chunks]) for p in processes])


@torch.no_grad()
def _variances(
    processes: Sequence[PosteriorProcess], chunks: Sequence[Tensor], added: float | Tensor
) -> Tensor:
    """Variances under each process, ``K x n``, and what is added to them."""
    found = [torch.cat([p.at(X).variance()[0] for X in chunks]) for p in processes]
    return torch.stack(found) + added


def marginals(
    model: GaussianModel, X: Tensor, ensemble: KernelEnsemble | None = None, *, noise: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean and variance of an `outcome_distribution`, each ``n``."""
    found = outcome_distribution(model, X, ensemble, noise=noise)
    return found.mean, found.variance


def quantiles(
    model: GaussianModel,
    X: Tensor,
    levels: Sequence[float],
    *,
    noise: bool = False,
    ensemble: KernelEnsemble | None = None,
) -> Tensor:
    """Quantiles of an `outcome_distribution`, ``len(levels) x n``.

    Raises:
        InputError: for levels outside (0, 1).
    """
    return outcome_distribution(model, X, ensemble, noise=noise).quantiles(levels)


@torch.no_grad()
def probability_higher(
    model: GaussianModel, X: Tensor, others: Tensor, ensemble: KernelEnsemble | None = None
) -> Tensor:
    """Probabilities that outcomes without noise at points are above those at others, ``n x k``.

    They come from the joint posterior of each pair: O(n k) posteriors of two points.

    Args:
        model: A surrogate of one output, whose outcome transform increases.
        X: ``n x d`` raw points.
        others: ``k x d`` raw points.
        ensemble: Kernels to average over, in place of the surrogate's own.
    """
    weights, processes = _processes(model, ensemble)
    Z, other = model.transformed(X), model.transformed(others)
    pairs = torch.stack([Z.repeat_interleave(len(other), 0), other.repeat(len(Z), 1)], -2)
    found = torch.zeros(len(pairs)).to(Z)
    for weight, process in zip(weights.tolist(), processes, strict=True):
        shares = []
        for part in pairs.split(PAIRS):
            point = process.at(part)
            (first, second), C = point.mean[..., 0, :].unbind(-1), point.covariance(point)
            C = C[..., 0, :, :].expand(len(part), 2, 2)
            variance = C[:, 0, 0] + C[:, 1, 1] - C[:, 0, 1] - C[:, 1, 0]
            sd = variance.clamp_min(0.0).sqrt().clamp_min(1e-300)
            shares.append(torch.special.ndtr((first - second) / sd))
        found += weight * torch.cat(shares)
    return found.reshape(len(Z), len(other))


def _processes(
    model: GaussianModel, ensemble: KernelEnsemble | None
) -> tuple[Tensor, list[PosteriorProcess]]:
    """Weights of kernels, and the posterior process under each.

    Raises:
        UnsupportedError: for several outputs.
    """
    if model.num_outputs != 1:
        raise UnsupportedError("one output", f"{model.num_outputs}", "Use subset_output.")
    if ensemble is None:
        return torch.ones(1, dtype=torch.float64), [model.process()]
    return ensemble.weights, ensemble.processes(cast(StreamingGP, model))


def _outcomes(model: GaussianModel, X: Tensor) -> Linear | Callable[[Tensor], Tensor]:
    """Raw outcomes as a function of transformed ones."""
    zero, transform = X.new_zeros(len(X), 1, dtype=torch.float64), model.outcome_map()
    if transform is None:
        return Linear(zero[:, 0], zero[:, 0] + 1.0)
    posterior = _raw(model, X[:1], zero[:1, 0], zero[:1, 0] + 1.0)
    if isinstance(posterior, GPyTorchPosterior):
        shift, square = transform.untransform(zero, zero + 1.0, X=X)
        return Linear(shift[:, 0], cast(Tensor, square)[:, 0].sqrt())
    try:
        _ = posterior.mean
    except NotImplementedError as error:
        raise UnsupportedError(
            "an outcome transform that gives mean and variance",
            type(transform).__name__,
            "Standardize, or take samples of the posterior.",
        ) from error

    def raw(w: Tensor) -> Tensor:
        made: Tensor = transform.untransform(w.unsqueeze(-1), X=X)[0].squeeze(-1)
        return made

    return raw


def noise_variance(model: GaussianModel) -> Tensor:
    """The typical noise variance, raw units, 0-dim; one output only.

    Raises:
        NoiseError: if the noise is known and nothing was observed.
        UnsupportedError: for a non-linear outcome transform, under which it differs from place to
            place.
    """
    noise = model.typical_noise()
    anywhere = noise.new_zeros(1, 1)
    posterior = _raw(model, anywhere, torch.zeros_like(noise), noise)
    if not isinstance(posterior, GPyTorchPosterior):
        raise UnsupportedError(
            "a linear outcome transform", type(model.outcome_map()).__name__, "Standardize."
        )
    return posterior.variance.reshape(())


def _raw(model: GaussianModel, X: Tensor, mean: Tensor, variance: Tensor) -> Any:
    """The posterior in raw units of independent transformed ones, each ``n``."""
    posterior = GPyTorchPosterior(ScaleFreeNormal(mean, DiagLinearOperator(variance)))
    transform = model.outcome_map()
    return posterior if transform is None else transform.untransform_posterior(posterior, X=X)


@dataclass(frozen=True)
class Scores:
    """Scores of predictions at test points.

    Attributes:
        rmse: Root mean squared error of the posterior mean against the true values.
        nlpd: Mean negative log density of the test observations, nats.
        coverage: Fraction of test observations inside the central interval of ``level``.
        integrated_variance: Mean latent variance over the test points, raw units squared.
    """

    rmse: float
    nlpd: float
    coverage: float
    integrated_variance: float


def score(
    model: GaussianModel,
    X: Tensor,
    truth: Tensor,
    observed: Tensor,
    noise: Tensor | None = None,
    level: float = 0.95,
) -> Scores:
    """Score a surrogate of one output at test points, from the marginal at each: O(n).

    Args:
        model: The surrogate.
        X: ``n x d`` raw points.
        truth: ``n`` (or ``n x 1``) true values, compared with the mean.
        observed: Likewise, one observation per point, for density and coverage.
        noise: Likewise, the known variances of the observations; by default the surrogate's
            typical noise.
        level: Probability of the central interval.

    Raises:
        InputError: for a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise InputError("a level between 0 and 1", f"{level}", "0.95 is usual.")
    mean, latent = marginals(model, X)
    if noise is None:
        noise = noise_variance(model).expand_as(mean)
    total = latent + noise.reshape(-1)
    error = observed.reshape(-1) - mean
    half = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
    nlpd = 0.5 * ((2.0 * math.pi * total).log() + error.square() / total)
    return Scores(
        rmse=float((truth.reshape(-1) - mean).square().mean().sqrt()),
        nlpd=float(nlpd.mean()),
        coverage=float((error.abs() <= half * total.sqrt()).double().mean()),
        integrated_variance=float(latent.mean()),
    )


def inverse_distance(
    X: Tensor, Y: Tensor, at: Tensor, neighbours: int = 4, power: float = 2.0
) -> Tensor:
    """Inverse-distance weighting, a simple interpolation baseline: ``k x 1`` values.

    Args:
        X: ``n x d`` points.
        Y: ``n x 1`` values.
        at: ``k x d`` points; one that coincides with a point of X takes its value.
        neighbours: Number of nearest points used.
        power: Exponent of the distance.
    """
    parts = []
    for part in at.split(CHUNK):
        distance, index = torch.cdist(part, X).topk(min(neighbours, len(X)), largest=False)
        weight = distance.clamp_min(1e-12).pow(-power)
        weight = weight / weight.sum(-1, keepdim=True)
        parts.append((weight * Y[index, 0]).sum(-1, keepdim=True))
    return torch.cat(parts)


@dataclass(frozen=True)
class Prequential:
    """Prequential scores: each batch is predicted before it is learned.

    Attributes:
        count: Observations scored so far.
        log_density: Joint log density of the last batch, nats.
        squared_error: Mean squared error of the posterior mean on the last batch.
        mean_loss: Negative log density of all batches so far, nats per observation.
        rmse: Root mean squared error over all batches so far.
        behind: Whether log densities are significantly below their expectation under the
            predictions themselves: the surrogate is overconfident or misspecified.
    """

    count: int
    log_density: float
    squared_error: float
    mean_loss: float
    rmse: float
    behind: bool


class Predicts(Protocol):
    """A surrogate of outcomes that are not those of its posterior, such as `CountGP`."""

    def predict_counts(self, X: Tensor, *rest: Any) -> Any:
        """The distribution of outcomes at ``n x d`` raw points."""
        ...

    def predictive_score(self, X: Tensor, Y: Any, *rest: Any) -> PredictiveScore:
        """The score of the outcomes."""
        ...

    def observe(self, X: Tensor, Y: Any, *rest: Any) -> object:
        """Learn them."""
        ...


def prequential(
    model: StreamingGP | Predicts,
    batches: Iterable[tuple[Any, ...]],
    learn: Callable[..., object] | None = None,
) -> Iterator[Prequential]:
    """Score the prediction of each batch, then learn it; yields the running scores.

    Args:
        model: The surrogate, which is changed.
        batches: Pairs ``X, Y`` or triples ``X, Y, Yvar``, raw, in the order of the stream; for a
            `CountGP` points, counts and trials, whose scores are those of the counts.
        learn: Called with the parts of a batch to learn it; by default the surrogate's `observe`.

    Example:
        >>> from bo_stream import ExactGP
        >>> X = torch.linspace(0.0, 1.0, 12, dtype=torch.double).unsqueeze(-1)
        >>> model = ExactGP(X[:4], X[:4].sin())
        >>> [row.count for row in prequential(model, zip(X[4:].split(2), X[4:].sin().split(2)))]
        [2, 4, 6, 8]
    """
    learn = model.observe if learn is None else learn
    count, loss, squares = 0, 0.0, 0.0
    surprise = Surprise()
    for X, Y, *noise in batches:
        with torch.no_grad():
            if isinstance(model, GaussianModel):
                mean = cast(GPyTorchPosterior, model.posterior(X)).mean
            else:
                mean = model.predict_counts(X, *noise).mean
            prediction = model.predictive_score(X, Y, *noise)
        surprise = surprise.seen(prediction.shortfall, prediction.variance, len(X))
        told = torch.as_tensor(Y, dtype=mean.dtype, device=mean.device).reshape(mean.shape)
        error, density = float((mean - told).square().mean()), float(prediction.log_density)
        learn(X, Y, *noise)
        count, loss, squares = count + len(X), loss - density, squares + len(X) * error
        rmse = math.sqrt(squares / count)
        yield Prequential(count, density, error, loss / count, rmse, surprise.behind)


@dataclass(frozen=True)
class Difference:
    """The median of ``pairs`` paired differences between two methods.

    ``low`` and ``high`` bound its 95 % bootstrap interval; NaN for fewer than three pairs.
    """

    median: float
    low: float
    high: float
    pairs: int


def ends_in_common(
    first: pd.Series, second: pd.Series, tenth: bool = True
) -> tuple[float, float] | None:
    """Final scores of two runs: means over the last tenth of the steps that both have.

    Args:
        first: A score indexed by step.
        second: The other run's score.
        tenth: If False, use only the last common step.

    Returns:
        Both means; None if the runs have no step in common.
    """
    steps = first.index.intersection(second.index)
    last = steps[-max(1, len(steps) // 10) :] if tenth else steps[-1:]
    return (float(first[last].mean()), float(second[last].mean())) if len(last) else None


def paired_bootstrap(a: ArrayLike, b: ArrayLike, seed: int = 0) -> Difference:
    """The median of ``a - b`` over paired runs, with a percentile bootstrap interval.

    Args:
        a: One number per run, such as a log regret.
        b: The other method's numbers, in the same order.
        seed: Seed of the resampling.

    Raises:
        InputError: unless both have the same positive number of finite entries.

    Example:
        >>> paired_bootstrap([3.0, 4.0, 7.0], [1.0, 2.0, 3.0]).median
        2.0
    """
    from scipy.stats import bootstrap  # imported here because it is slow to import

    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise InputError(
            "two flat lists of one length, at least 1",
            f"shapes {first.shape} and {second.shape}",
            "Give one number per run, in the same order for both methods.",
        )
    gaps = first - second
    if not np.isfinite(gaps).all():
        raise InputError("finite differences", f"{gaps}", "Leave out incomplete runs.")
    low = high = math.nan
    if len(gaps) > 2:
        generator = np.random.default_rng(seed)
        drawn = bootstrap((gaps,), np.median, method="percentile", rng=generator)
        low, high = map(float, drawn.confidence_interval)
    return Difference(float(np.median(gaps)), low, high, len(gaps))
