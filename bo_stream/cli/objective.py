"""An objective given by name: ``oven.py:measure`` or ``package.module:measure``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from bo_stream.cli.toml_reader import ConfigError

__all__ = ["find_objective"]


def find_objective(name: str, folder: Path) -> Callable[..., Any]:
    """The objective with a name, imported once so that a misspelt name is refused now.

    It is pickled as the name, and imported where it is called.

    Args:
        name: ``file.py:function``, with the file relative to the folder, or ``module:function``.
        folder: Folder of the configuration, where modules are looked for too.

    Raises:
        ConfigError: if it cannot be imported.
    """
    module, _, function = name.rpartition(":")
    if not (module and function.isidentifier()):
        raise ConfigError(
            f"Expected file.py:function or module:function; got {name!r}. Correct it."
        )
    if module.endswith(".py"):
        file = folder / Path(module).expanduser()
        if not file.is_file():
            raise ConfigError(f"Expected an existing Python file; got {file}. Correct it.")
        module, folder = str(file.resolve()), file.parent
    place = (module, function, str(folder.resolve()))
    _imported(*place)
    return partial(_call, *place)


def _call(module: str, function: str, folder: str, *args: Any, **inputs: Any) -> Any:
    return _imported(module, function, folder)(*args, **inputs)


@cache
def _imported(module: str, function: str, folder: str) -> Callable[..., Any]:
    """A function of a file ending in ``.py``, or of a module."""
    if folder not in sys.path:
        sys.path.append(folder)  # at the end, where a random.py hides no other module
    try:
        found = _of_file(module) if module.endswith(".py") else import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    objective = getattr(found, function, None)
    if not callable(objective):
        raise ConfigError(f"{module} has no function {function!r}. Correct the name.")
    return objective


def _of_file(path: str) -> ModuleType:
    unique = f"_objective_{Path(path).stem}"  # the file may be called random.py
    module = sys.modules[unique] = ModuleType(unique)
    module.__file__ = path
    SourceFileLoader(unique, path).exec_module(module)
    return module
