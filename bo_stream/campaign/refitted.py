"""Any model of BoTorch as a surrogate of campaigns: built again for new data, fitted on a schedule.

O(n^3) for each batch of outcomes: for campaigns of a few hundred trials.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar, Self, cast

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.model import Model
from botorch.models.transforms.input import Normalize
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.likelihoods import Likelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from bo_stream.base.fitting import FitReport, shortfall
from bo_stream.base.gaussian_model import GaussianModel, PosteriorSnapshot
from bo_stream.base.streaming_gp import PredictiveScore
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.linalg import chol_psd

__all__ = ["Refitted", "refitted"]

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Refitted(GaussianModel):
    """A model of BoTorch with one output that keeps its data, and learns from more of them.

    For new data the model is built again, with the hyperparameters that it had; `fit` learns these
    by `fit_gpytorch_mll`. Everything is in raw units.

    Args:
        make: Builds the model of ``(X, Y, Yvar)``.
        X: ``n x d`` points.
        Y: ``n x 1`` outcomes.
        Yvar: ``n x 1`` noise variances, or None where noise is learned.
        bounds: ``2 x d``.
    """

    def __init__(
        self,
        make: Callable[..., Model],
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None,
        bounds: Tensor | None,
    ) -> None:
        super().__init__((X.shape[-1], 1), X, bounds, None, None)
        self.make, self.data = make, (X, Y, Yvar)
        self.model = make(*self.data)

    @property
    def num_observed(self) -> int:
        """Number of outcomes."""
        return len(self.data[0])

    @property
    def likelihood(self) -> Likelihood:
        """That of the model."""
        return cast(Likelihood, self.model.likelihood)

    @property
    def refit_due(self) -> bool:
        """False: schedules decide."""
        return False

    def refresh(self) -> Self:
        """Do nothing: posteriors are computed when they are asked for."""
        return self

    def renewed(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Refitted:
        """A surrogate of these data with the same hyperparameters."""
        made = Refitted(self.make, X, Y, Yvar, self.bounds)
        return made.with_parameters(dict(self.model.named_parameters()))

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> Self:
        """The surrogate itself, which takes over hyperparameters by name."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(parameters[name])
        return self

    def dumps(self) -> bytes:
        """Data and hyperparameters, as `torch.save` writes them."""
        named = {name: value.detach() for name, value in self.model.named_parameters()}
        file = BytesIO()
        torch.save({"data": self.data, "parameters": named}, file)
        return file.getvalue()

    def observe(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Self:
        """Learn from further outcomes."""
        more = zip(self.data, (X, Y, Yvar), strict=True)
        data = [None if old is None or new is None else torch.cat([old, new]) for old, new in more]
        made = self.renewed(*cast(Any, data))
        self.data, self.model = made.data, made.model
        return self

    def restandardise(self, Y: Tensor) -> Self:
        """Do nothing: the model's transforms are learned from all outcomes."""
        return self

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit hyperparameters, from those of before, with at most so many iterations."""
        model = cast(ExactGP, self.model)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        limit = {} if max_evals is None else {"options": {"maxiter": max_evals}}
        fit_gpytorch_mll(mll, optimizer_kwargs=limit)
        mll.train()
        value = mll(model(*model.train_inputs), model.train_targets).sum().item()
        mll.eval()
        return FitReport(0, value * self.num_observed, True)

    def predictive_score(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> PredictiveScore:
        """The log density of outcomes, and its deviation from its expectation."""
        with torch.no_grad():
            point = self.process().at(X)
            noise = self.typical_noise().expand_as(Y) if Yvar is None else Yvar
            L = chol_psd(point.covariance(point) + noise.mT.diag_embed())
            white = torch.linalg.solve_triangular(L, (Y.mT - point.mean).unsqueeze(-1), upper=False)
        log_density = -0.5 * (white.square().sum() + white.numel() * math.log(2.0 * math.pi))
        log_density = log_density - L.diagonal(dim1=-2, dim2=-1).log().sum()
        return PredictiveScore(log_density, *shortfall(white))

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The model's posterior, as `botorch.models.model.Model.posterior`."""
        return self.model.posterior(self._moved_inside(X), *args, **kwargs)

    def _snapshot(self) -> PosteriorSnapshot:
        model = self.model
        with torch.no_grad():
            noisy, plain = (_posterior(model, self.data[0][:1], noise) for noise in (True, False))
            noise = (noisy.variance - plain.variance)[0]
        return PosteriorSnapshot(cast(Any, ModelProcess(model)), noise, None)


@dataclass(frozen=True)
class ModelProcess:
    """The posterior of a model as a process over raw points; it has no functions to draw.

    Attributes:
        model: A model of one output.
    """

    model: Model

    expansion: ClassVar[None] = None

    def at(self, X: Tensor) -> ModelPoints:
        """The posterior at points ``batch x q x d``."""
        return ModelPoints(self.model, X)

    def path(self, sample_shape: torch.Size) -> Any:
        """Refuse: samples are joint ones at points.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("samples at points", "functions", "Draw from the posterior.")

    def mean_function(self) -> Callable[[Tensor], Tensor]:
        """The posterior mean, ``batch x 1 x q`` at points."""
        return lambda X: self.at(X).mean


@dataclass(frozen=True)
class ModelPoints:
    """The posterior of a model at some points, ``batch x q x d``."""

    model: Model
    X: Tensor

    @property
    def mean(self) -> Tensor:
        """``batch x 1 x q``."""
        return _posterior(self.model, self.X).mean.mT

    def variance(self) -> Tensor:
        """``batch x 1 x q``."""
        return _posterior(self.model, self.X).variance.mT

    def covariance(self, other: ModelPoints) -> Tensor:
        """Covariance with the values at other points, ``batch x 1 x q x q'``."""
        q = self.X.shape[-2]
        X = self.X if other is self else torch.cat([self.X, other.X], -2)
        matrix: Tensor = _posterior(self.model, X).distribution.covariance_matrix
        return matrix.unsqueeze(-3)[..., :q, X.shape[-2] - other.X.shape[-2] :]


def _posterior(model: Model, X: Tensor, noise: bool = False) -> GPyTorchPosterior:
    return cast(GPyTorchPosterior, model.posterior(X, observation_noise=noise))


def refitted(make: Callable[..., Any], *data: Any, **frame: Any) -> Any:
    """What a callable builds of ``(X, Y, Yvar)``: a surrogate, or a BoTorch model as `Refitted`.

    Args:
        make: Is passed those of ``bounds``, ``outcome_transform`` and, without bounds, an
            ``input_transform`` to the unit cube that it has parameters for.
        data: X, Y and Yvar.
        frame: Bounds and outcome transform.
    """
    bounds, parameters = frame["bounds"], inspect.signature(make).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "bounds" not in parameters and "input_transform" in parameters:
        frame["input_transform"] = Normalize(bounds.shape[-1], bounds=bounds)
    used = {key: value for key, value in frame.items() if open_ended or key in parameters}
    places = [p for p in parameters.values() if p.kind in POSITIONAL]
    few = len(places) == 2 and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    count = 2 if few and data[2] is None else 3

    def build(*data: Any) -> Any:
        return make(*data[:count], **copy.deepcopy(used))

    made = build(*data)
    if isinstance(made, Model) and not hasattr(made, "num_observed"):
        X, Y, Yvar = data
        return Refitted(build, X, Y, Yvar, bounds)
    return made
