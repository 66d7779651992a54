"""A cache for values derived from state and hyperparameters, valid until one of them changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from gpytorch.module import Module

from bo_stream.base.hyperparameter_key import HyperparameterKey
from bo_stream.mathematics.lasting import lasting

__all__ = ["Derived", "Key", "Version"]

T = TypeVar("T")


class Version:
    """The identity of a state: every change creates a new one; a copy of the state keeps it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Version:
        return self


class Key:
    """Everything that a derived value depends on, recorded when the key is created.

    Args:
        version: Version of the state.
        modules: Modules whose hyperparameters matter.
        others: Further objects, compared by identity.
    """

    __slots__ = ("hyperparameters", "others", "version")

    def __init__(self, version: Version, modules: Sequence[Module] = (), *others: object) -> None:
        self.version, self.others = version, others
        self.hyperparameters = HyperparameterKey(modules)

    def same_data(self, other: Key) -> bool:
        """Whether everything but the hyperparameters is the same."""
        pairs = zip(self.others, other.others, strict=True)
        return self.version is other.version and all(a is b for a, b in pairs)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key)
            and self.same_data(other)
            and self.hyperparameters == other.hyperparameters
        )

    __hash__ = None  # type: ignore[assignment]


class Derived(Generic[T]):
    """A cache of one derived value.

    Threads may use it without a lock: key and value are replaced together. A copy shares the
    value; a pickle omits it.
    """

    def __init__(self) -> None:
        self.entry: tuple[Key, T] | None = None

    def get(self, key: Key) -> T | None:
        """The value if it was computed for an equal key, else None."""
        entry = self.entry
        return entry[1] if entry is not None and entry[0] == key else None

    def made(self, key: Key, make: Callable[[], T]) -> T:
        """The value for a key, computed if there is none for an equal key."""
        found = self.get(key)
        return self.put(key, lasting(make)()) if found is None else found

    def put(self, key: Key, value: T) -> T:
        """Store and return the value for a key that was created before the computation."""
        self.entry = (key, value)
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> Derived[T]:
        made = type(self)()
        made.entry = self.entry
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"entry": None}
