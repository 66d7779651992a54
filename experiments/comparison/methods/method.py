"""What is known of a method beside its loop."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """A loop, the packages that it needs besides bo_stream's, and what tasks it copes with.

    ``solve`` takes `BudgetedTask` and options and goes on for ever; `Spent` ends it. ``serves`` are
    traits of tasks (`Task.traits`), besides which a task may have none.
    """

    solve: Callable[..., None]
    packages: tuple[str, ...] = ()
    serves: frozenset[str] = frozenset()
