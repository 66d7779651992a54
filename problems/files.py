"""Locating data files; nothing is copied or downloaded."""

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
    """Locate an existing file.

    Args:
        source: A path, or a bare name that is looked up in ``folder``.
        folder: Folder to search; by default that of the environment variable ``BO_STREAM_DATA``.
        suffixes: Suffixes tried after the name itself, in this order.
        remedy: Advice that ends the error message.

    Raises:
        DataNotFound: naming every location searched.
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
    """Import an optional dependency; the error names the extra that installs it.

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
