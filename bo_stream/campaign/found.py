"""What trials have found: all of them, the best one, the front. No surrogate is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bo_stream.campaign.frames import trials_frame
from bo_stream.campaign.ledger import Ledger
from bo_stream.campaign.settings import Settings
from bo_stream.errors import StateError, UnsupportedError

__all__ = ["best", "check_optimises", "front", "hypervolume", "told", "trials"]


def trials(ledger: Ledger) -> pd.DataFrame:
    """Every trial; see `bo_stream.Campaign.trials`."""
    settings = ledger.settings
    return trials_frame(list(ledger.history.trials), settings.space, settings.outcomes)


def told(ledger: Ledger) -> pd.DataFrame:
    """Trials with all of their outcomes, as `trials` lists them."""
    found = trials(ledger).query("status == 'told'")
    return found.drop(columns=["status", "ask", "reason"])


def best(ledger: Ledger) -> pd.Series[Any]:
    """The best outcome so far; see `bo_stream.Campaign.best`."""
    settings, outcomes = ledger.settings, ledger.settings.outcomes
    check_optimises(settings)
    if len(outcomes.goals) > 1:
        raise UnsupportedError("one objective", ", ".join(outcomes.goals), "Use front().")
    known = told(ledger)
    if not len(known):
        raise StateError("at least one outcome", "none", "Tell some first.")
    frame = known[outcomes.feasible(known)]
    if not settings.space.is_continuous:
        frame = frame.astype(object)  # so that integers stay integers
    if not len(frame):
        raise StateError(
            "an outcome that satisfies the constraints",
            f"{len(known)} that do not",
            "Tell more first. See recommend() for the most probable setting.",
        )
    values = frame[settings.column].to_numpy(np.float64)
    return frame.iloc[int((settings.sign * values).argmax())]


def front(ledger: Ledger) -> pd.DataFrame:
    """The trials that are not dominated; see `bo_stream.Campaign.front`."""
    outcomes = ledger.settings.outcomes
    if len(outcomes.goals) < 2:
        raise UnsupportedError("several objectives", "one", "Use best() or recommend().")
    found = told(ledger)
    found = found[outcomes.feasible(found)]
    if len(found):
        import torch  # not at the top: one objective needs no front
        from botorch.utils.multi_objective.pareto import is_non_dominated

        found = found[is_non_dominated(torch.from_numpy(outcomes.signed(found))).numpy()]
    return found.sort_values(list(outcomes.goals), kind="stable")


def hypervolume(ledger: Ledger) -> tuple[float, dict[str, float]] | None:
    """Hypervolume of `front`; see `bo_stream.Campaign.hypervolume`."""
    found, outcomes = front(ledger), ledger.settings.outcomes
    if not len(found):
        return None
    import torch  # not at the top: one objective has no hypervolume

    from bo_stream.campaign import recommendation

    volume, reference = recommendation.hypervolume(
        torch.from_numpy(outcomes.signed(found)), outcomes
    )
    bounds = zip(outcomes.measured, reference.tolist(), strict=False)
    return volume, {one.column: one.sign * bound for one, bound in bounds}


def check_optimises(settings: Settings) -> None:
    """Refuse what has no meaning for the goal ``learn``."""
    if settings.goal == "learn":
        wanted = "the goal maximise or minimise"
        raise UnsupportedError(wanted, "the goal learn", "Use predict(frame).")
