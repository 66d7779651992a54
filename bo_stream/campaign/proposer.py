"""Proposing trials: an initial design, then the choice of an acquisition function."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from bo_stream.campaign.campaign_state import CampaignState
from bo_stream.campaign.history import Decision, NewTrials, TrialHistory
from bo_stream.campaign.proposing.proposals import ProposalContext, initial_design
from bo_stream.campaign.proposing.rules import MeasuredChoice
from bo_stream.campaign.randomness import proposing
from bo_stream.campaign.space import Pool
from bo_stream.campaign.space.feasible import FeasibleSet
from bo_stream.errors import InputError

__all__ = ["available_places", "propose"]


def propose(state: CampaignState, q: int) -> NewTrials:
    """The next trials: points chosen ahead while there are enough, otherwise a new choice.

    They are the same ones for the same state. After a fit there is a new choice, too.

    Args:
        state: Current state of the campaign.
        q: Number of trials.

    Raises:
        InputError: if a pool has fewer places left.
    """
    s, space, history = state.settings, state.settings.space, state.history
    if len(history.ahead) >= q and state.fitted <= history.chosen_at:
        return NewTrials(np.array(history.ahead[:q], dtype=np.float64), None, taken=q)
    available = available_places(state.feasible, history)
    if s.exact and isinstance(space, Pool):
        told = {t.place for t in history.trials if t.status == "told"}
        fresh = available[[int(place) not in told for place in available]]
        available = fresh if len(fresh) >= q else available  # unless all were measured
    if isinstance(space, Pool) and len(available) < q:
        remedy = "Ask for fewer" + ("." if space.repeats else ", or use Pool(..., repeats=True).")
        raise InputError(f"{q} places that may still be measured", f"{len(available)}", remedy)
    decision: Decision | None = None
    seconds: float | None = None
    seeded = proposing(s.seed, history.num_asks, state.like.device)
    with seeded, state.ledger.row.timed("acquisition_seconds"):
        model, rule, chosen = state.model, state.stage.rule, None
        if model is not None:
            begin = time.perf_counter()
            chosen = state.choose(q, _context(state, available))
        if chosen is not None:
            decision = getattr(rule, "decision", None)
            if isinstance(rule, MeasuredChoice) and rule.maximised:
                seconds = time.perf_counter() - begin
            if decision is None and history.decision is not None:  # of earlier trials
                decision = s.at(state.stage.start).usual_decision
        else:
            done = sum(trial.ask is not None for trial in history.trials)
            about = state.feasible, s.seed, done, q, available
            chosen = initial_design(*about, s.uniform_start)
            if model is not None:
                decision = Decision("space-filling", "The arithmetic of a decision failed.")
        if s.exact and not isinstance(space, Pool):
            chosen = state.feasible.domain.distinct(chosen, _seen(state).to(chosen))
    if isinstance(space, Pool):
        places = [int(available[i]) for i in chosen]
        empty = np.empty((0, space.dim))
        return NewTrials(space.place_values[places], places, empty, 0, decision, seconds)
    inputs = space.decode(chosen)
    return NewTrials(inputs[:q], None, inputs[q:], 0, decision, seconds)


def available_places(feasible: FeasibleSet, history: TrialHistory) -> Tensor:
    """Rows of the pool that may be proposed; empty in a box."""
    space = feasible.space
    if not isinstance(space, Pool):
        return torch.empty(0, dtype=torch.long)
    free = torch.from_numpy(feasible.holds(space.place_values))
    unused = {"withdrawn", "told"} if space.repeats else {"withdrawn"}
    used = (t.place for t in history.trials if t.status not in unused)
    free[list(used)] = False
    return free.nonzero().squeeze(-1)


def _seen(state: CampaignState) -> Tensor:
    """Points that exact outcomes need not be measured at again."""
    left = [t for status in ("running", "failed") for t in state.history.with_status(status)]
    return torch.cat([state.observations.X, state.points(left)])


def _context(state: CampaignState, available: Tensor) -> ProposalContext:
    data = state.observations
    running = state.history.with_status("running")
    return ProposalContext(
        data.candidates(),
        state.points([trial for trial in running if not trial.entries]),
        state.points(state.history.with_status("failed")),
        available,
        data.best(),
        len(data.X),
        None if state.only is None else state.only.ensemble,
        state.history.evaluation_seconds,
        state.history.decision_seconds,
        data.typical_size,
        state.region,
    )
