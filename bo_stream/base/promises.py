"""The guarantees of a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bo_stream.errors import UnsupportedError

__all__ = ["Promises", "check_outputs"]


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Guarantees declared on a family's class and tested by the streaming contract.

    Attributes:
        order_invariant: Batch sizes and order of the data do not matter, and fantasizing equals
            `observe`.
        bytes_constant: `state_bytes` does not grow with the number of observations.
        updates_without_drift: Number of one-point updates after which the posterior still equals
            that of a rebuild.
        multi_output: Several (independent) outputs are supported.
        additive: The state is a sum over observations
            (`bo_stream.mathematics.sufficient_statistics`), so streams can be merged and
            observations forgotten.
        keeps_data: The state is the observations themselves.
    """

    order_invariant: bool
    bytes_constant: bool
    updates_without_drift: int
    multi_output: bool
    additive: bool = False
    keeps_data: bool = False

    @property
    def serves_kernels(self) -> bool:
        """Whether kernels of other hyperparameters can share the state."""
        return self.additive or self.keeps_data


def check_outputs(family: Any, outputs: int) -> None:
    """Refuse several outputs for a single-output family.

    Raises:
        UnsupportedError: if the family supports one output only.
    """
    if outputs > 1 and not family.promises.multi_output:
        raise UnsupportedError(
            f"one output for {family.__name__}",
            f"{outputs}",
            "Build one surrogate per output and join them in a botorch ModelListGP.",
        )
