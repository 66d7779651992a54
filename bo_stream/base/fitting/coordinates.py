"""The free hyperparameters as one vector, with logarithms of positive ones, and their priors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.means import ConstantMean
from gpytorch.priors import LogNormalPrior
from torch import Tensor, nn

__all__ = ["ClosedForm", "Coordinates", "LogNormals", "log_prior", "profiled_mean"]

ClosedForm = Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""From coordinates to the objective (0-dim), its gradient, and the optimal means, if profiled."""

MARGIN = 1e-6
"""Relative distance kept from the bounds of a constraint."""


class Coordinates:
    """The free hyperparameters of a GP's kernel, likelihood and mean as one vector.

    Positive hyperparameters are represented by their logarithm, others unchanged.
    """

    def __init__(self, model: Any, skip_mean: bool) -> None:
        self.items: list[tuple[nn.Parameter, Interval | None, bool]] = []
        self.names: list[str] = []
        self.lower = self.upper = torch.empty(0, dtype=torch.float64)
        for module in (model.covar_module, model.likelihood, model.mean_module):
            if not (skip_mean and module is model.mean_module):
                for name, parameter, constraint in module.named_parameters_and_constraints():
                    self.add(parameter, name.rpartition(".")[2], constraint)

    def add(self, parameter: nn.Parameter, name: str, constraint: Interval | None = None) -> None:
        """Append a parameter, if it is free."""
        if not parameter.requires_grad:
            return
        low, high = _limits(constraint)
        positive = low >= 0
        self.items.append((parameter, constraint, positive))
        self.names.append(name)
        bounds = (_log(low, True), _log(high, False)) if positive else (low, high)
        lower, upper = (self.lower.new_full((parameter.numel(),), bound) for bound in bounds)
        self.lower = torch.cat([self.lower, lower])
        self.upper = torch.cat([self.upper, upper])

    def named(self, word: str) -> Tensor:
        """A mask of the positive hyperparameters whose names contain a word."""
        parts = [
            torch.full((parameter.numel(),), positive and word in name)
            for name, (parameter, _, positive) in zip(self.names, self.items, strict=True)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool)

    def place(self, parameter: nn.Parameter) -> slice | None:
        """Where a positive hyperparameter's coordinates are; None if it is not among them."""
        start = 0
        for own, _, positive in self.items:
            end = start + own.numel()
            if own is parameter:
                return slice(start, end) if positive else None
            start = end
        return None

    def selection(self, parameters: Sequence[nn.Parameter], outputs: int) -> Tensor | None:
        """Weights that give the logarithm of a product of positive parameters from coordinates.

        Args:
            parameters: Raw parameters: of no or one value an output, or of ``k`` columns; outputs
                may share them.
            outputs: Number of outputs.

        Returns:
            ``o x k x p`` for ``p`` coordinates; None if a parameter is fixed.
        """
        size = len(self.lower)
        total = self.lower.new_zeros(outputs, 1, size)
        for parameter in parameters:
            own = self.place(parameter)
            if own is None:
                return None
            width = parameter.shape[-1] if parameter.ndim > 1 else 1
            places = torch.arange(own.start, own.stop).view(-1, width).expand(outputs, -1)
            total = total + nn.functional.one_hot(places, size)
        return total

    def keep_above(self, parameter: nn.Parameter, least: Tensor) -> None:
        """Raise the lower bounds of a positive hyperparameter, if it is free: to its current value
        at most.

        Args:
            parameter: The raw parameter.
            least: Its smallest values, of a shape that expands to the parameter's.
        """
        own = self.place(parameter)
        if own is None:
            return
        floor = least.double().cpu().log().expand(parameter.shape).reshape(-1)
        floor = torch.minimum(floor, self.get()[own])
        self.lower[own] = torch.maximum(self.lower[own], floor)

    def get(self) -> Tensor:
        """The current coordinates (float64, on the CPU)."""
        parts = []
        for parameter, constraint, positive in self.items:
            value = _value(parameter, constraint).detach().double().cpu().reshape(-1)
            parts.append(value.log() if positive else value)
        return self.clip(torch.cat(parts)) if parts else self.lower

    def confine(self, trust: float) -> None:
        """Keep positive hyperparameters within a factor ``exp(trust)`` of their current values."""
        now, reach = self.get(), torch.where(self.named(""), trust, math.inf)
        self.lower = torch.maximum(self.lower, now - reach)
        self.upper = torch.minimum(self.upper, now + reach)

    def set(self, u: Tensor) -> None:
        """Set the hyperparameters from coordinates."""
        start = 0
        with torch.no_grad():
            for parameter, constraint, positive in self.items:
                part = u[start : start + parameter.numel()]
                start += parameter.numel()
                value = (part.exp() if positive else part).reshape(parameter.shape).to(parameter)
                enforced = constraint if constraint is not None and constraint.enforced else None
                parameter.copy_(value if enforced is None else enforced.inverse_transform(value))

    def gradient(self) -> Tensor:
        """Gradient in the coordinates from the parameters' ``grad``, by the chain rule."""
        parts = []
        for parameter, constraint, positive in self.items:
            if parameter.grad is None:
                parts.append(torch.zeros(parameter.numel(), dtype=torch.float64))
                continue
            raw = parameter.detach().clone().requires_grad_()
            with torch.enable_grad():
                value = _value(raw, constraint)
                (slope,) = torch.autograd.grad(value.sum(), raw)
            scale = value.detach() if positive else torch.ones_like(value)
            part = parameter.grad.double() * (scale / slope).double()
            parts.append(part.reshape(-1).cpu())
        return torch.cat(parts)

    def clip(self, u: Tensor) -> Tensor:
        """Project onto the constraints' bounds."""
        return torch.minimum(torch.maximum(u, self.lower), self.upper)


def log_prior(model: Any) -> Tensor:
    """Sum of the log priors of all hyperparameters of a module, 0-dim."""
    total = torch.zeros((), dtype=torch.float64)
    for _, module, prior, closure, _ in model.named_priors():
        total = total + prior.log_prob(closure(module)).sum().double()
    return total


def profiled_mean(model: Any) -> bool:
    """Whether the constant mean of a surrogate is free, so that a fit can profile it out."""
    mean = model.mean_module
    if not isinstance(mean, ConstantMean) or not mean.raw_constant.requires_grad:
        return False
    free = mean.constraint_for_parameter_name("raw_constant") is None
    free = free and mean.raw_constant.numel() == model.num_outputs
    return free and not any(True for _ in mean.named_priors())


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


def _limits(constraint: Interval | None) -> tuple[float, float]:
    if constraint is None:
        return -math.inf, math.inf
    return float(constraint.lower_bound.max()), float(constraint.upper_bound.min())


def _log(bound: float, is_lower: bool) -> float:
    """Logarithm of a positive bound, moved inwards by a relative margin."""
    if is_lower:
        return math.log(bound) + MARGIN if bound > 0 else -math.log(1e12)
    return math.log(bound) - MARGIN if math.isfinite(bound) else math.log(1e12)


def _value(raw: Tensor, constraint: Interval | None) -> Tensor:
    """A hyperparameter's value given its raw parameter."""
    return constraint.transform(raw) if constraint is not None and constraint.enforced else raw
