"""An objective named in words: ``oven.py:measure`` or ``package.module:measure``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from bo_stream.cli.toml_document import ConfigError

__all__ = ["Objective", "objective"]


@dataclass(frozen=True)
class Objective:
    """A function by its name: what goes to another process is the name, and it is found there.

    Attributes:
        module: A file ending in ``.py``, or a module.
        function: Its name in the module.
        folder: Where modules are looked for first.
    """

    module: str
    function: str
    folder: str

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """What the function returns."""
        return _function(self)(*args, **inputs)


def objective(named: str, folder: Path) -> Objective:
    """The objective of a name, found once now so that a misspelt one is refused.

    Args:
        named: ``file.py:function``, the file relative to the folder, or ``module:function``.
        folder: Where the configuration lies.

    Raises:
        ConfigError: for one that cannot be had.
    """
    module, colon, function = named.rpartition(":")
    if not (colon and module and function.isidentifier()):
        raise ConfigError(
            f"Expected file.py:function or module:function; got {named!r}. Correct it."
        )
    if module.endswith(".py"):
        file = folder / Path(module).expanduser()
        if not file.is_file():
            raise ConfigError(f"Expected a file of Python; {file} is not there. Correct it.")
        module, folder = str(file.resolve()), file.parent
    found = Objective(module, function, str(folder.resolve()))
    _function(found)
    return found


@cache
def _function(named: Objective) -> Callable[..., Any]:
    if named.folder not in sys.path:
        sys.path.append(named.folder)  # last: a neighbour called random.py takes nobody's place
    try:
        module = _loaded(named.module)
    except Exception as error:
        raise ConfigError(
            f"{named.module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, named.function, None)
    if not callable(function):
        raise ConfigError(f"{named.module} has no function {named.function!r}. Correct the name.")
    return function


def _loaded(name: str) -> Any:
    if not name.endswith(".py"):
        return import_module(name)
    own = f"_objective_{Path(name).stem}"  # a name of its own: the file may be called random.py
    spec = spec_from_file_location(own, name)
    if spec is None or spec.loader is None:
        raise ImportError("not a file of Python")
    module = sys.modules[own] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
