"""The feasible part of a space: its allowed values, and constraints on inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_stream.campaign.constraints import LinearConstraint, parse_constraint
from bo_stream.campaign.space.spaces import Category, SpaceOfInputs
from bo_stream.errors import InputError
from bo_stream.mathematics.autograd import lasting_property

if TYPE_CHECKING:
    from acquisitions.domain import Domain

__all__ = ["FeasibleSet", "InputConstraint"]

InputConstraint = Callable[[pd.DataFrame], Any]
"""From a frame of inputs to a boolean for each row: whether it is feasible."""

MARGIN = 1e-12
"""Distance, in units of the largest term, that keeps what is found off a limit of continuous
inputs: rounding must not take it beyond."""


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
        kinds = dict(zip(self.space.names, self.space.kinds, strict=True))
        for constraint in self.linear:
            for name in constraint.coefficients:
                if constraint.equal:
                    raise InputError(
                        "inequalities between inputs",
                        repr(constraint.text),
                        "Leave out one input, which follows from the others, and constrain these.",
                    )
                if isinstance(kinds[name], Category):
                    raise InputError(
                        f"numeric inputs in {constraint.text!r}",
                        f"the category {name!r}",
                        "Give a callable from a frame to a boolean for each row.",
                    )

    @classmethod
    def of(
        cls, space: SpaceOfInputs, stored: Sequence[str | None], given: Sequence[Any] = ()
    ) -> FeasibleSet:
        """From the constraints in a campaign's settings.

        Args:
            space: The space.
            stored: Constraints on inputs of the space, as texts; None for a callable.
            given: The callables, perhaps among texts.

        Raises:
            InputError: if a callable is missing.
        """
        linear = [one for text in stored if text is not None for one in parse_constraint(text)]
        callables = [one for one in given if callable(one)]
        if len(callables) != sum(text is None for text in stored):
            raise InputError(
                f"{sum(text is None for text in stored)} callables among the constraints, which "
                "the store cannot hold",
                f"{len(callables)}",
                "Give them again: Campaign.resume(url, name, constraints=[...]).",
            )
        return cls(space, linear, callables)

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

    @lasting_property
    def domain(self) -> Domain:
        """The set in the surrogate's coordinates, for searches."""
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

        return Domain.of(
            space.tensor_bounds,
            inequalities,
            space.choices,
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
