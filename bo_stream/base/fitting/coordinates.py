"""The free hyperparameters as one vector, with logarithms of positive ones."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.constraints import Interval
from torch import Tensor

__all__ = ["Coordinates"]


MARGIN = 1e-6
"""Relative distance kept from the bounds of a constraint."""


class Coordinates:
    """The free hyperparameters of a GP's kernel, likelihood and mean as one vector.

    Positive hyperparameters are represented by their logarithm, others unchanged.
    """

    def __init__(self, model: Any, skip_mean: bool) -> None:
        self.items: list[tuple[torch.nn.Parameter, Interval | None, bool]] = []
        self.names: list[str] = []
        lower, upper = [], []
        for module in (model.covar_module, model.likelihood, model.mean_module):
            if skip_mean and module is model.mean_module:
                continue
            for name, parameter, constraint in module.named_parameters_and_constraints():
                if not parameter.requires_grad:
                    continue
                low, high = _limits(constraint)
                positive = low >= 0
                self.items.append((parameter, constraint, positive))
                self.names.append(name.rpartition(".")[2])
                lower.append(torch.full((parameter.numel(),), _log(low, True) if positive else low))
                upper.append(
                    torch.full((parameter.numel(),), _log(high, False) if positive else high)
                )
        self.lower = torch.cat(lower).double() if lower else torch.empty(0, dtype=torch.float64)
        self.upper = torch.cat(upper).double() if upper else torch.empty(0, dtype=torch.float64)

    def named(self, word: str) -> Tensor:
        """A mask of the positive hyperparameters whose names contain a word."""
        parts = [
            torch.full((parameter.numel(),), positive and word in name)
            for name, (parameter, _, positive) in zip(self.names, self.items, strict=True)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool)

    def place(self, parameter: torch.nn.Parameter) -> slice | None:
        """Where a positive hyperparameter's coordinates are; None if it is not among them."""
        start = 0
        for own, _, positive in self.items:
            end = start + own.numel()
            if own is parameter:
                return slice(start, end) if positive else None
            start = end
        return None

    def keep_above(self, parameter: torch.nn.Parameter, least: Tensor) -> None:
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
        if not self.items:
            return
        now = self.get()
        reach = [torch.full((p.numel(),), trust if pos else math.inf) for p, _, pos in self.items]
        self.lower = torch.maximum(self.lower, now - torch.cat(reach))
        self.upper = torch.minimum(self.upper, now + torch.cat(reach))

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
