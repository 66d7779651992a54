"""Optuna's samplers, through the ask and tell of a study."""

import warnings
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from bo_stream import Box
from experiments.comparison.budgeted_task import BudgetedTask


def gp(evaluate: BudgetedTask) -> None:
    """Optuna's GP sampler: Matern-5/2, log expected improvement, fitted anew for every point.

    ``deterministic_objective`` is set where the task is. Recommends the best point told.
    """
    exact = evaluate.task.deterministic
    _optimise(
        evaluate,
        lambda **options: optuna.samplers.GPSampler(
            deterministic_objective=exact, n_startup_trials=evaluate.initial, **options
        ),
    )


def tpe(evaluate: BudgetedTask) -> None:
    """Tree-structured Parzen estimators with the defaults. Recommends the best point told."""
    _optimise(evaluate, optuna.samplers.TPESampler)


def _optimise(evaluate: BudgetedTask, sampler: Any) -> None:
    """A study; what is broken by a point, `Task.violations`, is its constraints."""
    task = evaluate.task
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = distributions(task.box)
    options: dict[str, Any] = {"seed": evaluate.seed}
    if task.limits:
        options["constraints_func"] = lambda trial: trial.user_attrs["violations"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # options that Optuna calls experimental
        study = optuna.create_study(
            directions=["minimize"] * len(task.goals), sampler=sampler(**options)
        )
    design = evaluate.design()
    rows: Any = task.box.labelled(design).to_dict("records")
    for row in rows:
        study.enqueue_trial(row)
    size = len(design)
    while True:
        trials = [study.ask(space) for _ in range(size)]
        X = pd.DataFrame([trial.params for trial in trials])
        Y = evaluate(X)
        broken = task.violations(Y) if task.limits else np.empty((len(Y), 0))
        for trial, costs, violations in zip(trials, task.costs(Y), broken, strict=True):
            trial.set_user_attr("violations", violations.tolist())
            study.tell(trial, costs.tolist())
        size = evaluate.batch


def distributions(box: Box) -> dict[str, BaseDistribution]:
    """The inputs of a box, as Optuna has them."""
    found: dict[str, BaseDistribution] = {}
    for kind, given in zip(box.kinds, box.bounds.values(), strict=True):
        if isinstance(given, list):
            found[kind.name] = CategoricalDistribution(given)
        elif kind.name in box.integer:
            low, high = (int(end) for end in kind.ends)
            found[kind.name] = IntDistribution(low, high, log=kind.log)
        else:
            found[kind.name] = FloatDistribution(*kind.ends, log=kind.log)
    return found
