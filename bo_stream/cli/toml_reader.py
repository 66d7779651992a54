"""A table of a configuration, from which keys are taken one by one; what is left is unknown."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from bo_stream.cli.toml_document import Document

__all__ = ["Section"]


class Section:
    """Keys of one table, each taken with the type that it must have.

    Args:
        document: Where the table stands.
        key: Its name in the document, none for the top.
        values: What it says.
    """

    def __init__(
        self, document: Document, key: tuple[str, ...] = (), values: Any | None = None
    ) -> None:
        self.document, self.key = document, key
        values = document.values if values is None else values
        if not isinstance(values, Mapping):
            name = ".".join(key)
            raise document.error(
                key, f"a table [{name}]", repr(values), f"Write [{name}] and its keys below it."
            )
        self._values, self._known = values, list[str]()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def names(self) -> list[str]:
        """Every key of the table."""
        return list(self._values)

    def inner(self, name: str) -> Section:
        """A table inside this one, empty if it is not there."""
        self._known.append(name)
        return Section(self.document, (*self.key, name), self._values.get(name, {}))

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text that is not blank."""
        value = self._taken(name, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self._wrong(name, "a text in quotation marks", value)
        return value

    def required(self, name: str, example: str) -> str:
        """A text that must be there."""
        value = self.text(name)
        if value is None:
            raise self.missing(name, example)
        return value

    def choice(self, name: str, *among: str) -> str:
        """One of some words, which must be there."""
        value = self.required(name, among[0])
        if value not in among:
            raise self._wrong(name, f"one of {', '.join(among)}", value)
        return value

    def whole(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number from ``least`` on."""
        value = self._taken(name, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(name, f"a whole number from {least} on", value)
        return value

    def number(self, name: str) -> float | None:
        """A finite number."""
        value = self._taken(name, None)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value):
            raise self._wrong(name, "a finite number", value)
        return float(value)

    def yes(self, name: str) -> bool:
        """Whether something holds; false if it is not said."""
        value = self._taken(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def texts(self, name: str) -> list[str] | None:
        """A list of texts."""
        value = self._taken(name, None)
        if value is not None and not (
            isinstance(value, list) and value and all(isinstance(v, str) for v in value)
        ):
            raise self._wrong(name, 'a list of texts, such as ["lon", "lat"]', value)
        return value

    def rest(self, known: list[str]) -> dict[str, Any]:
        """Whatever else the table says, as long as its keys are known."""
        taken = {k: v for k, v in self._values.items() if k not in self._known}
        self._known += known
        self.done()
        return taken

    def done(self) -> None:
        """Refuse keys that nobody has asked for.

        Raises:
            ConfigError: naming the first one, and the key that it may have been meant to be.
        """
        for name in self._values:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, 1)
                raise self.document.error(
                    (*self.key, name),
                    f"keys among {', '.join(self._known)}",
                    f"unknown {name!r}",
                    f"Did you mean {near[0]!r}?" if near else "Leave it out.",
                )

    def missing(self, name: str, example: str) -> Exception:
        """A key that must be there and is not."""
        where = f" under [{'.'.join(self.key)}]" if self.key else ""
        return self.document.error(
            self.key, f"a key {name!r}{where}", "none", f"Add {name} = {example}."
        )

    def _taken(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._values.get(name, default)

    def _wrong(self, name: str, expected: str, value: Any) -> Exception:
        return self.document.error((*self.key, name), expected, repr(value), "Correct it.")
