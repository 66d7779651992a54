"""The packages that some peers need, and the error that names the extra which brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bo_stream.errors import BoStreamError

__all__ = ["INSTALL", "MissingPackageError", "needed"]

INSTALL = "pip install 'bo_stream[peers]'"


class MissingPackageError(BoStreamError, ImportError):
    """A peer's package that is not installed, or cannot be imported."""


def needed(package: str) -> Any:
    """A package of the extra ``peers``, imported.

    Raises:
        MissingPackageError: if it cannot be.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"the package {package!r} (extra 'peers')", f"{error}", f"Install it: {INSTALL}"
        ) from error
