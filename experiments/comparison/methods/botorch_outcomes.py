"""BoTorch's loops with constraints and several objectives, as in its tutorials.

A `SingleTaskGP` an outcome, built and fitted again after every evaluation; qLogNEI among what
satisfies the constraints, qLogNEHVI for several objectives.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.mlls import SumMarginalLogLikelihood
from torch import Tensor

from experiments.common.study import quiet
from experiments.comparison.budgeted_task import BudgetedTask
from experiments.comparison.tasks.task import Task

SEARCH: dict[str, Any] = {
    "num_restarts": 10,
    "raw_samples": 512,
    "options": {"batch_limit": 10, "maxiter": 200},
}
"""As in the tutorials."""
SAMPLES = 128


def solve(evaluate: BudgetedTask) -> None:
    """Maximise the acquisition function of the tutorials until the budget is spent."""
    task, bounds = evaluate.task, evaluate.bounds
    torch.manual_seed(evaluate.seed)
    X = torch.from_numpy(evaluate.design())
    Y = torch.from_numpy(evaluate(X.numpy()))
    with quiet():
        while True:
            acqf = acquisition(task, X, Y, bounds)
            x, _ = optimize_acqf(acqf, bounds, evaluate.batch, **SEARCH)
            X, Y = torch.cat([X, x]), torch.cat([Y, torch.from_numpy(evaluate(x.numpy()))])


def acquisition(task: Task, X: Tensor, Y: Tensor, bounds: Tensor) -> Any:
    """The acquisition function of models of objectives, to be maximised, and of violations."""
    costs, violations = (torch.from_numpy(f(Y.numpy())) for f in (task.costs, task.violations))
    m, d = costs.shape[-1], X.shape[-1]
    model = ModelListGP(
        *(
            SingleTaskGP(
                X,
                outcome,
                input_transform=Normalize(d, bounds=bounds),
                outcome_transform=Standardize(1),
            )
            for outcome in torch.cat([-costs, violations], -1).split(1, -1)
        )
    )
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    options: dict[str, Any] = {
        "prune_baseline": True,
        "sampler": SobolQMCNormalSampler(torch.Size([SAMPLES])),
        "constraints": [partial(outcome, i) for i in range(m, model.num_outputs)] or None,
    }
    if m == 1:
        objective = GenericMCObjective(partial(outcome, 0))
        return qLogNoisyExpectedImprovement(model, X, objective=objective, **options)
    point = [-value for value in task.reference or ()]
    return qLogNoisyExpectedHypervolumeImprovement(model, point, X, **options)


def outcome(i: int, Z: Tensor, X: Tensor | None = None) -> Tensor:
    """One outcome of samples; a violation is below 0 where its limit is kept."""
    return Z[..., i]
