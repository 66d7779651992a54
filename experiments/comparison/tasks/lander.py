"""Landing on the moon by a rule with 12 weights: `LunarLander-v3` of gymnasium [Eriksson2019].

The rule is the one that gymnasium ships with the environment, its constants the inputs, between 0
and 2. The outcome is what the mean reward of three landings on fixed terrains lacks of 350; 200 is
the reward of a landing.

References:
    [Eriksson2019] D. Eriksson, M. Pearce, J. Gardner, R. Turner, M. Poloczek. Scalable Global
        Optimization via Local Bayesian Optimization. NeurIPS 2019.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from bo_stream import Box
from experiments.comparison.tasks.task import Task

INPUTS, TERRAINS, STEPS = 12, 3, 600
FULL = 350.0


def lander_task(name: str, seed: int, **task: Any) -> Task:
    """What the mean reward lacks, to be minimised; the loss is the least told."""
    box = Box({f"w{i}": (0.0, 2.0) for i in range(INPUTS)})

    def evaluate(X: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        rewards = [[landing(w, terrain) for terrain in range(TERRAINS)] for w in X.tolist()]
        return FULL - np.mean(rewards, axis=1, keepdims=True)

    return Task(name, box, evaluate, lambda told: float(told.Y.min()), **task)


def landing(w: list[float], terrain: int) -> float:
    """The reward of one landing by the rule with 12 weights."""
    environment, total = moon(), 0.0
    state, _ = environment.reset(seed=terrain)
    for _ in range(STEPS):
        x, y, vx, vy, angle, spin, left, right = state.tolist()
        aim = min(max(x * w[0] + vx * w[1], -w[2]), w[2])
        turn = (aim - angle) * w[4] - spin * w[5]
        lift = (w[3] * abs(x) - y) * w[6] - vy * w[7]
        if left or right:
            turn, lift = w[8], -vy * w[9]
        engine = 0
        if lift > abs(turn) and lift > w[10]:
            engine = 2
        elif abs(turn) > w[11]:
            engine = 3 if turn < 0.0 else 1
        state, reward, ended, _, _ = environment.step(engine)
        total += float(reward)
        if ended:
            break
    return total


@cache
def moon() -> Any:
    """The environment, made once a process."""
    import gymnasium  # an extra: read by those who land

    return gymnasium.make("LunarLander-v3").unwrapped
