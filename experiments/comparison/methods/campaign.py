"""`bo_stream.Campaign`, through ask and tell."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bo_stream import Campaign
from bo_stream.surrogates import registry
from experiments.common.baselines.registry import FAMILIES
from experiments.comparison.budgeted_task import BudgetedTask


def solve(evaluate: BudgetedTask, **options: Any) -> None:
    """A campaign with the defaults, or with other options of `Campaign`; surrogates of the studies'
    own may be among them by name.

    It is told the initial design, and its budget are the evaluations. Where there is noise it
    recommends by its own model.
    """
    task = evaluate.task
    if "surrogate" in options:
        options["surrogate"] = _made(options["surrogate"])
    goal: Any = task.goals if len(task.columns) > 1 or "y" not in task.goals else task.goals["y"]
    reference = dict(zip(task.goals, task.reference, strict=True)) if task.reference else None
    campaign = Campaign(
        task.box,
        goal=goal,
        reference=reference,
        budget=evaluate.budget,
        seed=evaluate.seed,
        constraints=[str(limit) for limit in task.limits],
        **options,
    )
    if not task.deterministic and len(task.goals) == 1:
        evaluate.recommender = lambda: campaign.recommend()[list(task.box.names)]

    def told(batch: pd.DataFrame, Y: np.ndarray) -> None:
        campaign.tell(batch.assign(**dict(zip(task.columns, Y.T, strict=True))))

    design = task.box.labelled(evaluate.design())
    told(design, evaluate(design))
    while True:
        batch = campaign.ask(evaluate.batch)
        told(batch, evaluate(batch))


def _made(surrogate: Any) -> str | Mapping[str, Any] | Callable[..., Any]:
    """A surrogate as `Campaign` takes it: those that it does not know by name as callables."""
    own = {"name": surrogate} if isinstance(surrogate, str) else dict(surrogate)
    name = own.pop("name")
    known = name in registry.FAMILIES or name not in FAMILIES
    return surrogate if known else partial(FAMILIES[name], **own)
