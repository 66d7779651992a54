"""Tasks by name."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from experiments.comparison.tasks.lander import lander_task
from experiments.comparison.tasks.outcomes import FUNCTIONS, outcome_task
from experiments.comparison.tasks.rover import rover_task
from experiments.comparison.tasks.synthetic import rotated_task, synthetic_task
from experiments.comparison.tasks.task import Task
from experiments.comparison.tasks.tuning import TUNED, tuning_task

SYNTHETIC = (
    "ackley",
    "beale",
    "branin",
    "dixonprice",
    "griewank",
    "hartmann",
    "levy",
    "michalewicz",
    "rastrigin",
    "rosenbrock",
    "shekel",
    "sixhumpcamel",
    "styblinskitang",
)
TASKS: dict[str, Callable[..., Task]] = {
    **dict.fromkeys(SYNTHETIC, synthetic_task),
    **{f"rotated_{name}": rotated_task for name in SYNTHETIC},
    **dict.fromkeys(FUNCTIONS, outcome_task),
    **dict.fromkeys(TUNED, tuning_task),
    "rover": rover_task,
    "lander": lander_task,
}
"""Each takes its name, a seed, and options of its own."""

PACKAGES: dict[str, dict[str, str]] = {
    **dict.fromkeys(TUNED, {"sklearn": "tuning"}),
    "lander": {"gymnasium": "lander", "Box2D": "lander"},
}
"""Packages that tasks need besides bo_stream's, and the extra that has them."""


def lacking(name: str) -> set[str]:
    """Extras that a task needs and that are not installed."""
    needed = PACKAGES.get(name, {})
    return {extra for package, extra in needed.items() if find_spec(package) is None}


def made(name: str, seed: int, options: dict[str, Any]) -> Task:
    """A task by name."""
    return TASKS[name](name.removeprefix("rotated_"), seed, **options)
