"""Linear constraints written as text, such as ``"a + 2*b <= 3"`` or ``"purity >= 0.95"``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bo_stream.errors import InputError

__all__ = ["LinearConstraint", "parse_constraint"]

EXAMPLE = "For example 'a + 2*b <= 3'; write `energy (kWh)` in backticks."

Terms = dict[str, float]
"""Coefficients by name; the constant has the name ``""``."""


@dataclass(frozen=True)
class LinearConstraint:
    """The sum of the coefficients times their values is at most the bound, or equal to it.

    Attributes:
        text: What the user wrote.
        coefficients: Coefficients by name, none of them zero.
        bound: The bound.
        equal: Whether the sum has to be equal to the bound.
    """

    text: str
    coefficients: Mapping[str, float]
    bound: float
    equal: bool = False

    def excess(self, values: Any) -> Any:
        """How far the sum is above the bound: 0 or less where an inequality holds.

        Args:
            values: Anything indexed by name: a mapping of numbers, arrays or tensors, a frame.
        """
        total: Any = sum(weight * values[name] for name, weight in self.coefficients.items())
        return total - self.bound


def parse_constraint(text: Any) -> tuple[LinearConstraint, ...]:
    """The constraint in a text; several for a chain such as ``0 <= a - b <= 1``.

    Names are those of Python or are written in backticks. Numbers, ``+``, ``-``, products with
    numbers, quotients by numbers, parentheses, ``<=``, ``>=``, ``==``, and ``<`` and ``>`` with the
    same meaning as ``<=`` and ``>=`` are understood.

    Raises:
        InputError: for anything else, and without a name.
    """
    if not isinstance(text, str):
        raise InputError("a constraint as text", repr(text), EXAMPLE)
    parts = re.split(r"`([^`]+)`", text)  # every second one is a name in backticks
    names = {f"quoted_name_{i}": part for i, part in enumerate(parts) if i % 2}
    plain = "".join(f"quoted_name_{i}" if i % 2 else part for i, part in enumerate(parts))
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
        if not isinstance(tree, ast.Compare):
            raise ValueError("no comparison")
        sides = [_terms(side, names) for side in (tree.left, *tree.comparators)]
        pairs = zip(pairwise(sides), tree.ops, strict=True)
        return tuple(_constraint(text, *pair, operator) for pair, operator in pairs)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError("a linear constraint", f"{text!r} ({error})", EXAMPLE) from error


def _constraint(text: str, left: Terms, right: Terms, operator: ast.cmpop) -> LinearConstraint:
    if not isinstance(operator, ast.LtE | ast.GtE | ast.Lt | ast.Gt | ast.Eq):
        raise ValueError("a comparison other than <=, >= and ==")
    if isinstance(operator, ast.GtE | ast.Gt):
        left, right = right, left
    terms = _added(left, right, -1.0)
    bound = -terms.pop("", 0.0)
    terms = {name: weight for name, weight in terms.items() if weight}
    if not terms:
        raise ValueError("no name")
    return LinearConstraint(text, terms, bound, isinstance(operator, ast.Eq))


def _terms(node: ast.expr, names: Mapping[str, str]) -> Terms:
    """Coefficients of one side of a comparison."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return {"": float(value)}
        case ast.Name(id=name):
            return {names.get(name, name): 1.0}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _added({}, _terms(inner, names), -1.0)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _terms(inner, names)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = -1.0 if isinstance(op, ast.Sub) else 1.0
            return _added(_terms(left, names), _terms(right, names), sign)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = _terms(left, names), _terms(right, names)
            if set(one) != {""}:
                one, other = other, one
            if set(one) != {""}:
                raise ValueError("a product of two names")
            return _added({}, other, one[""])
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            divisor = _terms(right, names)
            if set(divisor) != {""} or not divisor[""]:
                raise ValueError("a quotient by something other than a number")
            return _added({}, _terms(left, names), 1.0 / divisor[""])
    raise ValueError(f"{ast.unparse(node)} is not linear")


def _added(terms: Terms, more: Terms, factor: float) -> Terms:
    """The terms, and others times a factor."""
    total = dict(terms)
    for name, weight in more.items():
        total[name] = total.get(name, 0.0) + factor * weight
    return total
