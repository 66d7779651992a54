"""Tasks by name."""

from collections.abc import Callable
from typing import Any

from experiments.comparison.tasks.synthetic import rotated_task, synthetic_task
from experiments.comparison.tasks.task import Task

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
}
"""Each takes its name, a seed, and options of its own."""


def made(name: str, seed: int, options: dict[str, Any]) -> Task:
    """A task by name."""
    return TASKS[name](name.removeprefix("rotated_"), seed, **options)
