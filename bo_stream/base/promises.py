"""What a family promises."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Promises"]


@dataclass(frozen=True, kw_only=True)
class Promises:
    """What a family promises, declared on the class and tested by the streaming contract.

    Attributes:
        order_invariant: One batch equals many, in any order, and a fantasy equals an `observe`.
        bytes_constant: `state_bytes` does not grow with the number of observations.
        updates_without_drift: One-point updates after which the posterior equals a rebuild's.
        multi_output: Takes more than one (independent) output.
    """

    order_invariant: bool
    bytes_constant: bool
    updates_without_drift: int
    multi_output: bool
