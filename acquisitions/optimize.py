"""BoTorch's `optimize_acqf`, at a fraction of its cost over the surrogates of this package."""

from __future__ import annotations

import inspect
import math
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import (
    ExpectedImprovement,
    LogExpectedImprovement,
    PosteriorMean,
    UpperConfidenceBound,
)
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.monte_carlo import qExpectedImprovement, qUpperConfidenceBound
from botorch.acquisition.objective import IdentityMCObjective
from botorch.optim.optimize import optimize_acqf as searched_by_botorch
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.get_sampler import get_sampler
from botorch.sampling.normal import NormalMCSampler
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from acquisitions.learning import NIPV, MaxVariance
from acquisitions.moments import (
    Entropy,
    IntegratedVariance,
    LogImprovement,
    UpperBound,
)
from acquisitions.search import Search, Target
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import BoundsError
from bo_stream.mathematics.exact import Array
from bo_stream.mathematics.expanded import ExpandedProcess

__all__ = ["optimize_acqf", "search_of", "value_of"]

NARROW = 1e-6
"""Widths of the smoothed improvement and of its maximum where BoTorch smooths neither."""
AGREES = 1e-3
"""Largest difference from the acquisition function itself, as a share of the value."""
DEFAULTS = {key: p.default for key, p in inspect.signature(searched_by_botorch).parameters.items()}


def optimize_acqf(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    q: int,
    num_restarts: int = 10,
    raw_samples: int | None = 512,
    options: dict[str, bool | float | int | str] | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Maximise an acquisition function over a box, jointly in q points.

    The acquisition function is BoTorch's `qUpperConfidenceBound`, `qExpectedImprovement`,
    `qLogExpectedImprovement`, `qLogNoisyExpectedImprovement`, or for q = 1 `UpperConfidenceBound`,
    `PosteriorMean`, `ExpectedImprovement`, `LogExpectedImprovement`, or `NIPV` or `MaxVariance` of
    this package, over a surrogate of one outcome of `bo_stream`. The search then takes some ten
    milliseconds, and its effort is fixed. Any other call goes to BoTorch's `optimize_acqf`
    unchanged: one with other models, subclasses, objectives, constraints, options or further
    arguments.

    Args:
        acq_function: The acquisition function.
        bounds: ``2 x d`` raw bounds.
        q: Number of points.
        num_restarts: Number of starting points of BoTorch's search.
        raw_samples: Number of random points that these are chosen from.
        options: Options of BoTorch's search; with some, that one is used.
        others: Further arguments of BoTorch's `optimize_acqf`.

    Returns:
        The points, ``q x d``, and the acquisition function's value. Randomness is that of torch's
        global generator.

    Example:
        >>> from acquisitions import build
        >>> from bo_stream import HSGP
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
        >>> acqf = build("qucb", HSGP(X, X.sum(-1, keepdim=True), bounds=box))
        >>> optimize_acqf(acqf, box, q=3)[0].shape
        torch.Size([3, 2])
    """
    usual = all(value is DEFAULTS.get(key, value) for key, value in others.items())
    if usual and not options and others.keys() <= DEFAULTS.keys():
        found = _searched(acq_function, bounds, q)
        if found is not None:
            return found
    effort: Any = {"num_restarts": num_restarts, "raw_samples": raw_samples, "options": options}
    result: Any = searched_by_botorch(acq_function, bounds, q, **effort, **others)
    return cast(tuple[Tensor, Tensor], result)


@torch.no_grad()
def _searched(acqf: Any, bounds: Tensor, q: int) -> tuple[Tensor, Tensor] | None:
    """The maximisers and their value; None where the acquisition function is not of moments."""
    is_box = bool(bounds.isfinite().all() and (bounds[0] < bounds[1]).all())
    search = search_of(acqf, bounds, q) if is_box else None
    if search is None:
        return None
    state = torch.get_rng_state()
    found, own = search.best()
    X = torch.from_numpy(found).to(bounds)
    X = torch.minimum(torch.maximum(X, bounds[0]), bounds[1])
    value = value_of(acqf, search, X, own)
    if value is None:
        torch.set_rng_state(state)
        return None
    return X, value


def search_of(acqf: Any, bounds: Tensor, q: int) -> Search | None:
    """The search for q points; None where the acquisition function is not of moments."""
    model = acqf.model if type(acqf) in SEARCHED else None
    if not isinstance(model, GaussianModel) or model.num_outputs != 1:
        return None
    if not _inside(model, bounds, getattr(acqf, "X_pending", None)):
        return None
    process = model.expanded()
    target = None if process is None else _target(acqf, process, bounds, q)
    if process is None or target is None:
        return None
    return Search(process, target, _array(bounds), q)


def _inside(model: GaussianModel, *points: Tensor | None) -> bool:
    """Whether points are in a surrogate's bounds; farther out its posterior is that at the bounds,
    or refused.

    Raises:
        ShapeError, InputError: for points of another dimension, or not finite.
    """
    try:
        for X in points:
            if X is not None:
                model.transformed(X)
    except BoundsError:
        return False
    return True


def value_of(acqf: Any, search: Search, X: Tensor, own: float) -> Tensor | None:
    """The value at ``q x d`` points; None where that of the search, its ``own``, is another one.

    So it is of a function with constraints, or smoothed otherwise, which no attribute tells.
    """
    own = math.exp(own) if type(acqf) in IMPROVEMENTS else own
    if type(acqf) in PLAIN:
        return X.new_tensor(own)
    value: Tensor = acqf(X.unsqueeze(0))[0]
    near = AGREES * (1.0 if search.target.criterion.logarithmic else search.process.scale)
    return value if math.isclose(own, float(value), rel_tol=AGREES, abs_tol=near) else None


# -- acquisition functions as functions of moments -------------------------------------------------

IMPROVEMENTS = {ExpectedImprovement, qExpectedImprovement}
"""Those whose logarithms are maximised."""
OF_ONE = {ExpectedImprovement, LogExpectedImprovement, UpperConfidenceBound, PosteriorMean}
"""Those of one point."""
BOUNDS = {UpperConfidenceBound, qUpperConfidenceBound, PosteriorMean}
"""Upper bounds; the mean has no width."""
PLAIN = OF_ONE | BOUNDS
"""Those that take neither constraints nor ways of smoothing."""
SEARCHED = {
    *(PLAIN | IMPROVEMENTS),
    *(qLogExpectedImprovement, qLogNoisyExpectedImprovement, NIPV, MaxVariance),
}


def _target(acqf: Any, process: ExpandedProcess, bounds: Tensor, q: int) -> Target | None:
    """What is maximised in place of an acquisition function of these; None for some options."""
    no_points = bounds.new_zeros(0, bounds.shape[-1])
    pending = getattr(acqf, "X_pending", None)
    behind = no_points if pending is None else pending
    ahead = acqf.X_baseline if type(acqf) is qLogNoisyExpectedImprovement else no_points
    if ahead.ndim != 2 or behind.ndim != 2:
        return None
    held = _array(ahead), _array(behind)
    if isinstance(acqf, NIPV | MaxVariance):
        noise = float(acqf.surrogate.typical_noise()) * process.scale**2
        if isinstance(acqf, MaxVariance):
            return Target(Entropy(noise / process.scale**2, process.scale), *held)
        if acqf.noise_at is not None:
            return None
        test = _array(acqf.mc_points), _array(acqf.weights)
        total = float(process.marginals(test[0])[1] @ test[1])
        return Target(IntegratedVariance(noise, total), *held, process.sums_over(*test))
    numbers = [getattr(acqf, name, 0.0) for name in ("best_f", "beta", "beta_prime")]
    plain = all(torch.as_tensor(n).numel() == 1 and math.isfinite(n) for n in numbers)
    if acqf.posterior_transform is not None or not plain:
        return None
    best, beta, root = map(float, numbers)
    if type(acqf) in OF_ONE:
        if q > 1 or not acqf.maximize:
            return None
        none = np.empty((0, 1))
        of = UpperBound(none, beta) if type(acqf) in BOUNDS else LogImprovement(none, best)
        return Target(of, *held)
    z = _base_samples(acqf, bounds, q, len(ahead) + q + len(behind))
    if z is None:
        return None
    if type(acqf) in BOUNDS:
        return Target(UpperBound(z, 2.0 / math.pi * root**2), *held)
    width = getattr(acqf, "tau_relu", NARROW * process.scale)
    about = float(width), float(getattr(acqf, "tau_max", NARROW))
    return Target(LogImprovement(z, best, len(ahead), *about), *held)


def _base_samples(acqf: Any, bounds: Tensor, q: int, p: int) -> Array | None:
    """Base samples of p points, ``S x p``, as the acquisition function uses them."""
    zero = torch.zeros(1, p).to(bounds)
    posterior = GPyTorchPosterior(MultivariateNormal(zero, DiagLinearOperator(zero + 1.0)))
    if acqf.sampler is None:
        acqf.sampler = get_sampler(posterior, acqf.sample_shape)
    sampler, plain = acqf.sampler, isinstance(acqf.objective, IdentityMCObjective)
    if not plain or not isinstance(sampler, NormalMCSampler) or len(sampler.sample_shape) != 1:
        return None
    if type(acqf) is qLogNoisyExpectedImprovement:  # keeps those of its baseline
        acqf(bounds[0] + (bounds[1] - bounds[0]) * torch.rand(1, q, len(bounds.T)).to(bounds))
    else:
        sampler(posterior)
    return _array(cast(Tensor, sampler.base_samples)).reshape(-1, p)


def _array(t: Tensor) -> Array:
    return cast(Array, t.detach().cpu().double().numpy())
