"""Acquisition functions by name, over any surrogate, as BoTorch objects for `optimize_acqf`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.acquisition.analytic import AnalyticAcquisitionFunction, ExpectedImprovement
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

from acquisitions.learning import (
    NIPV,
    MaxVariance,
    Random,
    response_nipv,
)
from acquisitions.rule import DATA, REGISTRY, SAMPLING, register
from acquisitions.thompson import ThompsonSampling
from bo_stream.base.gaussian_model import GaussianModel, shift_and_scale
from bo_stream.campaign.refitted import Refitted
from bo_stream.errors import InputError
from bo_stream.mathematics.autograd import lasting
from bo_stream.surrogates.counts import CountGP

__all__ = ["NAMES", "build", "sampler_for"]

LOCKED = 600.0
"""Seconds after which a lock was probably left behind; compiling takes less than a minute."""

PART = 128
"""Number of test points at most of a model of BoTorch: with all of them a search needs 20 GB."""

REMEDIES = {
    "best_f": "Pass the best value so far: a stream does not keep it.",
    "X_baseline": "Pass points already observed: a stream keeps none. The best hundred will do.",
    "ref_point": "Pass the outcomes that every objective has to exceed.",
    "mc_points": "Pass the test points over which the variance is averaged, `P x d`, raw.",
}


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


def _qucb(
    model: Model,
    *,
    sampler: MCSampler,
    X_pending: Tensor | None = None,
    beta: float = 4.0,
    **kw: Any,
) -> AcquisitionFunction:
    return qUpperConfidenceBound(model, beta, sampler=sampler, X_pending=X_pending, **kw)


def _nipv(
    model: Model,
    *,
    mc_points: Tensor,
    X_pending: Tensor | None = None,
    weights: Tensor | None = None,
    trials: Any = None,
    **kw: Any,
) -> AcquisitionFunction:
    if isinstance(model, Refitted):
        some = torch.randperm(len(mc_points), generator=torch.Generator().manual_seed(0))[:PART]
        return qNegIntegratedPosteriorVariance(model.model, mc_points[some], X_pending=X_pending)
    ours = cast(GaussianModel, model)  # NIPV refuses other models
    return NIPV(ours, mc_points, X_pending=X_pending, weights=weights, **kw)


OF_ONE_OUTCOME: dict[str, Callable[..., Any]] = {
    "qucb": _qucb,
    "ei": ExpectedImprovement,
    "qlogei": qLogExpectedImprovement,
    "qlognei": qLogNoisyExpectedImprovement,
    "nipv": _nipv,
    "max_variance": MaxVariance,
    "random": Random,
    "thompson": ThompsonSampling,
}
for key, make in OF_ONE_OUTCOME.items():
    register(key, make, ours=True)
NAMES = tuple(OF_ONE_OUTCOME)
"""Names of the acquisition functions of one outcome."""
register("qlognehvi", qLogNoisyExpectedHypervolumeImprovement, outcomes=2, ours=True)

OPTIONAL = DATA | SAMPLING | {"beta", "explore", "jitter", "samples"}
"""What each of these functions ignores unless it has a parameter of the name."""


@lasting
def build(name: str, model: Model, **given: Any) -> Any:
    """Build an acquisition function by name; data that it does not use are ignored.

    A surrogate keeps neither the observed points nor the best value: the caller keeps and passes
    them.

    Args:
        name: ``qucb`` (upper confidence bound), ``ei`` (expected improvement, one point at a time),
            ``qlogei``, ``qlognei`` (noisy, over a baseline), ``qlognehvi`` (hypervolume of several
            outcomes; needs ``ref_point``), ``nipv`` (integrated variance), ``max_variance``,
            ``random``, ``thompson`` (samples of the posterior), or one that was registered.
        model: A surrogate of `bo_stream`, or any BoTorch model except for ``nipv`` and
            ``max_variance``. Of a `CountGP`, ``nipv`` integrates the variance of the prevalence or
            rate, and the others take the latent surface.
        given: Data and options:

            - ``X_baseline``: ``n x d`` raw points already observed; for ``qlognei``, ``qlognehvi``;
            - ``best_f``: best value so far, raw; for ``ei`` and ``qlogei``. With noise, the best
              posterior mean at observed points rather than the best observation;
            - ``X_pending``: ``n' x d`` raw points under evaluation;
            - ``mc_points``, ``weights``: ``P x d`` raw test points and their ``P`` weights; for
              ``nipv``; of a `CountGP` also ``trials``, trials or exposure of a future count;
            - ``beta``: trade-off of ``qucb`` between mean and standard deviation, as in BoTorch;
            - ``num_samples``, ``seed``: of the quasi-Monte-Carlo samples of ``qucb``, ``qlogei``,
              ``qlognei``, ``qlognehvi``; by default 128, from torch's global generator;
            - ``bounds``, ``near``, ``ensemble``, ``region``, ``domain``, ``samples``, ``explore``,
              ``jitter``: of `ThompsonSampling`;
            - further arguments of the BoTorch class (``objective``, ``posterior_transform``, ...).

    Returns:
        The acquisition function, to be maximised, as by `acquisitions.optimize_acqf`;
        `ThompsonSampling` proposes points itself.

    Raises:
        InputError: for an unknown name, or if a required argument is missing.
    """
    functions = {key: entry for key, entry in REGISTRY.items() if not entry.is_rule}
    if name not in functions:
        known = ", ".join(functions)
        what = f"the name of an acquisition function, one of {known}"
        raise InputError(what, repr(name), "Choose one of these.")
    entry = functions[name]
    for key, remedy in REMEDIES.items():
        if key in entry.required and given.get(key) is None:
            raise InputError(f"{key} for {name!r}", "none", remedy)
    if entry.ours and isinstance(model, CountGP):
        if name == "nipv" and given.get("weights") is None:
            about = given["mc_points"], given.get("trials"), given.get("X_pending")
            return response_nipv(model, *about)
        model = model.model
    if entry.ours or "sampler" in entry.data:
        size = torch.Size([given.pop("num_samples", 128)])
        given.setdefault("sampler", sampler_for(model, size, given.pop("seed", None)))
    ignored = OPTIONAL if entry.ours else DATA
    names = entry.data | (entry.options or set())
    if entry.ours:
        changed = given.keys() & {"objective", "posterior_transform"}
        width = 1.0 if changed else shift_and_scale(model)[1]
        usual = {"prune_baseline": True, "tau_relu": TAU_RELU * width}
        given = {key: value for key, value in usual.items() if key in names} | given
    if name == "qlognehvi":
        _warn_of_lock()
    given = dict.fromkeys(entry.data.intersection(entry.required)) | given
    used = {key: value for key, value in given.items() if key in names or key not in ignored}
    acqf = entry.make(model, **used)
    if given.get("X_pending") is not None and isinstance(acqf, AnalyticAcquisitionFunction):
        acqf.set_X_pending(given["X_pending"])  # BoTorch refuses it with an explanation
    return acqf


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
