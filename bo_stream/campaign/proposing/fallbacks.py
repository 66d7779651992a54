"""What a campaign does where arithmetic fails: it warns, and goes on in a simpler way."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from linear_operator.utils.errors import NotPSDError

from bo_stream.errors import BoStreamError, FallbackWarning, InputError, StateError

__all__ = ["falling_back"]

FAILURES = (ArithmeticError, MemoryError, NotPSDError, RuntimeError, ValueError)
REFUSALS = (InputError, StateError)
BUGS = (NotImplementedError, RecursionError)


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
