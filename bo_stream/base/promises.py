"""What a family promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bo_stream.errors import UnsupportedError

__all__ = ["Promises", "check_outputs"]


@dataclass(frozen=True, kw_only=True)
class Promises:
    """What a family promises, declared on the class and tested by the streaming contract.

    Attributes:
        order_invariant: One batch equals many, in any order, and a fantasy equals an `observe`.
        bytes_constant: `state_bytes` does not grow with the number of observations.
        updates_without_drift: One-point updates after which the posterior equals a rebuild's.
        multi_output: Takes more than one (independent) output.
        additive: The state is a sum over observations
            (`bo_stream.mathematics.sufficient_statistics`): streams can be merged, and
            observations forgotten.
    """

    order_invariant: bool
    bytes_constant: bool
    updates_without_drift: int
    multi_output: bool
    additive: bool = False


def check_outputs(family: Any, outputs: int) -> None:
    """Refuse several outputs for a family of one.

    Raises:
        UnsupportedError: accordingly.
    """
    if outputs > 1 and not family.promises.multi_output:
        raise UnsupportedError(
            f"one output for {family.__name__}",
            f"{outputs}",
            "Build one surrogate per output and join them in a botorch ModelListGP.",
        )
