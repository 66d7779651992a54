"""Outcomes of a campaign that are counts: their columns, their likelihood, their surrogate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from botorch.models.model import Model
from torch import Tensor

from bo_stream import likelihoods
from bo_stream.base.options import from_plain
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.names import OWN
from bo_stream.campaign.space import Space, numbers
from bo_stream.campaign.space.columns import column, told_apart, truths
from bo_stream.errors import InputError
from bo_stream.likelihoods import Likelihood
from bo_stream.surrogates.counts import CountGP

__all__ = ["LIKELIHOODS", "Count", "latent_surrogate"]

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "binomial": likelihoods.Binomial,
    "bernoulli": likelihoods.Bernoulli,
    "poisson": likelihoods.Poisson,
    "negative_binomial": likelihoods.NegativeBinomial,
}
"""Likelihoods of a campaign's counts, by name."""

EXAMPLE = 'For example {"positive": Binomial(trials="examined")}.'


@dataclass(frozen=True)
class Count:
    """Counts in the columns of a user's frames.

    Attributes:
        column: Column of the counts.
        likelihood: Their likelihood, which names the column of trials or exposures.
    """

    column: str
    likelihood: Likelihood

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
            if name not in LIKELIHOODS:
                known = ", ".join(LIKELIHOODS)
                raise InputError(f"a likelihood, one of {known}", repr(name), "Choose one.")
            kind = from_plain("likelihood", {"name": name, **plain})
        if type(kind) not in LIKELIHOODS.values():
            kinds = ", ".join(one.__name__ for one in LIKELIHOODS.values())
            raise InputError(f"a likelihood of counts, {kinds}", repr(kind), EXAMPLE)
        outcome = cls(column, kind)
        outcome._check()
        return outcome

    def _check(self) -> None:
        """Refuse columns that cannot be, and classes."""
        sized = self.name != "bernoulli"
        names = [self.column, *([self.size] if sized else [])]
        if not all(isinstance(name, str) and name.strip() for name in names):
            what = f"columns of counts and of {self.likelihood.size_name}"
            what = what if sized else "a column of counts"
            raise InputError(what, ", ".join(map(repr, names)), EXAMPLE)
        if not set(OWN).isdisjoint(names) or len(set(names)) < len(names):
            what = f"different columns, other than {', '.join(OWN)}"
            raise InputError(what, ", ".join(map(repr, names)), "Rename them.")
        plain = asdict(self.likelihood)
        if plain.get("classes") is not None:
            raise InputError("outcomes 0 and 1", "classes", "Code them as 0 and 1.")
        if not sized and plain["trials"] is not None:
            raise InputError("no trials for yes and no", "trials", "Use Binomial(trials=...).")

    def check_settings(
        self, space: Space, goal: str, surrogate: Any, noise: Any, refused: Collection[str]
    ) -> None:
        """Refuse settings of a campaign that counts cannot have.

        Args:
            space: Its space.
            goal: Its goal.
            surrogate: The family as given.
            noise: The noise as given.
            refused: Families that take no known noise.

        Raises:
            InputError: naming the setting.
        """
        shared = ", ".join(name for name in self.columns if name in space.names)
        if shared:
            raise InputError("columns of counts that are no inputs", shared, "Rename them.")
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
        return {"column": self.column, "likelihood": self.name, **rest}

    @property
    def name(self) -> str:
        """Name of the likelihood."""
        return next(name for name, kind in LIKELIHOODS.items() if kind is type(self.likelihood))

    @property
    def size(self) -> str | None:
        """Column of trials or exposures; None if every outcome is of one unit."""
        if self.name == "bernoulli":
            return None
        return cast("str | None", asdict(self.likelihood)[self.likelihood.size_name])

    @property
    def columns(self) -> list[str]:
        """The columns to be filled in: trials or exposures, then counts."""
        return [self.column] if self.size is None else [self.size, self.column]

    @property
    def share(self) -> bool:
        """Whether the response is a prevalence, between 0 and 1, rather than a rate."""
        return self.name in ("binomial", "bernoulli")

    @property
    def label(self) -> str:
        """What predictions mean, for labels: a prevalence in percent, or a rate."""
        if self.share:
            return f"prevalence of {self.column} (%)"
        return f"{self.column} per unit of {self.size}"

    @property
    def factor(self) -> float:
        """Factor from predictions to the unit of `label`."""
        return 100.0 if self.share else 1.0

    def values(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Counts and sizes in a frame, each ``n``.

        Raises:
            InputError: naming the first row of counts that cannot occur.
        """
        read = truths if self.name == "bernoulli" else numbers
        k = read(frame, self.column)
        n = np.ones_like(k)
        column, most = repr(self.column), "1"
        _refuse(frame, k, (k < 0.0) | (k != k.round()), f"whole counts in {column}, 0 or more")
        if self.size is not None:
            n, most = numbers(frame, self.size), repr(self.size)
            _refuse(frame, n, n <= 0.0, f"numbers above 0 in {most}", "fail() such a trial.")
            if self.share:
                _refuse(frame, n, n != n.round(), f"whole numbers in {most}")
        if self.share:
            _refuse(frame, k, k > n, f"at most {most} in {column}")
        return k, n

    def without_count(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """Rows from which nothing is learned, each ``n``, by what they are.

        Raises:
            InputError: for a missing column of counts.
        """
        pending = column(frame, self.column).isna().to_numpy()
        empty = np.zeros(len(frame), bool)
        if self.size in frame:
            both = [pd.to_numeric(column(frame, name), errors="coerce") for name in self.columns]
            empty = ((both[0] == 0.0) & (both[1] == 0.0)).to_numpy(bool)
        return {f"without {self.column} yet": pending, "with 0 of 0": empty}

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


def latent_surrogate(model: Model | None) -> StreamingGP:
    """The surrogate of latent values under counts, or the surrogate itself."""
    return cast(StreamingGP, model.model if isinstance(model, CountGP) else model)


def _refuse(
    frame: pd.DataFrame,
    values: np.ndarray,
    bad: np.ndarray,
    expected: str,
    remedy: str = "Correct the row, or leave it out.",
) -> None:
    if bad.any():
        first = int(bad.argmax())
        got = told_apart(values[first], round(values[first]))[0]
        raise InputError(expected, f"{got} in row {frame.index[first]}", remedy)
