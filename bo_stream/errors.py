"""The errors of bo_stream; each is also a built-in error.

Every message states what was expected, what was received, and a remedy. All are raised before any
state changes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any

__all__ = [
    "BoStreamError",
    "BoundsError",
    "BudgetError",
    "DamagedError",
    "DtypeError",
    "FallbackWarning",
    "FrozenError",
    "InputError",
    "NoTrainingDataError",
    "NoiseError",
    "OptionError",
    "ShadowedPackageError",
    "ShapeError",
    "StateError",
    "UnsupportedError",
]


class BoStreamError(Exception):
    """Base of all errors of this package.

    Attributes:
        key: The option that it is about, after the tables around it; empty if it is about none.
    """

    key: tuple[str, ...] = ()

    def __init__(self, expected: str, got: str, remedy: str) -> None:
        super().__init__(f"Expected {expected}; got {got}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the complete message, which the constructor would build again."""
        return _again, (type(self), *self.args)


def _again(kind: type[BoStreamError], *args: Any) -> BoStreamError:
    return kind.__new__(kind, *args)


class InputError(BoStreamError, ValueError):
    """Data or options that no surrogate can use: NaN, infinities, contradictory arguments."""


class ShapeError(InputError):
    """A tensor of the wrong shape."""


class DtypeError(InputError, TypeError):
    """A tensor of the wrong dtype."""


class OptionError(InputError, TypeError):
    """An unknown option of a family."""


class BoundsError(InputError):
    """Points outside the bounds or the grid, or invalid bounds."""


class NoiseError(InputError):
    """Noise variances that are missing, unexpected, or not positive."""


class StateError(BoStreamError, RuntimeError):
    """A saved state or another stream that does not match this surrogate."""


class DamagedError(StateError):
    """A store that is damaged."""


class BudgetError(StateError):
    """A campaign whose budget is used up."""


class FallbackWarning(UserWarning):
    """Arithmetic failed in a campaign, which goes on in a simpler way."""


class GridWarning(UserWarning):
    """A grid too coarse for the lengthscales that were learned on it."""


class PrecisionWarning(UserWarning):
    """Known noise so small that a surrogate does not reach its precision."""


class NoTrainingDataError(BoStreamError, AttributeError):
    """Access to training data, which a streaming surrogate does not expose."""


class UnsupportedError(BoStreamError, NotImplementedError):
    """An operation or option that the family does not support."""


class FrozenError(UnsupportedError, AttributeError):
    """A request that a conditioned posterior, a frozen snapshot, learns from data."""


class ShadowedPackageError(BoStreamError, ImportError):
    """A file or folder that is imported in place of a package installed beside bo_stream."""


def check_not_shadowed(package: str) -> None:
    """Refuse to import a package in whose place another file would be imported.

    A file called ``acquisitions.py`` beside a script comes before the installed package
    ``acquisitions`` on Python's path.

    Args:
        package: Name of a package that is installed beside bo_stream.

    Raises:
        ShadowedPackageError: naming the file.
    """
    found = find_spec(package)
    folders = (found and found.submodule_search_locations) or ()
    own = Path(__file__).resolve().parents[1] / package
    if found is None or own in (Path(folder).resolve() for folder in folders):
        return
    place = found.origin or ", ".join(folders)
    raise ShadowedPackageError(
        f"the package {package!r} that is installed with bo_stream",
        f"{place}, which Python finds first under that name",
        "Rename that file or folder.",
    )


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say in an `ImportError` of the block which extra of bo_stream has the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}. It comes with: pip install 'bo_stream[{extra}]'.") from error


def check_choice(name: str, value: object, *choices: str) -> None:
    """Check an option that is one of some words.

    Raises:
        InputError: for anything else.
    """
    if value not in choices:
        raise InputError(f"{name} one of {', '.join(choices)}", repr(value), "Choose one.")


def is_number(value: Any, least: float, most: float = sys.float_info.max) -> bool:
    """Whether a value is a real number between two others, which truth values are not."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and least <= float(value) <= most


def whole_number(name: str, value: Any, least: int) -> int:
    """Check an integer option.

    Raises:
        InputError: unless ``value`` is an integer of at least ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name}, an integer of at least {least}", repr(value), "Correct it.")
    return int(value)
