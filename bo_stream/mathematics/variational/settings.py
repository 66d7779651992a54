"""Checks of the settings of an online variational GP."""

from __future__ import annotations

from bo_stream.errors import InputError

__all__ = ["check_settings", "check_steps"]


def check_settings(
    num_inducing: int, initial_steps: int, steps: int, beta: float, lr: float, jitter: float
) -> None:
    """Refuse settings that no climb can have.

    Raises:
        InputError: accordingly.
    """
    for name, count in (("num_inducing", num_inducing), ("initial_steps", initial_steps)):
        if count < 1:
            raise InputError(f"a positive {name}", f"{count}", "Leave it out for the default.")
    check_steps(steps)
    if not 0.0 <= beta < float("inf"):
        raise InputError("a non-negative beta", f"{beta}", "1 is the online evidence bound.")
    if not 0.0 < lr <= 1.0:
        raise InputError("a learning rate lr in (0, 1]", f"{lr}", "0.002 is the default.")
    if not 0.0 < jitter < 1e-2:
        raise InputError("a jitter between 0 and 0.01", f"{jitter}", "1e-8 suits float64.")


def check_steps(steps: int) -> None:
    """Refuse a negative number of steps."""
    if steps < 0:
        raise InputError("steps of zero or more", f"{steps}", "Leave them out for the default.")
