"""The surrogate of an outcome: built, updated and fitted by a schedule."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import torch
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from bo_stream.base import checkpoint
from bo_stream.base.ensemble import KernelEnsemble
from bo_stream.base.fitting import FitReport, Surprise
from bo_stream.base.streaming_gp import CompositeModel, StreamingGP, emptied, fill
from bo_stream.campaign.effort import FitPolicy, Row, least_growth
from bo_stream.campaign.history import Log
from bo_stream.campaign.outcomes.outcome import Observations, least_learned
from bo_stream.campaign.refitted import Refitted
from bo_stream.errors import (
    BoStreamError,
    FallbackWarning,
    InputError,
    StateError,
    UnsupportedError,
)
from bo_stream.surrogates.counts import CountGP

if TYPE_CHECKING:
    from acquisitions.rule import Rule

__all__ = ["Learner", "Stage", "falling_back", "latent_surrogate"]

FAILURES = (ArithmeticError, MemoryError, NotPSDError, RuntimeError, ValueError)
REFUSALS = (InputError, StateError)
BUGS = (NotImplementedError, RecursionError)

FRESH_BELOW = 1000
"""Number of counts below which they are also fitted from first hyperparameters: few counts may be
explained by the nugget alone, and a fit that starts there may stay there."""

ENSEMBLE_BELOW = 1000
"""Number of outcomes, with those asked for, up to which samples are of several kernels: a larger
batch tells more than they do. The first 1,020 trials in batches of 500 take .42 s, with several
kernels .55."""

ENSEMBLE_OF_PREDICTIONS, PREDICTED_BY = 200, 16
"""Number of outcomes up to which predictions average over kernels, and how many of these. Intervals
of one kernel are too narrow: its hyperparameters were chosen to explain few outcomes."""

ONE_KERNEL = "Predictions and samples are of one kernel."

SCORED = 64
"""Maximum number of outcomes of a batch whose joint prediction is scored."""


@dataclass(frozen=True)
class Stage:
    """What a campaign uses from a number of outcomes on.

    Attributes:
        make: Builds the surrogate: ``(X, Y, Yvar, bounds=..., outcome_transform=...)``.
        policy: When hyperparameters are fitted; a step is a batch told since the surrogate was
            built.
        rule: Chooses trials.
        start: Number of outcomes from which it is used.
        named: Whether none of this is a user's own, given or registered: their errors are raised.
    """

    make: Callable[..., StreamingGP]
    policy: FitPolicy
    rule: Rule
    start: int = 0
    named: bool = True


class Learner:
    """Builds, updates and fits a surrogate, and keeps track of its predictive scores.

    The result is a deterministic function of the batches observed and of the calls of `update`
    between them: repeated, it is the same to the last bit.

    Args:
        stages: What is used, in the order of their starts.
        bounds: ``2 x d``.
        initial: Number of outcomes from which the surrogate is built.
        restandardise: Whether outcomes are standardised again, by all of them, before each fit.
        winsorise: Whether very bad outcomes are learned as less bad ones; see `least_learned`.
        counts: Whether the outcomes are counts.

    Attributes:
        data: All outcomes, of which the surrogate may have observed fewer.
        saved: Number of outcomes in the snapshot last loaded or saved; infinite if none can be.
        number: Number of the current stage.
        least: The least outcome that is learned; lower ones are learned as this one.
        model: The surrogate; None before it is built.
        ensemble: Kernels that are plausible beside the fitted one, or None.
        fitted: Number of outcomes at the last fit; 0 after earlier outcomes were corrected.
        revision: Number of the event since which outcomes were only added; see `Log`.
        surprise: How much worse its predictions were than they promised.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        bounds: Tensor,
        initial: int,
        restandardise: bool = True,
        winsorise: bool = False,
        counts: bool = False,
    ) -> None:
        self.stages, self.bounds, self.winsorise = tuple(stages), bounds, winsorise
        self.initial, self.restandardise = initial, restandardise
        self.data, self.saved = Observations.none(bounds, counts), 0.0
        self.reset()

    def reset(self, revision: int = 0) -> None:
        """Return to the state before any outcome, but for corrections of before."""
        self.model: StreamingGP | None = None
        self.number = 0
        self.surprise = Surprise()
        self.ensemble: KernelEnsemble | None = None
        self._kernels: dict[tuple[int, int], KernelEnsemble | None] = {}
        self._built_at, self._updated_at, self._standardised_at = 0, 0, 0  # in batches
        self.fitted, self._scored, self.revision = 0, 0, revision
        self.least = -math.inf

    def configure(self, stages: Sequence[Stage], bounds: Tensor) -> None:
        """Use other stages and bounds from now on."""
        self.stages, self.bounds = tuple(stages), bounds
        self.number = min(self.number, len(self.stages) - 1)

    def follow(self, data: Observations, log: Log, row: Row) -> bool:
        """Observe the new outcomes, after corrections of earlier ones.

        The surrogate itself knows how many outcomes it has observed, so that an interruption
        neither repeats nor loses one.

        Args:
            data: All outcomes as they are now.
            log: The trials that have them.
            row: Receives the seconds.

        Returns:
            Whether earlier outcomes were corrected.
        """
        self.data, revised = data, self.revision < log.revision
        if revised:
            with row.timed("update_seconds"):
                self._revise(log)
        while self.model is not None and self.num_observed < log.size:
            first = self.num_observed
            part = slice(first, log.ends[bisect_right(log.ends, first)])
            self.observe(*data.part(part), row)
        return revised

    def _revise(self, log: Log) -> None:
        """Follow outcomes that were corrected or withdrawn, with the hyperparameters kept.

        The surrogate is emptied, standardised as it would have been, and observes all outcomes of
        before the correction. A fit is due at the next `update`, if the schedule has one for the
        outcomes so far. It is built anew if it is of counts, if it has observed one batch only, and
        after a change of the space or the family.
        """
        model, data, ends, before = self.model, self.data, log.ends, log.revised_at
        built = bisect_left(ends, self.initial, lo=max(self._built_at - 1, 0)) + 1
        anew = self.revision < log.restarted or built >= before
        if model is None or anew or not isinstance(model, StreamingGP):
            self.reset()
        else:
            number, seen = ends[before - 1], ends[max(self._standardised_at, built) - 1]
            self.least = self._least(data.Y[:seen])
            made = self._refilled(model, data.bounded(self.least), seen, number)
            redrawn = self.ensemble is not None and self.stage.rule.samples
            self.ensemble = _ensemble_of(made) if redrawn else None
            self.surprise = Surprise()
            self.model, self.fitted, self._scored = made, 0, 0
            self._updated_at = min(self._updated_at, before - 1)
        self.revision = log.revision

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self.stages[self.number]

    @property
    def unfitted(self) -> bool:
        """Whether no surrogate was fitted, or only one for fewer outcomes than there are now."""
        later = self.stages[self.number + 1 :]
        return self.fitted == 0 or any(self.num_observed >= stage.start for stage in later)

    @property
    def num_observed(self) -> int:
        """Number of outcomes that the surrogate has observed."""
        return 0 if self.model is None else self.model.num_observed

    def observe(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, row: Row) -> None:
        """Score the prediction of a batch, then observe all of it or nothing.

        Of a batch of more than `SCORED` outcomes so many are scored, and only if their number has
        grown by `least_growth` since the last score: the posterior then need not follow each batch.

        Args:
            X: ``n x d``.
            Y: ``n x 1``.
            Yvar: ``n x 1`` where noise is known; of counts, their trials or exposures.
            row: Receives the seconds and ``log_predictive``.
        """
        if self.model is None:
            return
        surprise, scored, Y = self.surprise, self._scored, Y.clamp_min(self.least)
        latent = latent_surrogate(self.model)
        if latent is not self.model:  # what counts tell depends on the posterior before them
            latent.refresh()
        if len(X) <= SCORED or self.model.num_observed >= least_growth(scored) * scored:
            ignored = falling_back(
                "A prediction was not scored.", allowed=self.stage.named, checked=True
            )
            with row.timed("score_seconds"), ignored:
                some = slice(SCORED)
                noise = None if Yvar is None else Yvar[some]
                score = self.model.predictive_score(X[some], Y[some], noise)
                row["log_predictive"] = float(score.log_density) * max(1.0, len(X) / SCORED)
                surprise = surprise.seen(score.shortfall, score.variance, len(X[some]))
                scored = self.model.num_observed
        again = "The surrogate is built again from all outcomes."
        guard = falling_back(again, allowed=self.stage.named, checked=True)
        with row.timed("update_seconds"), guard:
            self.model.observe(X, Y, Yvar)
            self.surprise, self._scored = surprise, scored
            return
        self.reset(self.revision)

    def update(self, row: Row, q: int = 1) -> bool:
        """Build or fit the surrogate if that is due.

        Args:
            row: Receives the seconds and ``fit_evaluations``.
            q: Number of trials to be chosen.

        Returns:
            Whether its hyperparameters changed.
        """
        data, batches = self.data, self.data.batches
        if len(data.X) < self.initial or batches == self._updated_at:
            return False
        number = max(i for i, stage in enumerate(self.stages) if len(data.X) >= stage.start)
        stage, kept, built_at = self.stages[number], number == self.number, self._built_at
        standardised_at = self._standardised_at
        policy, model = stage.policy, self.model if kept else None
        new, least = model is None, self.least
        if model is None:
            built_at = standardised_at = batches
            least = self._least(data.Y)
            spread = "No surrogate could be built: trials are spread until more are told."
            guard = falling_back(spread, allowed=stage.named, checked=True)
            with row.timed("update_seconds"), guard:
                model = self._made(stage, data.bounded(least))
        if model is None:  # until more outcomes are told
            self._updated_at = batches
            return False
        step = batches - built_at
        passed = range(min(step, self._updated_at - built_at + 1), step + 1)
        n, behind = model.num_observed, self.surprise.behind
        requested = latent_surrogate(model).refit_due
        fitted = any(
            policy.due(s, requested=requested, n=n, fitted=self.fitted, behind=behind)
            for s in passed
        )
        fitted = fitted or self.first_differences(data.Y[:n])
        if fitted:
            if step and self.restandardise:
                before, least = least, self._least(data.Y)
                with row.timed("update_seconds"):
                    model = self._standardised(model, data, before, least, stage.named)
                standardised_at = batches
            limits = policy.limit(step, self.fitted), policy.limit(0, 0)
            with row.timed("fit_seconds"):
                learned = data.bounded(least)
                fresh = partial(self._made, stage, learned)
                model, report = fitted_or_kept(model, fresh, limits, bool(step), stage.named)
                ensemble = None
                with falling_back(ONE_KERNEL, allowed=stage.named, checked=True):
                    ensemble = _ensemble_of(model, q) if stage.rule.samples else None
            if report is not None:
                row["fit_evaluations"] += report.evaluations
                row["fit_objective"] = report.value
            self.ensemble, self.fitted = ensemble, n
        self.model, self.number, self.least = model, number, least
        self._built_at, self._updated_at = built_at, batches
        self._standardised_at = standardised_at
        return fitted or new

    def first_differences(self, Y: Tensor) -> bool:
        """Whether these outcomes differ while those of the last fit were equal.

        Equal outcomes give no unit: zeros would leave that of 1e-9 at one.
        """
        before = Y[: self.fitted]
        if not (self.restandardise and len(before)):
            return False
        return bool((before == Y[0]).all()) and bool((Y[0] != Y).any())

    def _least(self, Y: Tensor) -> float:
        """The least outcome to learn, given those so far."""
        return least_learned(Y) if self.winsorise else -math.inf

    def _refilled(
        self, model: StreamingGP, data: Observations, seen: int, number: int
    ) -> StreamingGP:
        """A surrogate with the same hyperparameters, standardised by the first ``seen`` outcomes,
        that observed the first ``number``.
        """
        if isinstance(model, Refitted):
            return cast(StreamingGP, model.renewed(*data.part(slice(number))))
        made = emptied(model)
        if self.restandardise:
            self._restandardise(made, data.Y[:seen])
        fill(made, *data.part(slice(number)))
        return made

    def _standardised(
        self, model: StreamingGP, data: Observations, before: float, least: float, named: bool
    ) -> StreamingGP:
        """The surrogate standardised by all outcomes, of which those below a limit are bounded.

        It observes all of them again if a bounded one has changed.
        """
        learned, n = data.bounded(least), model.num_observed
        with falling_back("The standardisation stays.", allowed=named, checked=True):
            if torch.equal(learned.Y[:n], data.bounded(before).Y[:n]):
                self._restandardise(model, learned.Y)
            else:
                model = self._refilled(model, learned, len(learned.Y), n)
        return model

    def _made(self, stage: Stage, data: Observations) -> StreamingGP:
        """A new surrogate of all outcomes."""
        scale = Standardize(m=1)
        made: object = stage.make(
            data.X, data.Y, data.Yvar, bounds=self.bounds, outcome_transform=scale
        )
        if not isinstance(made, StreamingGP | CompositeModel | Refitted):
            raise InputError(
                "a surrogate of this package, or a model of BoTorch",
                f"{type(made).__name__} from the callable",
                "Return one.",
            )
        return cast(StreamingGP, made)

    def _restandardise(self, model: StreamingGP, Y: Tensor) -> None:
        try:
            model.restandardise(Y)
        except UnsupportedError:  # it was built with a transform of its own
            self.restandardise = False

    def kernels(self) -> KernelEnsemble | None:
        """What predictions average over: the ensemble, or a new one where outcomes are few.

        A new one costs some dozen evaluations of the evidence, and is kept until a fit.
        """
        model = self.model
        few = 0 < self.num_observed <= ENSEMBLE_OF_PREDICTIONS
        if self.ensemble is not None or not few or not KernelEnsemble.serves(model):
            return self.ensemble
        key = (self.fitted, self.revision)
        if key not in self._kernels:
            self._kernels = {key: None}
            with falling_back(ONE_KERNEL, allowed=self.stage.named, checked=True):
                fitted = cast(StreamingGP, model)
                self._kernels[key] = KernelEnsemble.around(fitted, PREDICTED_BY, seed=self.fitted)
        return self._kernels[key]

    # -- snapshots -------------------------------------------------------------------------------

    def dumps(self) -> tuple[dict[str, Any], bytes]:
        """The contents of a snapshot; empty, with a warning, if the surrogate cannot be saved."""
        self.saved = self.num_observed
        if self.model is None:
            return {}, b""
        foreign = isinstance(self.model, Refitted)
        try:
            model = self.model.dumps() if foreign else checkpoint.dumps(self.model)
        except UnsupportedError as error:
            what = "This surrogate cannot be saved; a resumed campaign builds it again from all"
            warnings.warn(f"{what} outcomes. {error}", stacklevel=6)
            self.saved = math.inf
            return {}, b""
        about = {
            "told": self.num_observed,
            "begun": self._built_at,
            "settled": self._updated_at,
            "standardised": self._standardised_at,
            "revision": self.revision,
            "stage": self.number,
            "foreign": foreign,
            "fitted": self.fitted,
            "scored": self._scored,
            "ensemble": None if self.ensemble is None else self.ensemble.to_lists(),
            "least": self.least if math.isfinite(self.least) else None,
            "surprise": astuple(self.surprise),
        }
        return about, model

    def loads(self, about: dict[str, Any], model: bytes) -> None:
        """Restore the contents of a snapshot.

        Modules of a user's own are those of a new surrogate.

        Raises:
            StateError: for a snapshot that is damaged or was saved by another release.
        """
        loaded = self._loaded(about, model)
        count, total, *_, variance = about["surprise"]  # earlier releases stored another sum
        surprise = Surprise(int(count), total, variance)
        plain = about["ensemble"]
        self.ensemble = None if plain is None else KernelEnsemble.from_lists(plain)
        self._built_at, self._updated_at = about["begun"], about["settled"]
        self._standardised_at, self.revision = about["standardised"], about["revision"]
        self.number, self.fitted, self._scored = about["stage"], about["fitted"], about["scored"]
        self.least = -math.inf if about["least"] is None else about["least"]
        self.model, self.surprise = loaded, surprise

    def _loaded(self, about: Mapping[str, Any], model: bytes) -> StreamingGP:
        """The surrogate in a snapshot; a model of BoTorch is built again of the same data."""
        stage = self.stages[about["stage"]]
        if about.get("foreign"):
            saved = torch.load(BytesIO(model), weights_only=True)
            made = cast(Refitted, self._made(stage, Observations(*saved["data"])))
            return cast(StreamingGP, made.with_parameters(saved["parameters"]))
        document = checkpoint.read(model)
        try:
            return checkpoint.build(document)
        except InputError:  # it was built with modules of a user's own: those of a new one
            Y = torch.arange(2.0).to(self.bounds).unsqueeze(-1)  # at two corners of the box
            learned = document["arguments"].get("train_Yvar", Y) is None
            corners = Observations(self.bounds, Y, None if learned else torch.ones_like(Y))
            found = self._made(stage, corners)._arguments()
            names = (document["kinds"] | document["handed_in"]).keys() & found.keys()
            return checkpoint.build(document, **{name: found[name] for name in names})


@contextmanager
def falling_back(
    consequence: str, *, allowed: bool = True, checked: bool = False
) -> Iterator[None]:
    """End the block with a warning if its arithmetic fails or memory is exhausted.

    Refusals of arguments are raised, and so is everything if the block calls a user's code.

    Args:
        consequence: What happens instead, a sentence.
        allowed: Whether to fall back at all.
        checked: Whether outcomes were checked before, so that refusing their values or a state is
            a failure of arithmetic, too.
    """
    try:
        yield
    except FAILURES as error:
        refused = isinstance(error, BoStreamError) and not (checked and type(error) in REFUSALS)
        if not allowed or refused or isinstance(error, BUGS):
            raise
        reason = f"{type(error).__name__}: {str(error).strip()[:200]}"
        warnings.warn(f"{consequence} ({reason})", FallbackWarning, stacklevel=3)


def fitted_or_kept(
    model: StreamingGP,
    fresh: Callable[[], StreamingGP],
    limits: tuple[int | None, int | None],
    later: bool,
    named: bool,
) -> tuple[StreamingGP, FitReport | None]:
    """The surrogate after a fit; one fitted from first hyperparameters if that fails, or as it was.

    Args:
        model: The surrogate.
        fresh: Builds a new one of the same outcomes.
        limits: Maximum numbers of evaluations: of this fit, and of one from first hyperparameters.
        later: Whether the surrogate was fitted before.
        named: Whether it is none of a user's callable, whose errors are raised.

    Returns:
        The surrogate, and the report of the fit, None if both failed.
    """
    again = "A fit starts again from first hyperparameters."
    with falling_back(again, allowed=named, checked=True):
        report = model.fit(limits[0])
        counts = isinstance(model, CountGP) and model.informative
        if later and counts and model.num_observed < FRESH_BELOW:
            other = fresh()
            anew = other.fit(limits[1])
            spent = report.evaluations + anew.evaluations
            if anew.value > report.value:
                model, report = other, anew
            report = replace(report, evaluations=spent)
        return model, report
    with falling_back("Hyperparameters stay.", allowed=named, checked=True):
        other = fresh()
        return other, other.fit(limits[1])
    return model, None


def latent_surrogate(model: Model | None) -> StreamingGP:
    """The surrogate of latent values under counts, or the surrogate itself."""
    return cast(StreamingGP, model.model if isinstance(model, CountGP) else model)


def _ensemble_of(model: StreamingGP, q: int = 1) -> KernelEnsemble | None:
    latent = latent_surrogate(model)
    serves = KernelEnsemble.serves(latent) and latent.promises.additive
    if model.num_observed + q > ENSEMBLE_BELOW or not serves:
        return None
    return KernelEnsemble.around(latent, seed=model.num_observed)
