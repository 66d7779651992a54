"""Errors of bo_stream: one small tree, each leaf also a built-in or BoTorch error.

Every message says what was expected, what came, and what to do about it. All are raised before any
state changes.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

__all__ = [
    "BoStreamError",
    "BoundsError",
    "BudgetError",
    "DtypeError",
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
    """Base of every error raised on purpose by this package."""

    def __init__(self, expected: str, got: str, remedy: str) -> None:
        super().__init__(f"Expected {expected}; got {got}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        """From another process: the whole message, which the constructor would make again."""
        return _again, (type(self), *self.args)


def _again(kind: type[BoStreamError], *args: Any) -> BoStreamError:
    return kind.__new__(kind, *args)


class InputError(BoStreamError, InputDataError, ValueError):
    """Data or options that no surrogate can use: NaN, infinities, contradictory arguments."""


class ShapeError(InputError, BotorchTensorDimensionError):
    """A tensor of the wrong shape."""


class DtypeError(InputError, TypeError):
    """A tensor of the wrong dtype."""


class OptionError(InputError, TypeError):
    """An option that a family does not have."""


class BoundsError(InputError):
    """Points outside the bounds or the grid, or bounds that are not bounds."""


class NoiseError(InputError):
    """Noise variances that are missing, not wanted, or not positive."""


class StateError(BoStreamError, RuntimeError):
    """A saved state, or another stream, that does not fit this surrogate."""


class BudgetError(StateError):
    """A campaign whose budget is used up."""


class GridWarning(UserWarning):
    """A grid too coarse for the lengthscales that were learned on it."""


class NoTrainingDataError(BoStreamError, AttributeError):
    """Something asked a surrogate for training data it does not expose."""


class UnsupportedError(BoStreamError, NotImplementedError):
    """Something this family cannot do, refused at construction or at the call that asks for it."""


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
