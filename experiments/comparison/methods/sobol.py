"""Designs that learn nothing: Sobol's sequence and uniform points."""

from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_stream import Campaign
from experiments.comparison.budgeted_task import BudgetedTask

REGRESSED = 256
"""Points told to the campaign at a time, so that telling costs little."""


def sobol(evaluate: BudgetedTask, regressed: bool = False) -> None:
    """A scrambled Sobol sequence, which begins with the initial design of a continuous box.

    With ``regressed`` a campaign is told all points and recommends, which shows how much of a
    result is denoising. Its regression is not counted in the seconds.
    """
    box, batch = evaluate.task.box, max(evaluate.batch, REGRESSED if regressed else 1)
    engine = SobolEngine(box.dim, scramble=True, seed=evaluate.seed)
    engine.fast_forward(evaluate.initial)
    low, high = box.tensor_bounds
    _search(evaluate, lambda: low + (high - low) * engine.draw(batch, dtype=low.dtype), regressed)


def random(evaluate: BudgetedTask) -> None:
    """Points drawn uniformly from the box."""
    generator = torch.Generator().manual_seed(evaluate.seed)
    low, high = evaluate.task.box.tensor_bounds
    shape = evaluate.batch, len(low)
    _search(
        evaluate,
        lambda: low + (high - low) * torch.rand(*shape, generator=generator, dtype=low.dtype),
    )


def _search(evaluate: BudgetedTask, drawn: Callable[[], Tensor], regressed: bool = False) -> None:
    task, X = evaluate.task, evaluate.design()
    names, start = list(task.box.names), evaluate.initial
    campaign = Campaign(task.box, goal="minimise", seed=evaluate.seed, initial=start)

    def recommended() -> pd.DataFrame:
        campaign.state.update()
        return campaign.recommend()[names]

    if regressed:
        evaluate.recommender = recommended
    while True:
        Y = evaluate(X)
        if regressed:
            campaign.tell(task.box.labelled(X).assign(y=Y[:, 0]))
        X = task.box.decode(drawn())
