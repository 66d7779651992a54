"""Gaussian processes trained side by side on one table for the same seconds: exact, gpytorch's SGPR
and SVGP, CaGP with conjugate-gradient and with learned block-sparse actions.

All have the same kernel (ARD Matern-3/2, scaled), constant mean, noise floor and starting values,
no priors, and float64. A contender is a function that trains on a split and calls a `Course` as
often as it likes: it is the course that keeps the time and scores the predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import gpytorch
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.kernels import MaternKernel
from linear_operator.settings import max_cholesky_size
from torch import Tensor

from bo_stream import CaGP, ExactGP
from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.scores import marginals, noise_variance
from experiments.common import upstream
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.common.splits import TableSplit
from experiments.computation_aware_tables.course import Course, Predict, Trained

__all__ = ["CONTENDERS"]

NOISE_FLOOR = 1e-4
FIRST, STRETCH = 3, 6
"""Evaluations of the first and of a later stretch of a fit that cannot be watched."""
RATE = 0.1
"""Adam's first rate: for SVGP on bike, whose test rows chose it, the best of 0.02, 0.1 and 0.2."""
GAIN = 0.1
"""Nats: a stretch that gains less is the last."""

Ours = ExactGP | CaGP


def exact(split: TableSplit, course: Course, sizes: dict[str, int]) -> Trained:
    """Exact inference; kept quasi-Newton until it gains no more."""
    return _in_stretches(ExactGP(split.X, split.Y, **_modules(split)), course)


def cagp_cg(split: TableSplit, course: Course, sizes: dict[str, int]) -> Trained:
    """Conjugate-gradient actions: hyperparameters and actions in turn until nothing is gained."""
    actions = ConjugateGradient(sizes["cg"])
    return _in_stretches(CaGP(split.X, split.Y, actions=actions, **_modules(split)), course)


def cagp_opt(split: TableSplit, course: Course, sizes: dict[str, int]) -> Trained:
    """Block-sparse actions learned with the hyperparameters; L-BFGS in legs."""
    model = CaGP(split.X, split.Y, actions=BlockSparse(sizes["actions"]), **_modules(split))
    mll, predict = model.make_mll(), _observations(model)

    def watch(_: int, __: float) -> None:
        if course.due:
            mll.commit()
            course.note(predict)
            mll.train()

    evaluations = course.rehearse(lambda: mll().backward())
    named = {"optimizer": "lbfgs", "max_evals": evaluations, "progress": watch}
    fit_gpytorch_mll(mll, optimizer_kwargs=named)
    course.note(predict)
    return Trained(predict, model.covar_module, model.likelihood, model)


def sgpr(split: TableSplit, course: Course, sizes: dict[str, int]) -> Trained:
    """SGPR by gpytorch's `InducingPointKernel`, inducing points learned; Adam."""
    modules = _modules(split)
    kernel, likelihood = modules["covar_module"], modules["likelihood"]
    points = split.X[_some(split, sizes["inducing"])]
    model = upstream.sgpr(split.X, split.Y[:, 0], kernel, points, likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    predict = partial(upstream.predicted, model, likelihood)

    def loss(_: torch.Generator) -> Tensor:
        return -mll(model(split.X), split.Y[:, 0])

    _adam(model, list(model.parameters()), loss, course, predict)
    return Trained(predict, kernel, likelihood, model)


def svgp(split: TableSplit, course: Course, sizes: dict[str, int]) -> Trained:
    """SVGP by gpytorch, whitened, inducing points learned; Adam on minibatches."""
    modules = _modules(split)
    likelihood, n = modules["likelihood"], len(split.X)
    points = split.X[_some(split, sizes["inducing"])]
    model = upstream.SVGP(points, modules["covar_module"])
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)
    predict = partial(upstream.predicted, model, likelihood)

    def loss(generator: torch.Generator) -> Tensor:
        rows = torch.randperm(n, generator=generator)[: sizes["batch"]]
        return -mll(model(split.X[rows]), split.Y[rows, 0])

    parameters = [*model.parameters(), *likelihood.parameters()]
    _adam(model, parameters, loss, course, predict)
    return Trained(predict, modules["covar_module"], likelihood, model)


CONTENDERS: dict[str, Callable[[TableSplit, Course, dict[str, int]], Trained]] = {
    "ExactGP": exact,
    "SGPR": sgpr,
    "SVGP": svgp,
    "CaGP-CG": cagp_cg,
    "CaGP-Opt": cagp_opt,
}


def _modules(split: TableSplit) -> dict[str, Any]:
    """Kernel and likelihood, new at each call."""
    d = split.X.shape[1]
    base = MaternKernel(nu=1.5, ard_num_dims=d)
    return RAW | {
        "covar_module": scaled(base, lengthscale=math.sqrt(d), outputscale=1.0),
        "likelihood": gaussian(noise=0.1, floor=NOISE_FLOOR),
    }


def _observations(model: Ours) -> Predict:
    """Marginals of observations by a surrogate of ours."""

    def predict(X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = marginals(model.eval(), X)
        return mean, variance + noise_variance(model)

    return predict


def _in_stretches(model: Ours, course: Course) -> Trained:
    """As many evaluations as fit into the budget, or until they gain no more."""
    predict, before, evaluations = _observations(model), -math.inf, FIRST
    while evaluations > 0:
        began, report = course.seconds, model.fit(evaluations)
        once = (course.seconds - began) / report.evaluations
        course.note(predict)
        if report.value - before < GAIN:
            break
        before = report.value
        evaluations = min(STRETCH, int((course.budget - course.seconds) / once))
    return Trained(predict, model.covar_module, model.likelihood, model)


def _some(split: TableSplit, m: int) -> Tensor:
    """Seeded choice of ``m`` training rows."""
    return torch.randperm(len(split.X), generator=torch.Generator().manual_seed(0))[:m]


def _adam(
    model: Any,
    parameters: list[torch.nn.Parameter],
    loss: Callable[[torch.Generator], Tensor],
    course: Course,
    predict: Predict,
) -> None:
    """As many steps as fit into the budget, the rate falling linearly to zero.

    With so many inducing points gpytorch would turn from Cholesky factors to iterations, which are
    slower here and random; and with its fast densities off, as BoTorch has them, SGPR would form an
    n x n matrix.
    """
    generator = torch.Generator().manual_seed(0)
    model.train()
    fast = gpytorch.settings.fast_computations(False, True, False)
    with fast, max_cholesky_size(10**6):
        steps = course.rehearse(lambda: loss(generator).backward())
        optimizer = torch.optim.Adam(parameters, lr=RATE)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE * (1.0 - step / steps)
            optimizer.zero_grad()
            loss(generator).backward()
            optimizer.step()
            if course.due and step + 1 < steps:
                course.note(predict)
        course.note(predict)
