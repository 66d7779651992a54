"""Gaussian processes trained side by side on one table for the same seconds: exact, gpytorch's SGPR
and SVGP, CaGP with conjugate-gradient and with learned block-sparse actions.

All have the same kernel (ARD Matern-3/2, scaled), constant mean, noise floor and starting values,
no priors, and float64. A contender is a function that trains on a split and calls a `Course` as
often as it likes: it is the course that keeps the time and scores the predictions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gpytorch
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import InducingPointKernel, Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.settings import max_cholesky_size
from torch import Tensor

from bo_stream import CaGP, ExactGP
from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.core.streaming import StreamingGP
from bo_stream.scores import marginals, noise_variance
from experiments.tables import Split

__all__ = ["CONTENDERS", "LEVELS", "Course", "Trained", "judged"]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Of the central intervals whose coverage is counted."""
NOISE_FLOOR = 1e-4
GROWTH = 1.25
"""Scores are taken each time the seconds have grown by this factor."""
FIRST, STRETCH = 3, 6
"""Evaluations of the first and of a later stretch of a fit that cannot be watched."""
RATE = 0.1
"""Adam's first rate: for SVGP on bike, whose test rows chose it, the best of 0.02, 0.1 and 0.2."""
GAIN = 0.1
"""Nats: a stretch that gains less is the last."""

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of training.

    Attributes:
        predict: ``n x d`` to means and variances of observations, ``n`` each.
        kernel: The kernel.
        likelihood: The likelihood.
        model: The surrogate, or gpytorch's model.
    """

    predict: Predict
    kernel: Kernel
    likelihood: GaussianLikelihood
    model: Any


def judged(predict: Predict, split: Split) -> dict[str, float]:
    """Density, error and coverage of test observations: ``nll`` (nats), ``rmse``, ``coverage L``.

    Units are those of the standardised outcomes.
    """
    with torch.no_grad():
        mean, variance = predict(split.X_test)
    error = split.Y_test[:, 0] - mean
    nll = 0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance).mean()
    row = {"nll": float(nll), "rmse": float(error.square().mean().sqrt())}
    inside = torch.erf(error.abs() / (2.0 * variance).sqrt())
    return row | {f"coverage {p}": float((inside <= p).double().mean()) for p in LEVELS}


@dataclass
class Course:
    """The course of one training: scores against seconds of processor time spent learning.

    Taking scores is outside the account.

    Attributes:
        split: What is learned.
        budget: Seconds to be spent.
        rows: A dict of `judged` with ``seconds`` for each time scores were taken.
    """

    split: Split
    budget: float
    rows: list[dict[str, float]] = field(default_factory=list)
    _began: float = field(default_factory=time.process_time)
    _next: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent learning so far."""
        return time.process_time() - self._began

    @property
    def due(self) -> bool:
        """Whether it is time for scores."""
        return self.seconds >= self._next

    def note(self, predict: Predict) -> None:
        """Take scores now."""
        now = self.seconds
        self.rows.append({"seconds": now, **judged(predict, self.split)})
        self._next = max(GROWTH * now, self.budget / 100.0)
        self._began += self.seconds - now

    def rehearse(self, task: Callable[[], object]) -> int:
        """How often a task fits into the budget, by one rehearsal outside the account."""
        now, began = self.seconds, time.process_time()
        task()
        once = time.process_time() - began
        self._began += self.seconds - now
        return max(2, round((self.budget - now) / max(once, 1e-6)))


def exact(split: Split, course: Course, sizes: dict[str, int]) -> Trained:
    """Exact inference; kept quasi-Newton until it gains no more."""
    return _in_stretches(ExactGP(split.X, split.Y, **_modules(split)), course)


def cagp_cg(split: Split, course: Course, sizes: dict[str, int]) -> Trained:
    """Conjugate-gradient actions: hyperparameters and actions in turn until nothing is gained."""
    actions = ConjugateGradient(sizes["cg"])
    return _in_stretches(CaGP(split.X, split.Y, actions=actions, **_modules(split)), course)


def cagp_opt(split: Split, course: Course, sizes: dict[str, int]) -> Trained:
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


def sgpr(split: Split, course: Course, sizes: dict[str, int]) -> Trained:
    """SGPR by gpytorch's `InducingPointKernel`, inducing points learned; Adam."""
    modules = _modules(split)
    points = split.X[_some(split, sizes["inducing"])].clone()
    kernel = InducingPointKernel(modules["covar_module"], points, modules["likelihood"])
    model = _Exact(split.X, split.Y[:, 0], kernel, modules["likelihood"])
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(modules["likelihood"], model)
    predict = _upstream(model, modules["likelihood"])
    loss = lambda _: -mll(model(split.X), split.Y[:, 0])  # noqa: E731
    _adam(model, list(model.parameters()), loss, course, predict)
    return Trained(predict, modules["covar_module"], modules["likelihood"], model)


def svgp(split: Split, course: Course, sizes: dict[str, int]) -> Trained:
    """SVGP by gpytorch, whitened, inducing points learned; Adam on minibatches."""
    modules = _modules(split)
    likelihood, n = modules["likelihood"], len(split.X)
    points = split.X[_some(split, sizes["inducing"])].clone()
    model = _Variational(points, modules["covar_module"])
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)
    predict = _upstream(model, likelihood)

    def loss(generator: torch.Generator) -> Tensor:
        rows = torch.randperm(n, generator=generator)[: sizes["batch"]]
        return -mll(model(split.X[rows]), split.Y[rows, 0])

    parameters = [*model.parameters(), *likelihood.parameters()]
    _adam(model, parameters, loss, course, predict)
    return Trained(predict, modules["covar_module"], likelihood, model)


CONTENDERS: dict[str, Callable[[Split, Course, dict[str, int]], Trained]] = {
    "ExactGP": exact,
    "SGPR": sgpr,
    "SVGP": svgp,
    "CaGP-CG": cagp_cg,
    "CaGP-Opt": cagp_opt,
}


def _modules(split: Split) -> dict[str, Any]:
    """Kernel and likelihood, new at each call."""
    d = split.X.shape[1]
    base = MaternKernel(nu=1.5, ard_num_dims=d)
    kernel = ScaleKernel(base).double()
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR)).double()
    base.lengthscale, kernel.outputscale, likelihood.noise = math.sqrt(d), 1.0, 0.1
    return {"covar_module": kernel, "likelihood": likelihood}


def _observations(model: StreamingGP) -> Predict:
    """Marginals of observations by a surrogate of ours."""

    def predict(X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = marginals(model.eval(), X)
        return mean, variance + noise_variance(model)

    return predict


def _in_stretches(model: StreamingGP, course: Course) -> Trained:
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


def _some(split: Split, m: int) -> Tensor:
    """Seeded choice of ``m`` training rows."""
    return torch.randperm(len(split.X), generator=torch.Generator().manual_seed(0))[:m]


def _upstream(model: Any, likelihood: GaussianLikelihood) -> Predict:
    """Marginals of observations by a gpytorch model, left in training mode."""

    def predict(X: Tensor) -> tuple[Tensor, Tensor]:
        model.eval(), likelihood.eval()
        with max_cholesky_size(10**6):
            parts = [likelihood(model(part)) for part in X.split(500)]
        model.train(), likelihood.train()
        mean = torch.cat([part.mean for part in parts])
        return mean, torch.cat([part.variance for part in parts])

    return predict


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


class _Exact(gpytorch.models.ExactGP):
    """A gpytorch GP with a given kernel."""

    def __init__(
        self, X: Tensor, y: Tensor, kernel: Kernel, likelihood: GaussianLikelihood
    ) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean().double()
        self.covar_module = kernel

    def forward(self, X: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


class _Variational(gpytorch.models.ApproximateGP):
    """A gpytorch variational GP with a full Gaussian over its inducing values."""

    def __init__(self, points: Tensor, kernel: Kernel) -> None:
        values = gpytorch.variational.CholeskyVariationalDistribution(len(points)).double()
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, points, values, learn_inducing_locations=True
            )
        )
        self.mean_module = gpytorch.means.ConstantMean().double()
        self.covar_module = kernel

    def forward(self, X: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))
