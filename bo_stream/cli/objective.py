"""An objective given by name: ``oven.py:measure`` or ``package.module:measure``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from bo_stream.cli.toml_reader import ConfigError

__all__ = ["NamedObjective", "find_objective"]


@dataclass(frozen=True)
class NamedObjective:
    """A function given by name, which is pickled as the name and imported where it is called.

    Attributes:
        module: A file ending in ``.py``, or a module.
        function: Name of the function in the module.
        folder: Folder of the configuration, where modules are looked for too.
    """

    module: str
    function: str
    folder: str

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Call the function."""
        return _function(self)(*args, **inputs)


def find_objective(name: str, folder: Path) -> NamedObjective:
    """The objective with a name, imported once so that a misspelt name is refused now.

    Args:
        name: ``file.py:function``, with the file relative to the folder, or ``module:function``.
        folder: Folder of the configuration.

    Raises:
        ConfigError: if it cannot be imported.
    """
    module, colon, function = name.rpartition(":")
    if not (colon and module and function.isidentifier()):
        raise ConfigError(
            f"Expected file.py:function or module:function; got {name!r}. Correct it."
        )
    if module.endswith(".py"):
        file = folder / Path(module).expanduser()
        if not file.is_file():
            raise ConfigError(f"Expected an existing Python file; got {file}. Correct it.")
        module, folder = str(file.resolve()), file.parent
    objective = NamedObjective(module, function, str(folder.resolve()))
    _function(objective)
    return objective


@cache
def _function(objective: NamedObjective) -> Callable[..., Any]:
    if objective.folder not in sys.path:
        sys.path.append(objective.folder)  # at the end, where a random.py hides no other module
    try:
        module = _import(objective.module)
    except Exception as error:
        raise ConfigError(
            f"{objective.module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, objective.function, None)
    if not callable(function):
        raise ConfigError(
            f"{objective.module} has no function {objective.function!r}. Correct the name."
        )
    return function


def _import(name: str) -> Any:
    if not name.endswith(".py"):
        return import_module(name)
    own = f"_objective_{Path(name).stem}"  # a unique name: the file may be called random.py
    spec = spec_from_file_location(own, name)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = sys.modules[own] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
