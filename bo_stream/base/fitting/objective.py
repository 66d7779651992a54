"""What a fit climbs: evidence (or a bound) plus log priors, as gpytorch's tools want it."""

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

from bo_stream.base.fitting.memory import FitMemory
from bo_stream.errors import InputError

__all__ = [
    "Climbed",
    "StreamMLL",
    "check_evaluations",
    "fit_for_botorch",
    "log_prior",
    "profiled_mean",
]


class Climbed(Protocol):
    """What a fit asks of a surrogate.

    Attributes:
        covar_module, mean_module, likelihood: Where the hyperparameters are.
    """

    covar_module: Kernel
    mean_module: Mean
    likelihood: Likelihood

    @property
    def explores(self) -> bool:
        """Whether the objective is of all data, so that far starts may be compared by it."""
        ...

    @property
    def num_outputs(self) -> int:
        """The number of outputs ``o``."""
        ...

    @property
    def num_observed(self) -> int:
        """How many observations the objective is of."""
        ...

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """The objective without priors, and with ``profile_mean`` the best constant means."""
        ...

    def _set_prior_mean(self, means: Tensor) -> None: ...

    @property
    def stream(self) -> Any:
        """What the surrogate holds, the `FitMemory` of the last fit among it."""
        ...

    def _note(self, *, fits: FitMemory) -> None: ...

    def named_priors(self) -> Iterator[Any]:
        """Priors of all hyperparameters, as gpytorch names them."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Training mode."""
        ...

    def eval(self) -> Any:
        """Evaluation mode."""
        ...


class StreamMLL(MarginalLogLikelihood):
    """A surrogate's objective as a gpytorch `MarginalLogLikelihood`, for `fit_gpytorch_mll`.

    Calling it (any arguments are ignored: there are no stored targets to compare with) gives
    evidence plus log priors, 0-dim, in nats, not divided by the number of observations.
    """

    model: Climbed

    def __init__(self, model: Climbed) -> None:
        super().__init__(model.likelihood, model)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Evidence (or bound) plus log priors."""
        return self.model._objective(profile_mean=False)[0] + log_prior(self.model)

    def closure(self) -> Callable[[], Any]:
        """A forward-backward closure of the negative objective, for BoTorch's optimizers."""
        parameters = {n: p for n, p in self.named_parameters() if p.requires_grad}
        return ForwardBackwardClosure(lambda: -self(), parameters)


def fit_for_botorch(
    model: Any,
    mll: MarginalLogLikelihood,
    optimizer: Callable[..., Any] | None,
    options: Mapping[str, Any],
) -> MarginalLogLikelihood:
    """What `fit_gpytorch_mll` asks for: the surrogate's own fit, or a user's optimizer.

    Args:
        model: The surrogate.
        mll: Its objective.
        optimizer: The user's, or None.
        options: Its arguments; without one, ``max_evals`` or ``options={"maxiter": ...}``.
    """
    if optimizer is None:
        model.fit(options.get("max_evals", options.get("options", {}).get("maxiter")))
    else:
        own = mll if isinstance(mll, StreamMLL) else StreamMLL(model)
        own.train()
        optimizer(own, closure=own.closure(), **options)
        own.eval()
    return mll.eval()


def log_prior(model: Module | Climbed) -> Tensor:
    """Sum of the log priors of all hyperparameters, 0-dim."""
    total = torch.zeros((), dtype=torch.float64)
    priors = cast(Any, model.named_priors)()
    for _, module, prior, closure, _ in priors:
        total = total + prior.log_prob(closure(module)).sum().double()
    return total


def check_evaluations(max_evals: int | None) -> None:
    """Refuse limits that leave nothing to do.

    Raises:
        InputError: accordingly.
    """
    if max_evals is not None and max_evals < 1:
        raise InputError("max_evals >= 1, or None", f"{max_evals}", "Leave it out for no limit.")


def profiled_mean(model: Climbed) -> bool:
    """Whether the constant mean is free, so that a fit may take its closed-form optimum."""
    mean = model.mean_module
    if not isinstance(mean, ConstantMean) or not mean.raw_constant.requires_grad:
        return False
    free = mean.constraint_for_parameter_name("raw_constant") is None
    free = free and mean.raw_constant.numel() == model.num_outputs
    return free and not any(True for _ in mean.named_priors())
