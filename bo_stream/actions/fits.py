"""The fits of a computation-aware GP: hyperparameters and actions.

Policies that order rows by locality measure distances in lengthscales. In the first fit, and after
the data have grown by half, the fit therefore proceeds in stages, between which rows are divided
into blocks again under the lengthscales just learned. The first stages start from the current
hyperparameters and, on a stream, from the initial ones, and the better result is continued. After
growth by a quarter, the values of S are learned again, because values merged under earlier
hyperparameters favour these. Any other fit keeps S and takes a handful of evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from gpytorch.mlls import MarginalLogLikelihood

from bo_stream.actions.fit_trace import FitTrace
from bo_stream.actions.objective import ActionMLL
from bo_stream.actions.optimise import OptimiserSettings
from bo_stream.actions.stages import FitTask
from bo_stream.base.fitting.coordinates import Coordinates
from bo_stream.base.fitting.fit import fit_model
from bo_stream.base.fitting.report import FitReport
from bo_stream.mathematics.computation_aware.matrix import ActionMatrix

__all__ = ["fit_actions", "fit_for_botorch"]


def fit_actions(model: Any, mll: ActionMLL, search: OptimiserSettings) -> FitReport:
    """Fit hyperparameters and actions as the policy defines.

    Args:
        model: A surrogate whose state has actions and a `FitHistory`.
        mll: Its objective.
        search: The caller's settings.
    """

    def fit_held(S: ActionMatrix | None, max_evals: int | None) -> FitReport:
        """Fit hyperparameters only, with actions S; None: the current ones."""
        stale = not model.state.factored_under(model._prior())
        if S is None and model.actions.follows_hyperparameters and stale:
            S = model._current_actions()
        if S is not None:
            model._use_actions(S)
        return fit_model(model, max_evals)

    history = model.state.history.begun(Coordinates(model, skip_mean=False).get())
    model._keep_history(history)
    trace = FitTrace(search.progress)
    try:
        mll.train()
        outcome = model.actions.fit(FitTask(mll, search, history, trace, fit_held))
        if outcome.S is not None:
            model._use_actions(outcome.S)
    except BaseException:  # Ctrl-C too
        trace.restore(mll)
        raise
    finally:
        mll.eval()
    n = model.num_observed
    model._keep_history(history.ended(n, outcome.repartitioned, outcome.learned))
    return outcome.report


def fit_for_botorch(
    model: Any,
    mll: MarginalLogLikelihood,
    optimizer: Callable[..., Any] | None,
    options: Mapping[str, Any],
) -> MarginalLogLikelihood:
    """Run a fit, or a user's optimizer on the same objective, for `fit_gpytorch_mll`."""
    objective = mll if isinstance(mll, ActionMLL) else model.make_mll()
    objective.refresh()
    if optimizer is None:
        wanted = {"max_evals": options.get("options", {}).get("maxiter"), **options}
        known = {field.name for field in fields(OptimiserSettings)}
        settings = OptimiserSettings(**{k: v for k, v in wanted.items() if k in known})
        fit_actions(model, objective, settings)
    else:
        objective.train()
        optimizer(objective, closure=objective.closure(), **options)
        objective.eval()
        objective.commit()
        history = model.state.history.ended(model.num_observed, learned=True)
        model._keep_history(history)
    return mll.eval()
