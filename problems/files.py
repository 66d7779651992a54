"""Find data files where they lie. Nothing is copied and nothing is downloaded here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from problems.errors import DataNotFound, MissingExtra

DATA_VARIABLE = "BO_STREAM_DATA"


def locate(
    source: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    suffixes: Sequence[str] = (),
    remedy: str = "",
) -> Path:
    """Path of an existing file.

    Args:
        source: A path, or a bare name looked up in ``folder``, or, where that is not given, under
            the folder named by the environment variable ``BO_STREAM_DATA``.
        folder: Folder to look in instead of ``BO_STREAM_DATA``.
        suffixes: Endings tried after the name itself, in this order.
        remedy: What else the caller may do; ends the error message.

    Raises:
        DataNotFound: with every place looked at.
    """
    given = Path(source).expanduser()
    root = os.environ.get(DATA_VARIABLE) if folder is None else os.fspath(folder)
    places = [Path(root).expanduser() / given] if root else []
    if folder is None:
        places.insert(0, given)
    tried = [Path(f"{place}{suffix}") for place in places for suffix in ("", *suffixes)]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in tried) or "nowhere"
    hint = (
        ""
        if root
        else f" The environment variable {DATA_VARIABLE} is not set: point it at the data folder."
    )
    raise DataNotFound(
        f"Expected a data file named {os.fspath(source)!r}, found none (looked at: {looked})."
        f"{hint} {remedy}".rstrip()
    )


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it.

    Raises:
        MissingExtra: if ``module`` cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{purpose} needs the package {module!r}, which cannot be imported ({error}). "
            f"Install it with: pip install 'bo_stream[{extra}]'"
        ) from error
