"""BoTorch's own loop: `SingleTaskGP` and the acquisition function its documentation recommends."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement, PosteriorMean
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.generation.sampling import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim.optimize import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from experiments.comparison.budgeted_task import BudgetedTask

SEARCH: dict[str, Any] = {"num_restarts": 10, "raw_samples": 512}
"""As in BoTorch's tutorials."""
CANDIDATES = 1000
"""Of Thompson sampling."""


def solve(evaluate: BudgetedTask, acquisition: Mapping[str, Any] | None = None) -> None:
    """`LogExpectedImprovement` for exact outcomes one at a time, else
    `qLogNoisyExpectedImprovement`; under noise, the maximiser of the posterior mean is recommended.

    ``acquisition`` is the name of another one with its options: ``qucb``; ``qlogei``, over the best
    posterior mean at an observed point; ``thompson``, the best of 1,000 Sobol points for joint
    samples.
    """
    warnings.simplefilter("ignore")
    torch.manual_seed(evaluate.seed)
    task, bounds = evaluate.task, evaluate.bounds
    X = torch.from_numpy(evaluate.design())
    Y = torch.from_numpy(-task.costs(evaluate(X.numpy())))
    while True:
        model = fitted(X, Y, bounds)
        if not task.deterministic:
            evaluate.recommender = lambda model=model, X=X: best_mean(model, X, bounds)
        how = {"name": "qlognei"} if acquisition is None else acquisition
        if acquisition is None and task.deterministic and evaluate.batch == 1:
            how = {"name": "logei"}
        new = chosen(how, model, X, Y, bounds, evaluate.batch)
        X = torch.cat([X, new])
        Y = torch.cat([Y, torch.from_numpy(-task.costs(evaluate(new.numpy())))])


def chosen(
    acquisition: Mapping[str, Any],
    model: SingleTaskGP,
    X: Tensor,
    Y: Tensor,
    bounds: Tensor,
    q: int,
) -> Tensor:
    """The next points, ``q x d``, by BoTorch's acquisition functions and its search."""
    options = dict(acquisition)
    name = options.pop("name")
    acqf: Any
    if name == "thompson":
        candidates = draw_sobol_samples(bounds, n=CANDIDATES, q=1).squeeze(1)
        drawn = MaxPosteriorSampling(model, replacement=False, **options)
        with torch.no_grad():
            return drawn(candidates, num_samples=q)
    if name == "qucb":
        acqf = qUpperConfidenceBound(model, **options)
    elif name == "qlogei":
        with torch.no_grad():
            best = model.posterior(X).mean.max()
        acqf = qLogExpectedImprovement(model, best_f=best, **options)
    elif name == "logei":
        acqf = LogExpectedImprovement(model, best_f=Y.max())
    else:
        acqf = qLogNoisyExpectedImprovement(model, X, prune_baseline=True, **options)
    return optimize_acqf(acqf, bounds, q=q, **SEARCH)[0]


def fitted(X: Tensor, Y: Tensor, bounds: Tensor) -> SingleTaskGP:
    """A GP with the default priors and transforms, its hyperparameters fitted."""
    model = SingleTaskGP(X, Y, input_transform=Normalize(X.shape[-1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def best_mean(model: SingleTaskGP, X: Tensor, bounds: Tensor) -> np.ndarray:
    """The maximiser of the posterior mean, over the box and the points told."""
    acqf = PosteriorMean(model)
    with torch.no_grad():
        told = acqf(X.unsqueeze(1))
    found, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=256)
    best = found[0] if value is not None and value > told.max() else X[told.argmax()]
    return best.numpy()
