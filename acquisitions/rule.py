"""Rules, which choose trials, what they may look at, and the names of rules and functions."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from bo_stream.campaign.effort import Optimiser
from bo_stream.errors import InputError

if TYPE_CHECKING:
    from botorch.models.model import Model

    from acquisitions.domain import Domain
    from bo_stream.base.ensemble import KernelEnsemble
    from bo_stream.campaign.outcomes.outcome import Observations

__all__ = ["DATA", "REGISTRY", "Proposal", "Registered", "Rule", "View", "register"]

USUAL_DATA = frozenset({"X_baseline", "best_f", "X_pending"})
"""Data for functions that take any arguments."""

DATA = USUAL_DATA | {
    *("mc_points", "bounds", "near", "observed", "domain", "ensemble", "region", "trials"),
    *("weights", "ref_point", "sampler"),
}
"""Names of what an acquisition function is computed from; its other parameters are options."""


CALLABLES = frozenset({"objective", "posterior_transform", "constraints"})
"""Options that are no plain data."""

SAMPLING = frozenset({"num_samples", "seed"})
"""Options of functions that take a ``sampler`` of the posterior."""


@dataclass(frozen=True)
class View:
    """All that a rule may look at.

    Points are in the surrogate's coordinates. Larger outcomes are better, whatever the goal is.

    Attributes:
        model: The surrogate; of several outcomes BoTorch's list of models, objectives first. None
            before there is one, when no rule is asked.
        data: Outcomes so far: points ``X``, ``n x d``, and outcomes ``Y``, ``n x m``.
        domain: Where trials may be: bounds, discrete inputs and constraints.
        pending: ``n' x d`` points of running trials.
        failed: ``n" x d`` points that gave no outcome.
        places: ``P x d`` places of a pool that may be measured; None in a box.
        targets: Points over which variance is integrated, if that is the goal; None: everywhere.
        number: Number of the call; with the campaign's seed it determines all randomness.
        asked: Number of trials that were asked for.
        effort: Effort of maximising an acquisition function.
        ensemble: Other plausible kernels for the same outcomes, for rules that draw samples.
        region: A point that is known well, and radii of a region about it, ``2 x d``, likewise.
    """

    model: Model | None
    data: Observations
    domain: Domain
    pending: Tensor
    failed: Tensor
    places: Tensor | None = None
    targets: Tensor | None = None
    number: int = 0
    asked: int = 0
    effort: Optimiser = Optimiser()
    ensemble: KernelEnsemble | None = None
    region: Tensor | None = None


@dataclass(frozen=True)
class Proposal:
    """The next trials, as a rule chose them.

    Attributes:
        points: ``q x d`` points of a box, or ``q`` different rows of the places of a pool.
        name: What chose them; by default the name of the rule.
        why: Why, a sentence; by default why the rule was chosen.
        ahead: Further points of a box, for later calls.
    """

    points: Tensor
    name: str = ""
    why: str = ""
    ahead: Tensor | None = None


class Rule(ABC):
    """Chooses trials. Randomness is that of torch's global generators, which are seeded.

    Attributes:
        family: Name of the surrogate that the rule needs, over a box; None: any, over pools too.
        unconstrained: Whether it needs continuous inputs without constraints.

    Example:
        >>> class Uniform(Rule):
        ...     def propose(self, view, q):
        ...         return Proposal(view.domain.uniform(q))
    """

    family: ClassVar[str | None] = None
    unconstrained: ClassVar[bool] = False

    @property
    def samples(self) -> bool:
        """Whether it draws samples, for which ensemble and region of the view are kept."""
        return False

    @abstractmethod
    def propose(self, view: View, q: int) -> Proposal:
        """The next trials.

        Args:
            view: What is known.
            q: Number of trials, 1 or more.
        """


@dataclass(frozen=True)
class Registered:
    """What a name stands for.

    Attributes:
        make: A class of rules, or what builds an acquisition function of ``(model, **data)``.
        data: Names among `DATA` that it takes.
        required: Those among them and the options that have no default.
        options: Names of its options; None: any.
        outcomes: Number of outcomes that it is for; None for any.
        ours: Whether it is of this package.
    """

    make: Callable[..., Any]
    data: frozenset[str]
    required: tuple[str, ...]
    options: frozenset[str] | None
    outcomes: int | None = 1
    ours: bool = False

    @property
    def is_rule(self) -> bool:
        """Whether it is a class of rules."""
        return isinstance(self.make, type) and issubclass(self.make, Rule)


REGISTRY: dict[str, Registered] = {}
"""All rules and acquisition functions by name."""


def register(
    name: str, make: Callable[..., Any], *, outcomes: int | None = 1, ours: bool = False
) -> None:
    """Give a rule or an acquisition function a name, by which campaigns and `build` find it.

    A program that resumes a campaign with it has to register it first.

    Args:
        name: A name that this package does not have. One that was registered before is replaced.
        make: A subclass of `Rule`, built with the options that are given with its name. Or what
            returns a BoTorch acquisition function of ``(model, **data)``: it is passed those of
            ``X_baseline``, ``best_f``, ``X_pending``, ``mc_points``, ``bounds`` and the other
            `DATA` that it has parameters for, and the options; a search maximises what it returns.
        outcomes: Number of outcomes that it is for; None for any number.
        ours: Whether it is of this package.

    Raises:
        InputError: for a name of this package, or what cannot be called.

    Example:
        >>> from botorch.acquisition.analytic import ProbabilityOfImprovement
        >>> def improves(model, best_f):
        ...     return ProbabilityOfImprovement(model, best_f)
        >>> register("improves", improves)
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError("a name", repr(name), "For example 'mine'.")
    if not callable(make) or make is Rule:
        raise InputError("a rule, or a callable that builds one", repr(make), "Give one.")
    if not ours and name in REGISTRY and REGISTRY[name].ours:
        raise InputError(
            "a name that no acquisition function has", repr(name), "Choose another name."
        )
    REGISTRY[name] = described(make, outcomes, ours)


def described(make: Callable[..., Any], outcomes: int | None = 1, ours: bool = False) -> Registered:
    """What a callable takes, by its signature; arguments of a `partial` are taken already."""
    bound = set(make.keywords) if isinstance(make, partial) else set[str]()
    rule = isinstance(make, type) and issubclass(make, Rule)
    parameters = list(inspect.signature(make).parameters.values())[0 if rule else 1 :]
    open_ended = not ours and any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    names = named.keys() - bound
    data = set() if rule else (names & DATA) | (USUAL_DATA - bound if open_ended else set())
    needed = tuple(key for key, p in named.items() if key in names and p.default is p.empty)
    options = names - (set() if rule else DATA) | (SAMPLING if "sampler" in data else set())
    allowed = None if open_ended else frozenset(options - CALLABLES)
    return Registered(make, frozenset(data), needed, allowed, outcomes, ours)
