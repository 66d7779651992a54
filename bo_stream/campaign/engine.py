"""Decisions: surrogates of all outcomes, and the rule that chooses trials by them.

An engine knows neither a store nor frames. Campaigns, samplers of other frameworks and simulated
runs hold one each. `stages_of` makes what the settings of a campaign name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.models.model import Model, ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from torch import Tensor

from bo_stream.base.streaming_gp import CompositeModel, StreamingGP
from bo_stream.campaign.constraints import FeasibleSet, InputConstraint
from bo_stream.campaign.effort import Row, proposing
from bo_stream.campaign.learner import Learner, Stage, falling_back, latent_surrogate
from bo_stream.campaign.options import errors_about
from bo_stream.campaign.outcomes.outcome import Observations
from bo_stream.campaign.recommendation import region_of_best
from bo_stream.campaign.refitted import refitted
from bo_stream.campaign.settings import NamedChoice, Settings, read_choice, renamed
from bo_stream.campaign.space import Pool
from bo_stream.errors import InputError, ShapeError, check_not_shadowed
from bo_stream.surrogates.registry import FAMILIES, OURS, in_loops, surrogate, with_categories

if TYPE_CHECKING:
    from acquisitions.maximised import AcquisitionBuilder
    from acquisitions.rule import Proposal, Rule, View

__all__ = ["Engine", "check_surrogate", "initial_design", "stages_of"]

TARGETS = 1024
"""Maximum number of places of a pool over which the variance is integrated."""

ROUNDING = 1e-6
"""How far, in widths of the space, a proposed point may be from where it becomes a trial."""


class Engine:
    """Learners of all outcomes and the rule that chooses trials.

    Args:
        settings: Settings of a campaign.
        stages_of: The surrogate and what chooses trials, by settings.
        constraints: The callables among the constraints.
        like: A tensor of the dtype and device to use.
        renews: Whether posteriors are computed again before each choice, as after loading: a
            resumed campaign then goes on bit for bit.

    Attributes:
        settings: The current settings.
        outcomes: The outcomes.
        feasible: Where trials may be proposed.
        stages: What chooses trials, in the order of their starts.
        learners: The surrogate of every outcome, by column.
        region: Where some trials are drawn: about the recommended point of the latest fit.
    """

    def __init__(
        self,
        settings: Settings,
        stages_of: Callable[[Settings], Sequence[Stage]],
        constraints: Sequence[InputConstraint] = (),
        like: Tensor | None = None,
        renews: bool = False,
    ) -> None:
        self.stages_of, self._constraints, self._renews = stages_of, constraints, renews
        self.like = torch.empty(0, dtype=torch.float64) if like is None else like
        self.forget()
        self.configure(settings)

    def forget(self) -> None:
        """Forget all surrogates and outcomes."""
        self.learners: dict[str, Learner] = {}
        self.region: Tensor | None = None

    def configure(self, settings: Settings) -> None:
        """Use these settings from now on."""
        self.settings, self.outcomes = settings, settings.outcomes
        self.feasible = settings.feasible(self._constraints)
        self.stages = self.stages_of(settings)
        self._targets = _targets(settings)
        bounds = settings.space.tensor_bounds.to(self.like)
        counts = settings.counts is not None
        winsorise = settings.goal != "learn" and not counts
        about = settings.initial, settings.restandardise, winsorise, counts
        for outcome in self.outcomes.learned:
            if outcome.column in self.learners:
                self.learners[outcome.column].configure(self.stages, bounds)
            else:
                self.learners[outcome.column] = Learner(self.stages, bounds, *about)

    # -- learning --------------------------------------------------------------------------------

    def observe(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, row: Row, batches: int = 1
    ) -> None:
        """Learn from new values of the only outcome, to be maximised.

        Args:
            X: ``n x d`` points.
            Y: ``n x 1``.
            Yvar: ``n x 1`` noise variances, where they are known.
            row: Receives the seconds.
            batches: Number of steps of the schedule that they count as.
        """
        (learner,) = self.learners.values()
        learner.data = learner.data.extended(X, Y, Yvar, batches)
        learner.observe(X, Y, Yvar, row)

    def update(self, row: Row, q: int = 1) -> bool:
        """Build or fit every surrogate for which that is due, for the choice of so many trials.

        Returns:
            Whether one changed.
        """
        changed = [one.update(row, q) for one in self.used]
        if any(changed):
            self.region = None
            only = self.only
            if only is not None and only.model is not None and self.stage.rule.samples:
                nowhere = "No trials are drawn about the recommended point."
                guard = falling_back(nowhere, allowed=self.stage.named, checked=True)
                with row.timed("acquisition_seconds"), guard:
                    self.region = region_of_best(only.model, self.feasible, only.data)
        return any(changed)

    @property
    def used(self) -> list[Learner]:
        """The surrogates that are used: completion is learned once some trials failed."""
        learners = list(self.learners.values())
        unknown = self.outcomes.completed and len(learners[-1].data.Y.unique()) < 2
        return learners[:-1] if unknown else learners

    @property
    def only(self) -> Learner | None:
        """The surrogate of the only outcome; None if several are learned together."""
        return None if self.outcomes.joint else self.used[0]

    @property
    def model(self) -> StreamingGP | None:
        """The surrogate, or those of all outcomes as one model; None before all are built.

        Objectives are to be maximised.
        """
        models = [one.model for one in self.used if one.model is not None]
        if len(models) < len(self.used):
            return None
        if not self.outcomes.joint:
            return models[0]
        gaussian = all(map(supports_cache_root, models))
        joint = ModelListGP(*models) if gaussian else ModelList(*models)
        return cast(StreamingGP, joint)

    @property
    def stage(self) -> Stage:
        """What is used now; its rule chooses trials by all surrogates together."""
        return self.stages[min(one.number for one in self.used)]

    @property
    def fitted(self) -> int:
        """Number of outcomes at the last fit, of the outcome for which it is smallest."""
        return min(one.fitted for one in self.used)

    @property
    def unfitted(self) -> bool:
        """Whether some surrogate was not fitted, or for fewer outcomes or equal ones only."""
        differ = self.only is not None and self.only.first_differences(self.only.data.Y)
        return differ or any(one.unfitted for one in self.used)

    @property
    def behind(self) -> bool:
        """Whether some outcomes are further from the predictions than these promise."""
        return any(one.surprise.behind for one in self.used)

    # -- choosing --------------------------------------------------------------------------------

    def view(
        self,
        data: Observations,
        pending: Tensor,
        failed: Tensor,
        free: Tensor | None = None,
        number: int = 0,
        asked: int = 0,
    ) -> View:
        """What a rule may look at now.

        Args:
            data: All outcomes.
            pending: Points of running trials, ``n x d``.
            failed: Points of trials without an outcome, likewise.
            free: Rows of the pool that may be measured.
            number: Number of the call of `ask`.
            asked: Number of trials that were asked for.
        """
        from acquisitions.rule import View  # not at the top: it imports bo_stream

        space = self.settings.space
        return View(
            self.model,
            data,
            self.feasible.domain,
            pending,
            failed,
            places=space.points.to(self.like)[free] if isinstance(space, Pool) else None,
            targets=self._targets,
            region=self.region,
            ensemble=None if self.only is None else self.only.ensemble,
            number=number,
            asked=asked,
            effort=self.settings.optimiser,
        )

    def propose(self, view: View, q: int) -> Proposal:
        """The next trials: the same ones for the same view. Without a surrogate they are spread.

        Args:
            view: What is known.
            q: Number of trials.
        """
        from acquisitions.domain import SAME  # not at the top: it imports bo_stream
        from acquisitions.rule import Proposal

        settings, space = self.settings, self.settings.space
        with proposing(settings.seed, view.number, self.like.device):
            found = None if view.model is None else self._chosen(view, q)
            if found is None:
                free = 0 if view.places is None else len(view.places)
                about = self.feasible, settings.seed, view.asked, q, free
                points = initial_design(*about, uniform=settings.family == "warped")
                failed = "space-filling", "The arithmetic of a decision failed."
                found = Proposal(points, *(() if view.model is None else failed))
            if settings.exact and not isinstance(space, Pool):
                seen = torch.cat([view.data.X, view.pending, view.failed]).to(found.points)
                points = view.domain.distinct(found.points, seen, SAME)
                found = replace(found, points=points, ahead=None)
        return found

    def _chosen(self, view: View, q: int) -> Proposal | None:
        """Trials by the current rule; None, with a warning, if its arithmetic fails."""
        usual = self.settings.stages[self.stages.index(self.stage)].usual_decision
        spread = "Trials are spread over the space: an acquisition function could not be maximised."
        with falling_back(spread, allowed=self.stage.named):
            for one in self.used if self._renews else ():
                latent_surrogate(one.model).refresh()
            found = self.stage.rule.propose(view, q)
            _check_proposed(found, view, q)
            return replace(found, name=found.name or usual[0], why=found.why or usual[1])
        return None

    # -- snapshots -------------------------------------------------------------------------------

    def dumps(self) -> tuple[dict[str, Any], bytes]:
        """All surrogates that can be saved: about each, by column, and their contents together."""
        parts: dict[str, dict[str, Any]] = {}
        contents = b""
        for column, one in self.learners.items():
            about, model = one.dumps()
            if about:
                parts[column], contents = {**about, "bytes": len(model)}, contents + model
        region = None if self.region is None else self.region.tolist()
        return {"parts": parts, "region": region, "joint": self.outcomes.joint}, contents

    def loads(self, about: Mapping[str, Any], contents: bytes) -> bool:
        """Restore what `dumps` returned.

        Returns:
            False if it was saved before failures were changed.
        """
        if about["joint"] != self.outcomes.joint:
            return False
        region, stream = about["region"], BytesIO(contents)
        for column, one in self.learners.items():
            one.reset()
            if column in about["parts"]:
                one.loads(about["parts"][column], stream.read(about["parts"][column]["bytes"]))
            one.saved = one.num_observed
        self.region = None if region is None else self.like.new_tensor(region)
        return True


def initial_design(
    feasible: FeasibleSet, seed: int, done: int, q: int, free: int = 0, uniform: bool = False
) -> Tensor:
    """Points of the initial design: ``q`` after the ``done`` earlier ones.

    Args:
        feasible: A box gives feasible points of one Sobol sequence, ``q x d``; a pool gives random
            places, as ``q`` indices of the free ones.
        seed: Seed of the sequence or of the random places.
        done: Number of earlier points.
        q: Number of points.
        free: Number of places of the pool that may be measured.
        uniform: Whether points of a box are independent and uniform instead. On Hartmann's function
            of six inputs, local searches of `WarpedGP` from uniform points found the global optimum
            in 17 of 20 runs, from Sobol points in 18 of 30.
    """
    space = feasible.space
    if isinstance(space, Pool):
        generator = torch.Generator().manual_seed(seed + done)
        return torch.randperm(free, generator=generator)[:q]
    if not (feasible.is_box and uniform):
        return feasible.domain.sequence(seed, done, q)
    generator = torch.Generator().manual_seed(seed)
    low, high = space.tensor_bounds
    U = torch.rand(done + q, space.dim, dtype=low.dtype, generator=generator)
    return low + (high - low) * U[done:]


def _check_proposed(found: Proposal, view: View, q: int) -> None:
    """Refuse what no trials can be: other numbers, repeated places, points that are infeasible."""
    points, pool = getattr(found, "points", None), view.places is not None
    shape = (q,) if pool else (q, view.pending.shape[-1])
    if (
        not isinstance(points, Tensor)
        or points.shape != shape
        or points.is_floating_point() == pool
    ):
        what = "different rows of view.places" if pool else "points"
        got = type(found).__name__ if points is None else f"{points}"
        raise ShapeError(f"a Proposal of {what}, shape {shape}", got, "Return one from the rule.")
    if not bool(points.isfinite().all()):
        raise ArithmeticError("The points are not finite.")
    if view.places is not None:
        if len({*points.tolist()}.intersection(range(len(view.places)))) < q:
            places = f"{q} different rows of {len(view.places)} places"
            raise InputError(places, f"{points.tolist()}", "Choose each once.")
    else:
        domain, X = view.domain, points.to(view.domain.bounds)
        away = (domain.snapped(domain.clipped(X)) - X).abs() > ROUNDING * domain.width
        if bool(away.any()) or not bool(domain.holds(X).all()):
            feasible = "feasible points from a rule"
            raise InputError(feasible, f"{points.tolist()}", "Draw them from view.domain.")


def _targets(settings: Settings) -> Tensor | None:
    """Points over which variance is integrated: those of a user, or places of a pool."""
    space = settings.space
    if settings.targets is not None:
        return space.encode(np.array(settings.targets))
    if not isinstance(space, Pool):
        return None
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(space.points), generator=generator)[:TARGETS]
    return space.points if len(space.points) <= TARGETS else space.points[some]


# -- what settings name, made ----------------------------------------------------------------------


def stages_of(
    begun: Settings,
    surrogate: NamedChoice | Callable[..., Model] | None,
    acquisition: NamedChoice | AcquisitionBuilder | None,
    constraints: Sequence[Any],
    settings: Settings,
) -> list[Stage]:
    """The surrogate and what chooses trials, and those that follow for more outcomes.

    Args:
        begun: The first settings of a program.
        surrogate: A callable or a name in place of that of the first settings.
        acquisition: Likewise.
        constraints: The callables among the constraints.
        settings: The settings.

    Raises:
        InputError: for names that there are not.
    """
    check_not_shadowed("acquisitions")
    from acquisitions.rule import REGISTRY  # not at the top: a circle

    feasible, stages = settings.feasible(constraints), list[Stage]()
    for one in settings.stages:
        given = surrogate if one.surrogate == begun.surrogate else None
        family = read_choice(given) or one.surrogate
        asked = acquisition if one.acquisition == begun.acquisition else None
        search = renamed(read_choice(asked)) or one.acquisition
        for what, choice in (("surrogate", family), ("acquisition", search)):
            if choice is None:
                raise InputError(
                    f"the {what}, a callable that the store cannot hold",
                    "none",
                    f"Give it again: Campaign.resume(url, name, {what}=...).",
                )
        with errors_about("surrogate"):
            make = _surrogate(one, family)
        with errors_about("acquisition"):
            rule = _rule(one, feasible, search)
        entry = REGISTRY.get(search["name"]) if isinstance(search, dict) else None
        ours = isinstance(family, dict) and family["name"] in OURS
        named = ours and entry is not None and entry.ours and not feasible.callables
        stages.append(Stage(make, one.fit, rule, one.start, named))
    return stages


def check_surrogate(settings: Settings) -> None:
    """Refuse options of the surrogate, unless it is a callable: it is built without data.

    Raises:
        InputError: for options that there are not, or that do not suit the space.
    """
    if settings.surrogate is not None:
        bounds = settings.space.tensor_bounds
        with errors_about("surrogate"):
            make = _surrogate(settings, settings.surrogate)
            make(bounds[:0], bounds[:0, :1], bounds=bounds, outcome_transform=None)


def _surrogate(settings: Settings, choice: Any) -> Callable[..., StreamingGP]:
    """What builds the surrogate of a choice: a callable, or name and options."""
    if callable(choice):
        if isinstance(choice, type) and issubclass(choice, CompositeModel):
            remedy = "Tell counts to a bo_stream.Campaign with `outcome`."
            raise InputError("a surrogate of measurements", choice.__name__, remedy)
        return cast("Callable[..., StreamingGP]", partial(refitted, choice))
    options, space = dict(choice), settings.space
    name = options.pop("name")
    if name not in FAMILIES:
        known = f"the name of a surrogate, one of {', '.join(FAMILIES)}"
        raise InputError(known, repr(name), "Choose one of these.")
    options = in_loops(name, options)
    if name == "warped" and settings.goal == "learn":  # the variance of outcomes is integrated
        options = {"warp": "none", **options}
    make: Callable[..., Any] = partial(surrogate, name, **options)
    if settings.counts is not None:
        make = partial(settings.counts.surrogate, name, options)
    if space.categories:
        make = partial(with_categories, make, name, space.dim, space.categories)
    return make


def _rule(settings: Settings, feasible: FeasibleSet, choice: Any) -> Rule:
    """What chooses trials by a choice: a callable, or name and options."""
    from acquisitions.maximised import Maximised, rule_of  # not at the top: a circle

    if callable(choice):
        return Maximised(choice)
    return rule_of(choice, settings.outcomes, feasible, settings.family)
