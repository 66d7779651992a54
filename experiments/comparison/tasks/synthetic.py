"""Test functions of BoTorch, their optimum moved by the seed and their box rotated."""

from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from bo_stream import Box
from experiments.comparison.tasks.task import Task, Told
from problems import synthetic


def synthetic_task(
    name: str,
    seed: int,
    dim: int = 3,
    noise_std: float | Literal["published"] = 0.0,
    moved: bool = True,
    rotated: bool = False,
    **task: Any,
) -> Task:
    """A function of `problems.synthetic` on the unit cube, to be minimised.

    ``noise_std`` is the standard deviation of the noise, or ``published``. The optimum is moved
    by the seed where the function allows it. With ``rotated``, the cube is rotated about the
    optimum by the seed, and points outside the function's box are judged at its faces. ``task`` are
    further fields of `Task`. The loss is the regret of the recommendation.
    """
    noise = None if noise_std == "published" else noise_std
    try:
        problem = synthetic(name, dim, noise, moved=seed if moved else None)
    except ValueError:
        if not moved:
            raise
        problem = synthetic(name, dim, noise)
    spin = _rotation(dim, seed) if rotated else None
    centre = problem.optimizers[0].numpy() if rotated else None

    def exact(X: np.ndarray) -> np.ndarray:
        """Values to be minimised, ``n x 1``."""
        if spin is not None and centre is not None:
            X = np.clip(centre + (X - centre) @ spin, 0.0, 1.0)
        return -problem.evaluate_true(torch.from_numpy(X)).numpy()

    def evaluate(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return exact(X) + problem.noise_std * generator.standard_normal((len(X), 1))

    def judge(told: Told) -> float:
        if told.recommended is None:
            return float("nan")
        return float(problem.optimal_value + exact(told.recommended[None])[0, 0])

    fields = {"deterministic": problem.noise_std == 0.0, "initial": 2 * dim + 2, **task}
    box = Box({f"x{i}": (0.0, 1.0) for i in range(dim)})
    return Task(name, box, evaluate, judge, **fields)


def _rotation(dim: int, seed: int) -> np.ndarray:
    """A random rotation, ``dim x dim``, uniformly distributed."""
    normal = np.random.default_rng([seed, 2]).standard_normal((dim, dim))
    Q, R = np.linalg.qr(normal)
    return Q * np.sign(np.diag(R))


rotated_task = partial(synthetic_task, rotated=True)
