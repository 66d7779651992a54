"""An objective and its gradient in the coordinates of a fit, without automatic differentiation.

For small models the bookkeeping of gpytorch and autograd costs several times the algebra. A family
whose evidence has a closed-form gradient in the logarithms of its hyperparameters can use these
parts, as long as all priors are log-normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.priors import LogNormalPrior
from torch import Tensor, nn

from bo_stream.base.fitting.coordinates import Coordinates

__all__ = ["ClosedForm", "LogNormals", "places_of"]

ClosedForm = Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""From coordinates to the objective (0-dim), its gradient, and the optimal means, if profiled."""


@dataclass(frozen=True)
class LogNormals:
    """Log-normal priors of some coordinates, logarithms of hyperparameters.

    Attributes:
        location: Of the logarithms; zero where there is no prior.
        precision: Inverse variances of the logarithms; likewise.
        jacobian: One where there is a prior, else zero.
        constant: What does not depend on the coordinates, in nats.
    """

    location: Tensor
    precision: Tensor
    jacobian: Tensor
    constant: float

    @classmethod
    def of(cls, model: Any, coordinates: Coordinates) -> LogNormals | None:
        """The priors of a model; None if some are of another kind or on a fixed parameter."""
        location, precision, jacobian = (torch.zeros_like(coordinates.lower) for _ in range(3))
        constant = 0.0
        for name, module, prior, _, _ in model.named_priors():
            short = name.rpartition(".")[2].removesuffix("_prior")
            raw = getattr(module, f"raw_{short}", None)
            own = None if raw is None else coordinates.place(raw)
            if type(prior) is not LogNormalPrior or own is None or bool(jacobian[own].any()):
                return None
            sd = prior.scale.double().cpu().reshape(-1).expand(own.stop - own.start)
            location[own], precision[own] = prior.loc.double().cpu().reshape(-1), sd**-2
            jacobian[own] = 1.0
            constant -= float((sd * math.sqrt(2.0 * math.pi)).log().sum())
        return cls(location, precision, jacobian, constant)

    def add(self, u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """The value plus log priors; theirs are added to the gradient in place."""
        away = u - self.location
        pull = self.precision * away
        gradient.sub_(pull).sub_(self.jacobian)
        return value + (self.constant - 0.5 * (pull @ away) - self.jacobian @ u)


def places_of(parameter: nn.Parameter, coordinates: Coordinates, outputs: int) -> Tensor | None:
    """Where a positive parameter's values are among the coordinates, one row for each output.

    Args:
        parameter: A raw parameter: of no or one value an output, or of several columns.
        coordinates: The coordinates.
        outputs: Number of outputs, which may share the parameter.

    Returns:
        None for a parameter that is fixed.
    """
    own = coordinates.place(parameter)
    if own is None:
        return None
    width = parameter.shape[-1] if parameter.ndim > 1 else 1
    return torch.arange(own.start, own.stop).view(-1, width).expand(outputs, -1)
