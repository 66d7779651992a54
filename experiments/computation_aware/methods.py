"""Gaussian processes trained side by side on one table for the same seconds: exact, gpytorch's SGPR
and SVGP, CaGP with conjugate-gradient and with learned block-sparse actions.

All have the same kernel (ARD Matern-3/2, scaled), constant mean, noise floor and starting values,
no priors, and float64. A method trains on the split of a `Training` and calls it as often as it
likes: it keeps the time and scores the predictions.
"""

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
from experiments.common.baselines.gpytorch_sparse import SGPR, SVGP, predicted
from experiments.common.baselines.surrogates import observations
from experiments.common.data import TableSplit
from experiments.common.kernels import RAW, gaussian, scaled
from experiments.computation_aware.training import Predict, Trained, Training

NOISE_FLOOR = 1e-4
FIRST, STRETCH = 3, 6
"""Evaluations of the first and of a later stretch of a fit that cannot be watched."""
RATE = 0.1
"""Adam's first rate: for SVGP on bike, whose test rows chose it, the best of 0.02, 0.1 and 0.2."""
GAIN = 0.1
"""Nats: a stretch that gains less is the last."""

Sizes = dict[str, int]


def exact(training: Training, sizes: Sizes) -> Trained:
    """Exact inference; kept quasi-Newton until it gains no more."""
    split = training.split
    return _in_stretches(ExactGP(split.X, split.Y, **_modules(split)), training)


def cagp_cg(training: Training, sizes: Sizes) -> Trained:
    """Conjugate-gradient actions: hyperparameters and actions in turn until nothing is gained."""
    split, actions = training.split, ConjugateGradient(sizes["cg"])
    return _in_stretches(CaGP(split.X, split.Y, actions=actions, **_modules(split)), training)


def cagp_opt(training: Training, sizes: Sizes) -> Trained:
    """Block-sparse actions learned with the hyperparameters; L-BFGS in legs."""
    split, actions = training.split, BlockSparse(sizes["actions"])
    model = CaGP(split.X, split.Y, actions=actions, **_modules(split))
    mll, predict = model.make_mll(), partial(observations, model)

    def watch(_: int, __: float) -> None:
        if training.due:
            mll.commit()
            training.note(predict)
            mll.train()

    evaluations = training.rehearse(lambda: mll().backward())
    named = {"optimizer": "lbfgs", "max_evals": evaluations, "progress": watch}
    fit_gpytorch_mll(mll, optimizer_kwargs=named)
    training.note(predict)
    return Trained(predict, model.covar_module, model.likelihood, model)


def sgpr(training: Training, sizes: Sizes) -> Trained:
    """SGPR by gpytorch's `InducingPointKernel`, inducing points learned; Adam."""
    split, modules = training.split, _modules(training.split)
    kernel, likelihood = modules["covar_module"], modules["likelihood"]
    points = split.X[_some(split, sizes["inducing"])]
    model = SGPR(split.X, split.Y[:, 0], kernel, points, likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def loss(_: torch.Generator) -> Tensor:
        return -mll(model(split.X), split.Y[:, 0])

    predict = partial(predicted, model, likelihood)
    _adam(model, list(model.parameters()), loss, training, predict)
    return Trained(predict, kernel, likelihood, model)


def svgp(training: Training, sizes: Sizes) -> Trained:
    """SVGP by gpytorch, whitened, inducing points learned; Adam on minibatches."""
    split, modules = training.split, _modules(training.split)
    kernel, likelihood, n = modules["covar_module"], modules["likelihood"], len(split.X)
    model = SVGP(split.X[_some(split, sizes["inducing"])], kernel)
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)

    def loss(generator: torch.Generator) -> Tensor:
        rows = torch.randperm(n, generator=generator)[: sizes["batch"]]
        return -mll(model(split.X[rows]), split.Y[rows, 0])

    predict = partial(predicted, model, likelihood)
    _adam(model, [*model.parameters(), *likelihood.parameters()], loss, training, predict)
    return Trained(predict, kernel, likelihood, model)


METHODS: dict[str, Callable[[Training, Sizes], Trained]] = {
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


def _in_stretches(model: ExactGP | CaGP, training: Training) -> Trained:
    """As many evaluations as fit into the budget, or until they gain no more."""
    predict, before, evaluations = partial(observations, model), -math.inf, FIRST
    while evaluations > 0:
        began, report = training.seconds, model.fit(evaluations)
        once = (training.seconds - began) / report.evaluations
        training.note(predict)
        if report.value - before < GAIN:
            break
        before = report.value
        evaluations = min(STRETCH, int((training.budget - training.seconds) / once))
    return Trained(predict, model.covar_module, model.likelihood, model)


def _some(split: TableSplit, m: int) -> Tensor:
    """Seeded choice of ``m`` training rows."""
    return torch.randperm(len(split.X), generator=torch.Generator().manual_seed(0))[:m]


def _adam(
    model: Any,
    parameters: list[torch.nn.Parameter],
    loss: Callable[[torch.Generator], Tensor],
    training: Training,
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
        steps = training.rehearse(lambda: loss(generator).backward())
        optimizer = torch.optim.Adam(parameters, lr=RATE)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE * (1.0 - step / steps)
            optimizer.zero_grad()
            loss(generator).backward()
            optimizer.step()
            if training.due and step + 1 < steps:
                training.note(predict)
        training.note(predict)
