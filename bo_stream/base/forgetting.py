"""Forgetting: what was seen before counts for less, for streams that drift."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

from bo_stream.base.state import HeldState
from bo_stream.errors import InputError, UnsupportedError

__all__ = ["Forgets"]


class Forgets(HeldState):
    """`forget` on every surrogate; a family says in `_discount` how its state is scaled."""

    def _discount(self, state: Any, factor: float) -> Any:
        """The state with everything it has absorbed counted ``factor`` times."""
        raise UnsupportedError(
            "a family of additive statistics (WISKI, HSGP)",
            f"{type(self).__name__}, which cannot forget",
            "Use one of those, or rebuild this one on recent data.",
        )

    @property
    def effective_observations(self) -> float:
        """What the observations count for together: `num_observed`, unless some are forgotten."""
        return float(self.get_buffer("_count"))

    def forget(self, factor: float) -> Self:
        """Count everything absorbed so far ``factor`` times: exponential forgetting (MATHS 2.2).

        Exact: an observation followed by k calls stands in posterior and evidence with its
        likelihood to the power ``factor^k``; in the posterior, that is noise divided by
        ``factor^k``. The prior takes the place of what is forgotten, and hyperparameters are
        learned from what is left. `num_observed` stays the number absorbed, and
        `effective_observations` is what they count for. The typical noise of a surrogate of known
        noise stays the mean of all it has seen, and incumbents stay.

        Args:
            factor: Above 0 and at most 1; 1 changes nothing. To halve what an observation counts
                for every h steps, call it once a step with ``0.5 ** (1 / h)``.

        Returns:
            The surrogate itself.

        Raises:
            InputError: on any other factor.
            UnsupportedError: by a family whose state is not a sum over observations.
        """
        number = isinstance(factor, Real) and not isinstance(factor, bool)
        if not number or not 0.0 < float(factor) <= 1.0:
            raise InputError(
                "a factor above 0 and at most 1",
                repr(factor),
                "Give the share of the past that is to count from now on, say 0.99.",
            )
        self._wholly(lambda: self._forgotten(float(factor)))
        return self

    def _forgotten(self, factor: float) -> None:
        self.hold("state", self._discount(self.held(), factor))
        self._changed()
