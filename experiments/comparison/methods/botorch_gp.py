"""BoTorch's own loop: `SingleTaskGP` and the acquisition function its documentation recommends."""

import warnings
from typing import Any

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement, PosteriorMean
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim.optimize import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from experiments.comparison.budgeted_task import BudgetedTask

SEARCH: dict[str, Any] = {"num_restarts": 10, "raw_samples": 512}
"""As in BoTorch's tutorials."""


def solve(evaluate: BudgetedTask) -> None:
    """`LogExpectedImprovement` for exact outcomes one at a time, else
    `qLogNoisyExpectedImprovement`; under noise, the maximiser of the posterior mean is recommended.
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
        acqf: Any
        if task.deterministic and evaluate.batch == 1:
            acqf = LogExpectedImprovement(model, best_f=Y.max())
        else:
            acqf = qLogNoisyExpectedImprovement(model, X, prune_baseline=True)
        new, _ = optimize_acqf(acqf, bounds, q=evaluate.batch, **SEARCH)
        X = torch.cat([X, new])
        Y = torch.cat([Y, torch.from_numpy(-task.costs(evaluate(new.numpy())))])


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
