"""Linear constraints written as text, such as ``"a + 2*b <= 3"`` or ``"purity >= 0.95"``, and the
feasible part of a space.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bo_stream.campaign.names import spelled
from bo_stream.campaign.space.spaces import Category, Pool, SpaceOfInputs
from bo_stream.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from acquisitions.domain import Domain

__all__ = ["FeasibleSet", "InputConstraint", "LinearConstraint", "parse_constraint"]

InputConstraint = Callable[[pd.DataFrame], Any]
"""From a frame of inputs to a boolean for each row: whether it is feasible."""

MARGIN = 1e-12
"""Distance, in units of the largest term, that keeps what is found off a limit of continuous
inputs: rounding must not take it beyond."""

EXAMPLE = "For example 'a + 2*b <= 3'; write `energy (kWh)` in backticks."

Terms = dict[str, float]
"""Coefficients by name; the constant has the name ``""``."""


@dataclass(frozen=True)
class LinearConstraint:
    """The sum of the coefficients times their values is at most the bound.

    Attributes:
        text: What the user wrote.
        coefficients: Coefficients by name, none of them zero.
        bound: The bound.
    """

    text: str
    coefficients: Mapping[str, float]
    bound: float

    def excess(self, values: Any) -> Any:
        """How far the sum is above the bound: 0 or less where an inequality holds.

        Args:
            values: Anything indexed by name: a mapping of numbers, arrays or tensors, a frame.
        """
        total: Any = sum(weight * values[name] for name, weight in self.coefficients.items())
        return total - self.bound


def parse_constraint(text: str, known: Collection[str] = ()) -> tuple[LinearConstraint, ...]:
    """The constraint in a text; several for a chain such as ``0 <= a - b <= 1``.

    Names are those of Python or are written in backticks. Numbers, ``+``, ``-``, products with
    numbers, quotients by numbers, parentheses, ``<=``, ``>=``, and ``<`` and ``>`` with the same
    meaning as ``<=`` and ``>=`` are understood.

    Args:
        text: The text.
        known: Names; those that look like one of them are this one.

    Raises:
        InputError: for anything else, and without a name.
    """
    parts = re.split(r"`([^`]+)`", text)  # every second one is a name in backticks
    quoted = {f"quoted_name_{i}": part for i, part in enumerate(parts) if i % 2}
    plain = "".join(f"quoted_name_{i}" if i % 2 else part for i, part in enumerate(parts))

    def named(name: str) -> str:
        return str(spelled(quoted.get(name, name), known))

    try:
        tree = ast.parse(plain.strip(), mode="eval").body
        if not isinstance(tree, ast.Compare):
            raise ValueError("no comparison")
        sides = [_terms(side, named) for side in (tree.left, *tree.comparators)]
        pairs = zip(pairwise(sides), tree.ops, strict=True)
        return tuple(_constraint(text, *pair, operator) for pair, operator in pairs)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError("a linear constraint", f"{text!r} ({error})", EXAMPLE) from error


def _constraint(text: str, left: Terms, right: Terms, operator: ast.cmpop) -> LinearConstraint:
    if isinstance(operator, ast.Eq):
        raise ValueError("an equation: leave out an input that follows from the others")
    if not isinstance(operator, ast.LtE | ast.GtE | ast.Lt | ast.Gt):
        raise ValueError("a comparison other than <= and >=")
    if isinstance(operator, ast.GtE | ast.Gt):
        left, right = right, left
    terms = _added(left, right, -1.0)
    bound = -terms.pop("", 0.0)
    terms = {name: weight for name, weight in terms.items() if weight}
    if not terms:
        raise ValueError("no name")
    return LinearConstraint(text, terms, bound)


def _terms(node: ast.expr, named: Callable[[str], str]) -> Terms:
    """Coefficients of one side of a comparison."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return {"": float(value)}
        case ast.Name(id=name):
            return {named(name): 1.0}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _added({}, _terms(inner, named), -1.0)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _terms(inner, named)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = -1.0 if isinstance(op, ast.Sub) else 1.0
            return _added(_terms(left, named), _terms(right, named), sign)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = _terms(left, named), _terms(right, named)
            if set(one) != {""}:
                one, other = other, one
            if set(one) != {""}:
                raise ValueError("a product of two names")
            return _added({}, other, one[""])
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            divisor = _terms(right, named)
            if set(divisor) != {""} or not divisor[""]:
                raise ValueError("a quotient by something other than a number")
            return _added({}, _terms(left, named), 1.0 / divisor[""])
    raise ValueError(f"{ast.unparse(node)} is not linear")


def _added(terms: Terms, more: Terms, factor: float) -> Terms:
    """The terms, and others times a factor."""
    total = dict(terms)
    for name, weight in more.items():
        total[name] = total.get(name, 0.0) + factor * weight
    return total


@dataclass(frozen=True)
class FeasibleSet:
    """Where a campaign may propose trials.

    Attributes:
        space: Inputs and their allowed values.
        linear: Linear constraints on numeric inputs.
        callables: Constraints of any kind.

    Raises:
        InputError: for a linear constraint on a category.
    """

    space: SpaceOfInputs
    linear: Sequence[LinearConstraint] = ()
    callables: Sequence[InputConstraint] = ()

    def __post_init__(self) -> None:
        categories = {one.name for one in self.space.kinds if isinstance(one, Category)}
        for constraint in self.linear:
            for name in categories.intersection(constraint.coefficients):
                raise InputError(
                    f"numeric inputs in {constraint.text!r}",
                    f"the category {name!r}",
                    "Give a callable from a frame to a boolean for each row.",
                )

    @property
    def is_box(self) -> bool:
        """Whether every point between the bounds is feasible."""
        return self.space.is_continuous and not (self.linear or self.callables)

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Whether constraints hold, for rows of values ``n x d``: ``n`` booleans.

        Raises:
            InputError: if a callable returns anything else.
        """
        columns = dict(zip(self.space.names, values.T, strict=True))
        inside = np.ones(len(values), dtype=bool)
        for constraint in self.linear:
            inside &= np.asarray(constraint.excess(columns) <= 0.0)
        for given in self.callables:
            answer = np.asarray(given(self.space.labelled(values)))
            if answer.shape != (len(values),) or answer.dtype.kind not in "bO":
                raise InputError(
                    f"a boolean for each of {len(values)} rows from a constraint",
                    f"shape {answer.shape} of {answer.dtype}",
                    'Return a column such as frame["a"] < frame["b"].',
                )
            inside &= answer.astype(bool)
        return inside

    @cached_property
    def places(self) -> tuple[Tensor, Tensor] | None:
        """Feasible places of a pool, ``P x d``, and their rows, ``P``; None in a box."""
        if not isinstance(self.space, Pool):
            return None
        import torch  # not at the top: most commands of a campaign need no tensors

        rows = torch.from_numpy(self.holds(self.space.place_values)).nonzero()[:, 0]
        return self.space.points[rows], rows

    @cached_property
    def domain(self) -> Domain:
        """The set in the surrogate's coordinates, for searches."""
        import torch

        from acquisitions.domain import Domain  # not at the top: it imports bo_stream

        space = self.space
        logs = {one.name for one in space.kinds if one.log}
        curved = [c for c in self.linear if not logs.isdisjoint(c.coefficients)]
        flat = [c for c in self.linear if c not in curved]
        inequalities = []
        for constraint in flat:
            rows = [space.names.index(name) for name in constraint.coefficients]
            factors = torch.tensor([-c for c in constraint.coefficients.values()]).double()
            inequalities.append((torch.tensor(rows), factors, self._limit(constraint)))
        accepts = None
        if curved or self.callables:
            rest = FeasibleSet(space, curved, self.callables)

            def accepts(X: Tensor) -> Tensor:
                inside = rest.holds(space.decode(X.reshape(-1, space.dim)))
                return torch.from_numpy(inside).reshape(X.shape[:-1]).to(X.device)

        listed = enumerate(one.choices for one in space.kinds)
        return Domain.of(
            space.tensor_bounds,
            inequalities,
            {i: torch.from_numpy(values) for i, values in listed if values is not None},
            categories=space.categories,
            accepts=accepts,
        )

    def _limit(self, constraint: LinearConstraint) -> float:
        """The least value of the negative sum."""
        kinds = {one.name: one for one in self.space.kinds}
        used = [(kinds[name], c) for name, c in constraint.coefficients.items()]
        if all(one.choices is not None for one, _ in used):
            return -constraint.bound
        largest = max(abs(c) * max(map(abs, one.ends)) for one, c in used)
        return -constraint.bound + MARGIN * max(largest, abs(constraint.bound))
