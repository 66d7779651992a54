"""Acquisition functions by name, over any surrogate, as BoTorch objects for `optimize_acqf`."""

from __future__ import annotations

import inspect
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from botorch.acquisition.analytic import ExpectedImprovement
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.acquisition.logei import (
    TAU_RELU,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models.model import Model, ModelList
from botorch.sampling.base import MCSampler
from botorch.sampling.list_sampler import ListSampler
from botorch.sampling.normal import IIDNormalSampler, SobolQMCNormalSampler
from torch import Tensor

from acquisitions.closed import (
    ClosedExpectedImprovement,
    ClosedLogExpectedImprovement,
    ClosedUpperConfidenceBound,
    offered,
    scales,
)
from acquisitions.domain import Domain
from acquisitions.thompson import ThompsonSampling
from acquisitions.variance import (
    NIPV,
    MaxVariance,
    Random,
    near_most_uncertain,
    response_nipv,
    select_from_pool,
)
from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.gaussian_model import GaussianModel, shift_and_scale
from bo_stream.errors import InputError
from bo_stream.mathematics.autograd import lasting
from bo_stream.surrogates.counts import CountGP

__all__ = ["NAMES", "POLICIES", "REGISTERED", "PoolPolicy", "build", "register", "sampler_for"]

DATA: dict[str, tuple[str, ...]] = {
    "qucb": ("X_pending",),
    "ei": ("best_f", "X_pending"),
    "qlogei": ("best_f", "X_pending"),
    "qlognei": ("X_baseline", "X_pending"),
    "qlognehvi": ("X_baseline", "X_pending"),
    "nipv": ("X_pending", "mc_points", "weights", "trials"),
    "max_variance": ("X_pending",),
    "random": (),
    "thompson": ("bounds", "near", "ensemble", "region", "domain"),
}
"""Names of the acquisition functions, and the data that each of them takes."""

POLICIES = ("nipv", "max_variance", "random", "near_most_uncertain")
"""Names of policies over a pool."""

LOCKED = 600.0
"""Seconds after which a lock was probably left behind; compiling takes less than a minute."""
OF_SEVERAL = ("qlognehvi",)
"""Names of those that need several outcomes."""

NAMES = tuple(name for name in DATA if name not in OF_SEVERAL)
"""Names of the acquisition functions of one outcome."""

PASSED = ("X_baseline", "best_f", "X_pending", "mc_points", "bounds")
"""Data that functions of users may take."""

REGISTERED: dict[str, Callable[..., Any]] = {}
"""What builds the acquisition functions that were registered, by name."""

REQUIRED = {
    "ei": ("best_f",),
    "qlogei": ("best_f",),
    "qlognei": ("X_baseline",),
    "qlognehvi": ("X_baseline", "ref_point"),
    "nipv": ("mc_points",),
}
"""What each cannot do without."""

REMEDIES = {
    "best_f": "Pass the best value so far: a stream does not keep it.",
    "X_baseline": "Pass points already observed: a stream keeps none. The best hundred will do.",
    "ref_point": "Pass the outcomes that every objective has to exceed.",
    "mc_points": "Pass the test points over which the variance is averaged, `P x d`, raw.",
}

OPTIONS: dict[str, tuple[str, ...]] = {
    "qucb": ("beta", "num_samples", "seed"),
    "qlogei": ("num_samples", "seed"),
    "qlognei": ("num_samples", "seed"),
    "qlognehvi": ("num_samples", "seed"),
    "thompson": ("samples", "explore", "jitter"),
}
"""Options that can be set by name and value; the others have none."""


def register(name: str, make: Callable[..., Any]) -> None:
    """Give an acquisition function of your own a name, by which `build` and campaigns find it.

    A program that resumes a campaign with this acquisition function has to register it first.

    Args:
        name: A name that no acquisition function of this package has. One that was registered
            before is replaced.
        make: Returns a BoTorch acquisition function of ``(model, **data)``. It is passed those of
            ``X_baseline``, ``best_f``, ``X_pending``, ``mc_points`` and ``bounds`` that it has
            parameters for, and the options that are given with its name.

    Raises:
        InputError: for a name of this package, or what cannot be called.

    Example:
        >>> from botorch.acquisition.analytic import ProbabilityOfImprovement
        >>> def improves(model, best_f):
        ...     return ProbabilityOfImprovement(model, best_f)
        >>> register("improves", improves)
    """
    if not callable(make):
        raise InputError("a callable that builds an acquisition function", repr(make), "Give one.")
    if name in DATA and name not in REGISTERED:
        raise InputError(
            "a name that no acquisition function has", repr(name), "Choose another name."
        )
    names = list(inspect.signature(make).parameters)[1:]
    REGISTERED[name] = make
    DATA[name] = tuple(key for key in names if key in PASSED)
    OPTIONS[name] = tuple(key for key in names if key not in PASSED)


def sampler_for(model: Model, samples: torch.Size, seed: int | None = None) -> MCSampler:
    """The sampler of a model's posterior.

    Where a list of models has no joint posterior, as one of warped outcomes, each member has base
    samples of its own. From one seed BoTorch would draw the same for all, and independent outcomes
    would rise and fall together.
    """
    if not isinstance(model, ModelList) or supports_cache_root(model):
        return SobolQMCNormalSampler(samples, seed=seed)
    seeds = [None if seed is None else seed + i for i in range(len(model.models))]
    return ListSampler(*(IIDNormalSampler(samples, seed=one) for one in seeds))


@lasting
def build(
    name: str,
    model: Model,
    *,
    X_baseline: Tensor | None = None,
    best_f: float | Tensor | None = None,
    X_pending: Tensor | None = None,
    mc_points: Tensor | None = None,
    weights: Tensor | None = None,
    beta: float = 4.0,
    num_samples: int = 128,
    seed: int | None = None,
    bounds: Tensor | None = None,
    near: Tensor | None = None,
    ensemble: KernelEnsemble | None = None,
    region: Tensor | None = None,
    domain: Domain | None = None,
    trials: Any = None,
    **kw: Any,
) -> Any:
    """Build an acquisition function by name; arguments that it does not use are ignored.

    A surrogate keeps neither the observed points nor the best value: the caller keeps and passes
    them.

    Args:
        name: ``qucb`` (upper confidence bound), ``ei`` (expected improvement, one point at a time),
            ``qlogei``, ``qlognei`` (noisy, over a baseline), ``qlognehvi`` (hypervolume of several
            outcomes; needs ``ref_point``), ``nipv`` (integrated variance), ``max_variance``,
            ``random``, ``thompson`` (samples of the posterior).
        model: A surrogate of `bo_stream`, or any BoTorch model except for ``nipv`` and
            ``max_variance``. Of a `CountGP`, ``nipv`` integrates the variance of the prevalence or
            rate, and the others take the latent surface.
        X_baseline: ``n x d`` raw points already observed; for ``qlognei`` and ``qlognehvi``.
        best_f: Best value so far, raw; for ``ei`` and ``qlogei``. With noise, the best posterior
            mean at observed points rather than the best observation.
        X_pending: ``n' x d`` raw points under evaluation.
        mc_points: ``P x d`` raw test points; for ``nipv``.
        weights: ``P`` weights of the test points; for ``nipv``.
        beta: Trade-off of ``qucb`` between mean and standard deviation, as in BoTorch.
        num_samples: Quasi-Monte-Carlo samples of ``qucb``, ``qlogei``, ``qlognei``, ``qlognehvi``.
        seed: Seed of these samples; by default they come from torch's global generator.
        bounds: ``2 x d`` raw bounds of the search; for ``thompson``.
        near: ``k x d`` raw points around which ``thompson`` searches too.
        ensemble: Kernels that ``thompson`` samples from beside the surrogate's own.
        region: Where ``thompson`` draws some points, ``2 x d``.
        domain: The feasible set in place of bounds; for ``thompson``.
        trials: Trials or exposure of a future count; for ``nipv`` of a `CountGP`.
        kw: Further arguments of `ThompsonSampling` or of the BoTorch class (``objective``,
            ``posterior_transform``, ...).

    Returns:
        The acquisition function, to be maximised; `ThompsonSampling` proposes points itself.
        ``qucb``, ``ei`` and ``qlogei`` without further
        arguments, over a `WISKI` or an `HSGP` of one output, are subclasses of BoTorch's with the
        same values and gradients in closed form.

    Raises:
        InputError: for an unknown name, or if a required argument is missing.
    """
    values = X_baseline, best_f, X_pending, mc_points, bounds
    data: dict[str, Any] = dict(zip(PASSED, values, strict=True))
    if name in REGISTERED:
        return REGISTERED[name](model, **{key: data[key] for key in DATA[name]}, **kw)
    for key in REQUIRED.get(name, ()):
        if {**data, **kw}.get(key) is None:
            raise InputError(f"{key} for {name!r}", "none", REMEDIES[key])
    if isinstance(model, CountGP):
        if name == "nipv" and weights is None:
            return response_nipv(model, data["mc_points"], trials, X_pending)
        model = model.model
    sampler = sampler_for(model, torch.Size([num_samples]), seed)
    ours = cast(GaussianModel, model)  # NIPV and MaxVariance refuse other models
    plain = not kw and not (isinstance(best_f, Tensor) and best_f.numel() > 1)
    closed = name in ("qucb", "qlogei") and plain and offered(model)
    about: dict[str, Any] = {"sampler": sampler, "X_pending": X_pending}
    raw = not {"objective", "posterior_transform"} & kw.keys()
    width: dict[str, Any] = {"tau_relu": TAU_RELU * shift_and_scale(model)[1]} if raw else {}
    match name:
        case "qucb" if closed:
            return ClosedUpperConfidenceBound(ours, beta, **about)
        case "qucb":
            return qUpperConfidenceBound(model, beta, **about, **kw)
        case "ei":
            acqf = (
                ClosedExpectedImprovement(ours, data["best_f"])
                if plain and scales(model)
                else ExpectedImprovement(model, data["best_f"], **kw)
            )
            if X_pending is not None:
                acqf.set_X_pending(X_pending)  # BoTorch refuses it with an explanation
            return acqf
        case "qlogei" if closed:
            return ClosedLogExpectedImprovement(ours, data["best_f"], **about, **width)
        case "qlogei":
            return qLogExpectedImprovement(model, data["best_f"], **{**about, **width, **kw})
        case "qlognei":
            options = {"prune_baseline": True, **about, **width, **kw}
            return qLogNoisyExpectedImprovement(model, data["X_baseline"], **options)
        case "qlognehvi":
            _warn_of_lock()
            options = {"prune_baseline": True, **about, **kw}
            return qLogNoisyExpectedHypervolumeImprovement(
                model, X_baseline=data["X_baseline"], **options
            )
        case "thompson":
            where: dict[str, Any] = {"near": near, "region": region, "domain": domain}
            return ThompsonSampling(ours, bounds, ensemble=ensemble, **where, **kw)
        case "nipv":
            return NIPV(ours, data["mc_points"], X_pending=X_pending, weights=weights, **kw)
        case "max_variance":
            return MaxVariance(ours, X_pending, **kw)
        case "random":
            return Random(model, **kw)
    raise InputError(
        f"the name of an acquisition function, one of {', '.join([*NAMES, *REGISTERED])}",
        repr(name),
        "Choose one of these.",
    )


class PoolPolicy:
    """A pool policy: ``(model, test_X, pool_X, q)`` to q pool indices.

    Candidates have the typical noise: the learned one or, for known noise, the mean over the cells
    queried so far. A cell's published standard deviation is not used, because it depends on the
    cell's value, which is unknown before the measurement, and would favour low values.

    Args:
        name: ``nipv``, ``max_variance``, ``random`` or ``near_most_uncertain``.
        chunk_size: Candidates scored at a time.

    Raises:
        InputError: for an unknown name.

    Example:
        >>> from bo_stream import WISKI
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> model = WISKI(X, X.sum(-1, keepdim=True), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> len(PoolPolicy("nipv")(model, X, torch.rand(50, 2, dtype=torch.double), 3))
        3
    """

    def __init__(self, name: str, chunk_size: int = 4096) -> None:
        if name not in POLICIES:
            raise InputError(
                f"the name of a pool policy, one of {', '.join(POLICIES)}",
                repr(name),
                "Choose one of these, or write a function (model, test_X, pool, q).",
            )
        self.name = name
        self.chunk_size = chunk_size
        self._nipv: NIPV | None = None

    def __call__(self, model: Model, test_X: Tensor, pool: Tensor, q: int) -> Tensor:
        """Indices of the q cells to measure next, in order of choice."""
        if self.name == "random":
            return torch.randperm(len(pool))[:q].to(pool.device)
        if self.name == "near_most_uncertain":
            return near_most_uncertain(model, test_X, pool, q)
        if self.name == "max_variance":
            return select_from_pool(build(self.name, model), pool, q, self.chunk_size)[0]
        acqf = self._nipv
        if acqf is None or acqf.model is not model or not torch.equal(acqf.mc_points, test_X):
            # kept between steps, because sums over the test points are reused
            acqf = self._nipv = cast(NIPV, build(self.name, model, mc_points=test_X))
        return select_from_pool(acqf, pool, q, self.chunk_size)[0]


def _warn_of_lock() -> None:
    """Name a lock that BoTorch's compiled extension would wait for without a message."""
    from torch.utils.cpp_extension import get_default_build_root  # slow to import

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in root.glob("**/logei_fused_ext/lock"):
        if time.time() - lock.stat().st_mtime > LOCKED:
            warnings.warn(
                f"BoTorch waits until {lock} is gone. If no other program is compiling, a killed "
                "one left it behind: delete it.",
                stacklevel=3,
            )
