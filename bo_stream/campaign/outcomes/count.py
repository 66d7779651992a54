"""Outcomes of a campaign that are counts: their columns, their likelihood, their surrogate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from torch import Tensor

from bo_stream import likelihoods
from bo_stream.base.options import from_plain
from bo_stream.campaign.history import Entry
from bo_stream.campaign.names import numbers
from bo_stream.campaign.outcomes.outcome import Outcome
from bo_stream.campaign.space.spaces import category
from bo_stream.errors import InputError
from bo_stream.likelihoods import Likelihood
from bo_stream.surrogates.counts import CountGP

__all__ = ["LIKELIHOODS", "Count"]

LIKELIHOODS: dict[type[Likelihood], str] = {
    likelihoods.Binomial: "binomial",
    likelihoods.Bernoulli: "bernoulli",
    likelihoods.Poisson: "poisson",
    likelihoods.NegativeBinomial: "negative_binomial",
}
"""Names of the likelihoods of a campaign's counts."""

EXAMPLE = 'For example {"positive": Binomial(trials="examined")}.'


@dataclass(frozen=True)
class Count(Outcome):
    """Counts; an entry is the count, and the trials or the exposure.

    Attributes:
        likelihood: Their likelihood, which names the column of trials or exposures.
    """

    likelihood: Likelihood = field(kw_only=True)

    @classmethod
    def read_setting(cls, given: Any) -> Self:
        """The outcome in a user's setting, or in stored plain data.

        Args:
            given: ``{column: likelihood}``, or a mapping of ``column``, ``likelihood`` (a name of
                `LIKELIHOODS`) and the likelihood's attributes.

        Raises:
            InputError: for anything else.
        """
        if not isinstance(given, Mapping):
            raise InputError("an outcome, a mapping", repr(given), EXAMPLE)
        plain = dict(given)
        if len(plain) == 1:
            ((column, kind),) = plain.items()
        else:
            column, name = plain.pop("column", None), plain.pop("likelihood", None)
            kind = from_plain("likelihood", {"name": name, **plain})
        if type(kind) not in LIKELIHOODS:
            kinds = ", ".join(one.__name__ for one in LIKELIHOODS)
            raise InputError(f"a likelihood of counts, {kinds}", repr(kind), EXAMPLE)
        outcome = cls(column, likelihood=kind)
        known = {name for name, value in asdict(kind).items() if value is not None}
        if outcome.is_truth and known & {"classes", "trials"}:
            remedy = "Code outcomes as 0 and 1, or use Binomial(trials=...)."
            raise InputError("neither trials nor classes for yes and no", repr(kind), remedy)
        names = [column] if outcome.is_truth else [column, outcome.second]
        texts = all(isinstance(name, str) and name.strip() for name in names)
        if not texts or len(set(names)) < len(names):
            sizes = "" if outcome.is_truth else f" and of {kind.size_name}"
            raise InputError(f"columns of counts{sizes}", ", ".join(map(repr, names)), EXAMPLE)
        return outcome

    def check_settings(
        self, goal: str, surrogate: object, noise: object, refused: Collection[str]
    ) -> None:
        """Refuse settings of a campaign that counts cannot have.

        Args:
            goal: Its goal.
            surrogate: The family as given.
            noise: The noise as given.
            refused: Families that take no known noise.

        Raises:
            InputError: naming the setting.
        """
        if goal == "minimise":
            raise InputError("the goal learn or maximise", goal, "Count the opposite outcome.")
        if noise is not None:
            raise InputError("no noise for counts", repr(noise), "Leave it out.")
        name = surrogate["name"] if isinstance(surrogate, Mapping) else surrogate
        if callable(surrogate) or name in refused:
            raise InputError(
                "a family that takes known noise, by name, for counts",
                "a callable" if callable(surrogate) else repr(name),
                "Use 'wiski', 'hsgp' or 'exact', or leave it out.",
            )

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        rest = {k: v for k, v in asdict(self.likelihood).items() if v is not None}
        return {"column": self.column, "likelihood": LIKELIHOODS[type(self.likelihood)], **rest}

    @property
    def is_truth(self) -> bool:
        """Whether an outcome is yes or no."""
        return isinstance(self.likelihood, likelihoods.Bernoulli)

    @property
    def share(self) -> bool:
        """Whether the response is a prevalence, between 0 and 1, rather than a rate."""
        return self.likelihood.size_name == "trials"

    @property
    def label(self) -> str:
        """What predictions mean, for labels: a prevalence in percent, or a rate."""
        if self.share:
            return f"prevalence of {self.column} (%)"
        return f"{self.column} per unit of {self.second}"

    @property
    def factor(self) -> float:
        """Factor from predictions to the unit of `label`."""
        return 100.0 if self.share else 1.0

    # -- frames ----------------------------------------------------------------------------------

    @property
    def second(self) -> str | None:
        """Column of trials or exposures; None if every outcome is of one unit."""
        return cast("str | None", getattr(self.likelihood, self.likelihood.size_name))

    @property
    def columns(self) -> list[str]:
        """Trials or exposures, then counts."""
        return [name for name in (self.second, self.column) if name is not None]

    def read(self, frame: pd.DataFrame, earlier: Entry | None) -> list[Entry | None]:
        """Counts and sizes."""
        truth = category(self.column, (False, True))
        k = truth.read(frame) if self.is_truth else numbers(frame, self.column)
        n = np.ones_like(k)
        counts, most = repr(self.column), "1"
        _refuse(frame, k, (k < 0.0) | (k != k.round()), f"whole counts in {counts}, 0 or more")
        if self.second is not None:
            n, most = numbers(frame, self.second), repr(self.second)
            _refuse(frame, n, n <= 0.0, f"numbers above 0 in {most}", "fail() such a trial.")
            if self.share:
                _refuse(frame, n, n != n.round(), f"whole numbers in {most}")
        if self.share:
            _refuse(frame, k, k > n, f"at most {most} in {counts}")
        return list(zip(k.tolist(), n.tolist(), strict=True))

    def unmeasured(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """Rows from which nothing is learned: without a count, and of 0 of 0."""
        if self.column not in frame:
            return {}
        rows = {f"without {self.column} yet": frame[self.column].isna().to_numpy()}
        if self.second in frame:
            cells = frame[self.columns].apply(pd.to_numeric, errors="coerce")
            rows["with 0 of 0"] = (cells == 0.0).all(axis=1).to_numpy()
        return rows

    def shown(self, entries: Sequence[Entry | None]) -> dict[str, np.ndarray]:
        """Sizes, counts, and the observed rates as ``y``."""
        k, n = np.array([entry or (np.nan, np.nan) for entry in entries]).reshape(-1, 2).T
        sizes = {} if self.second is None else {self.second: n}
        return {**sizes, self.column: k, "y": k / n}

    def text(self, entry: Entry) -> str:
        """A count and its size."""
        return f"{entry[0]!r} of {entry[1]!r}"

    # -- what is learned -------------------------------------------------------------------------

    def surrogate(
        self,
        family: str | None,
        options: Mapping[str, Any],
        X: Tensor,
        Y: Tensor,
        sizes: Tensor | None = None,
        *,
        bounds: Tensor,
        outcome_transform: Any = None,
        covar_module: Any = None,
    ) -> CountGP:
        """The surrogate of outcomes ``Y`` and ``sizes``, each ``n x 1``; nothing is transformed."""
        given = {"bounds": bounds, "surrogate": family, "covar_module": covar_module, **options}
        return CountGP(X, Y, sizes, likelihood=self.likelihood, **given)


def _refuse(
    frame: pd.DataFrame,
    values: np.ndarray,
    bad: np.ndarray,
    expected: str,
    remedy: str = "Correct the row, or leave it out.",
) -> None:
    if bad.any():
        first = int(bad.argmax())
        raise InputError(expected, f"{values[first]:.12g} in row {frame.index[first]}", remedy)
