"""A function to be optimised: its box, its outcomes with noise, and how results are judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from bo_stream import Box

Goal = Literal["minimise", "maximise"]


class Limit(NamedTuple):
    """A bound on one outcome, such as ``weight <= 3``; as text, what `Campaign` takes."""

    outcome: str
    sense: Literal["<=", ">="]
    value: float

    def __str__(self) -> str:
        return f"{self.outcome} {self.sense} {self.value!r}"


class Told(NamedTuple):
    """What a method has spent and stands for: points ``n x d``, their outcomes ``n x m``, and the
    point that it recommends, ``d``; None for several objectives.
    """

    X: np.ndarray
    Y: np.ndarray
    recommended: np.ndarray | None


@dataclass(frozen=True)
class Task:
    """A function to be optimised, its box, its noise, and the loss of what is reached.

    Points are ``n x d`` arrays of values in the order of the box's inputs, as `Box.values` gives
    them: a category is the number of its label. `Box.labelled` makes frames of them.

    Attributes:
        name: Of the function.
        box: The inputs.
        evaluate: Outcomes with noise, ``n x m``, of ``n x d`` points; the noise is drawn from the
            generator.
        judge: The loss of what was told, without noise; less is better.
        goals: Names of the objectives and what to do with them.
        limits: Bounds on outcomes.
        outcomes: Names of the columns of ``evaluate``; by default those of the goals.
        reference: For several objectives: the point of the hypervolume, in the order of the goals.
        batch: Points at a time.
        initial: Points of the initial design.
        deterministic: Whether there is no noise.
    """

    name: str
    box: Box
    evaluate: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    judge: Callable[[Told], float]
    goals: Mapping[str, Goal] = field(default_factory=lambda: {"y": "minimise"})
    limits: tuple[Limit, ...] = ()
    outcomes: tuple[str, ...] = ()
    reference: tuple[float, ...] | None = None
    batch: int = 1
    initial: int = 10
    deterministic: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of outcomes."""
        return self.outcomes or tuple(self.goals)

    @property
    def traits(self) -> frozenset[str]:
        """What a method has to cope with: ``mixed``, ``constrained``, ``objectives``."""
        found = {
            "mixed": not self.box.is_continuous,
            "constrained": bool(self.limits),
            "objectives": len(self.goals) > 1,
        }
        return frozenset(name for name, true in found.items() if true)

    def costs(self, Y: np.ndarray) -> np.ndarray:
        """The objectives of outcomes ``n x m``, all to be minimised: ``n x k``."""
        signs = [1.0 if goal == "minimise" else -1.0 for goal in self.goals.values()]
        return Y[:, [self.columns.index(name) for name in self.goals]] * signs

    def violations(self, Y: np.ndarray) -> np.ndarray:
        """By how much outcomes ``n x m`` break each limit, ``n x c``: positive where they do."""
        signs = [1.0 if limit.sense == "<=" else -1.0 for limit in self.limits]
        values = np.array([limit.value for limit in self.limits])
        return (Y[:, [self.columns.index(limit.outcome) for limit in self.limits]] - values) * signs
