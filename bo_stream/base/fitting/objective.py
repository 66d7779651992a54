"""The objective of a fit, evidence (or a bound) plus log priors, for gpytorch and BoTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast

import torch
from botorch.optim.closures.core import ForwardBackwardClosure
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from torch import Tensor

from bo_stream.base.fitting.closed_form import ClosedForm
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.memory import FitMemory
from bo_stream.errors import InputError

__all__ = [
    "Fittable",
    "StreamMLL",
    "check_evaluations",
    "log_prior",
    "profiled_mean",
]


class Fittable(Protocol):
    """The interface that a fit requires of a surrogate.

    Attributes:
        covar_module, mean_module, likelihood: Modules with the hyperparameters.
    """

    covar_module: Kernel
    mean_module: Mean
    likelihood: Likelihood

    @property
    def explores(self) -> bool:
        """Whether the objective covers all data, so that distant starts can be compared by it."""
        ...

    @property
    def num_outputs(self) -> int:
        """The number of outputs ``o``."""
        ...

    @property
    def num_observed(self) -> int:
        """Number of observations that the objective covers."""
        ...

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The objective without priors and, with ``profile_mean``, the optimal constant means."""
        ...

    def _prepare_fit(self, coordinates: Coordinates, profile_mean: bool) -> ClosedForm | None:
        """Restrict a fit's coordinates; return its objective in closed form, if there is one."""
        ...

    def _set_prior_mean(self, means: Tensor) -> None: ...

    @property
    def stream(self) -> Any:
        """The surrogate's stream, including the `FitMemory` of the last fit."""
        ...

    def _note(self, *, fits: FitMemory) -> None: ...

    def named_priors(self) -> Iterator[Any]:
        """Priors of all hyperparameters, with gpytorch's names."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch to training mode."""
        ...

    def eval(self) -> Any:
        """Switch to evaluation mode."""
        ...


class StreamMLL(MarginalLogLikelihood):
    """A surrogate's objective as a gpytorch `MarginalLogLikelihood`, for `fit_gpytorch_mll`.

    Calling it returns evidence plus log priors, 0-dim, in nats, not divided by the number of
    observations. Its arguments are ignored, because no targets are stored.
    """

    model: Fittable

    def __init__(self, model: Fittable) -> None:
        super().__init__(model.likelihood, model)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Evidence (or bound) plus log priors."""
        return self.model._objective(profile_mean=False)[0] + log_prior(self.model)

    def closure(self) -> Callable[[], Any]:
        """A forward-backward closure of the negative objective, for BoTorch's optimizers."""
        parameters = {n: p for n, p in self.named_parameters() if p.requires_grad}
        return ForwardBackwardClosure(lambda: -self(), parameters)

    def climb(self, optimizer: Callable[..., Any], options: Mapping[str, Any]) -> None:
        """Run a user's optimizer, which takes this module and its `closure`."""
        self.train()
        optimizer(self, closure=self.closure(), **options)
        self.eval()

    def refresh(self) -> None:
        """Take what a fit has changed besides the hyperparameters; by default nothing."""


def log_prior(model: Module | Fittable) -> Tensor:
    """Sum of the log priors of all hyperparameters, 0-dim."""
    total = torch.zeros((), dtype=torch.float64)
    priors = cast(Any, model.named_priors)()
    for _, module, prior, closure, _ in priors:
        total = total + prior.log_prob(closure(module)).sum().double()
    return total


def check_evaluations(max_evals: int | None) -> None:
    """Refuse limits below one evaluation.

    Raises:
        InputError: if ``max_evals`` is below 1.
    """
    if max_evals is not None and max_evals < 1:
        raise InputError("max_evals >= 1, or None", f"{max_evals}", "Leave it out for no limit.")


def profiled_mean(model: Fittable) -> bool:
    """Whether the constant mean is free, so that a fit can profile it out."""
    mean = model.mean_module
    if not isinstance(mean, ConstantMean) or not mean.raw_constant.requires_grad:
        return False
    free = mean.constraint_for_parameter_name("raw_constant") is None
    free = free and mean.raw_constant.numel() == model.num_outputs
    return free and not any(True for _ in mean.named_priors())
