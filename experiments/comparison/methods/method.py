"""What is known of a method beside its loop."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec


@dataclass(frozen=True)
class Method:
    """A loop, the packages that it needs besides bo_stream's, and what tasks it copes with.

    Attributes:
        path: Module beside this one, and function in it: ``cma_es.solve``. The function takes a
            `BudgetedTask` and options, and goes on for ever; `Spent` ends it. It is imported when
            it is needed, so that a package may be missing.
        packages: By their names on PyPI, which are those they are imported by.
        serves: Traits of tasks (`Task.traits`), besides which a task may have none.
    """

    path: str
    packages: tuple[str, ...] = ()
    serves: frozenset[str] = frozenset()

    @property
    def solve(self) -> Callable[..., None]:
        """The loop."""
        module, _, function = self.path.partition(".")
        found: Callable[..., None] = getattr(
            import_module(f"experiments.comparison.methods.{module}"), function
        )
        return found

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [package for package in self.packages if find_spec(package) is None]
