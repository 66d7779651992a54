"""Reading a TOML configuration, with errors that name the line and the key."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ConfigError", "TomlDocument", "TomlTable", "read_document"]

Key = tuple[str, ...]


class ConfigError(ValueError):
    """An invalid configuration; the message names file, line and key."""


class TomlDocument:
    """The contents of a TOML file, and the line of every key.

    Args:
        path: The file, for messages; relative paths in it are relative to its folder.
        text: Its text.

    Raises:
        ConfigError: if the text is not TOML.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        try:
            self.values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}.") from error
        self._lines = dict(reversed(list(_lines(text))))

    def line(self, key: Key) -> int | None:
        """Line of a key, or of the innermost table around it; None for the top of the file."""
        while key and key not in self._lines:
            key = key[:-1]
        return self._lines.get(key)

    def error(self, key: Key, expected: str, got: str, remedy: str) -> ConfigError:
        """An error that names a key and its line."""
        return self.error_at(key, f"Expected {expected}; got {got}. {remedy}")

    def error_at(self, key: Key, message: str) -> ConfigError:
        """An error with any message that names a key and its line."""
        line = self.line(key)
        place = [str(self.path), *([] if line is None else [f"line {line}"]), ".".join(key)]
        return ConfigError(f"{', '.join(part for part in place if part)}: {message}")

    @contextmanager
    def errors_at(self, *key: str) -> Iterator[None]:
        """Raise errors of the block as errors of this key."""
        from bo_stream.errors import BoStreamError  # not at the top: it imports torch

        try:
            yield
        except (BoStreamError, TypeError, ValueError) as error:
            raise self.error_at(key, str(error)) from error

    def resolve(self, path: str) -> Path:
        """A path in the document, which is relative to its folder."""
        return self.path.parent / Path(path).expanduser()


def read_document(path: Path) -> TomlDocument:
    """The document in a file.

    Raises:
        ConfigError: if the file cannot be read or is not TOML.
    """
    try:
        return TomlDocument(path, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}. Write one with: bo-stream init {path}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text in UTF-8: {error}.") from error


class TomlTable:
    """A table of a document, whose keys are read one by one and checked for their type.

    Args:
        document: The document.
        key: Key of the table; empty for the top of the document.
        values: Values of the table.
    """

    def __init__(self, document: TomlDocument, key: Key = (), values: Any | None = None) -> None:
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
        """All keys of the table."""
        return list(self._values)

    def table(self, name: str) -> TomlTable:
        """A table inside this one; empty if it is missing."""
        self._known.append(name)
        return TomlTable(self.document, (*self.key, name), self._values.get(name, {}))

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text that is not blank."""
        value = self._read(name, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self._wrong_type(name, "a text in quotation marks", value)
        return value

    def required_text(self, name: str, example: str) -> str:
        """A text that must not be missing."""
        value = self.text(name)
        if value is None:
            raise self.missing(name, example)
        return value

    def choice(self, name: str, *options: str) -> str:
        """One of several texts, which must not be missing."""
        value = self.required_text(name, options[0])
        if value not in options:
            raise self._wrong_type(name, f"one of {', '.join(options)}", value)
        return value

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """An integer of ``least`` or more."""
        value = self._read(name, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong_type(name, f"an integer of {least} or more", value)
        return value

    def number(self, name: str) -> float | None:
        """A finite number."""
        value = self._read(name, None)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value):
            raise self._wrong_type(name, "a finite number", value)
        return float(value)

    def boolean(self, name: str) -> bool:
        """True or false; false if it is missing."""
        value = self._read(name, False)
        if not isinstance(value, bool):
            raise self._wrong_type(name, "true or false", value)
        return value

    def texts(self, name: str) -> list[str] | None:
        """A list of texts."""
        value = self._read(name, None)
        if value is not None and not (
            isinstance(value, list) and value and all(isinstance(v, str) for v in value)
        ):
            raise self._wrong_type(name, 'a list of texts, such as ["lon", "lat"]', value)
        return value

    def values(self, name: str) -> list[Any] | None:
        """A list of anything."""
        value = self._read(name, None)
        if value is not None and not isinstance(value, list):
            raise self._wrong_type(name, 'a list, such as [2, 4, 8] or ["squared", "huber"]', value)
        return value

    def rest(self, known: list[str]) -> dict[str, Any]:
        """The values that were not read yet, whose keys have to be among ``known``."""
        values = {k: v for k, v in self._values.items() if k not in self._known}
        self._known += known
        self.refuse_unknown()
        return values

    def refuse_unknown(self) -> None:
        """Refuse keys that were never read.

        Raises:
            ConfigError: naming the first of them and the key that may have been meant.
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

    def missing(self, name: str, example: str) -> ConfigError:
        """The error for a missing key."""
        where = f" under [{'.'.join(self.key)}]" if self.key else ""
        return self.document.error(
            self.key, f"a key {name!r}{where}", "none", f"Add {name} = {example}."
        )

    def _read(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._values.get(name, default)

    def _wrong_type(self, name: str, expected: str, value: Any) -> ConfigError:
        return self.document.error((*self.key, name), expected, repr(value), "Correct it.")


def _lines(text: str) -> Iterator[tuple[Key, int]]:
    """Every key of a TOML text with its line, in order.

    The text is split into statements: the smallest groups of lines that are TOML themselves.
    """
    lines = text.splitlines()
    table: Key = ()
    start = 0
    while start < len(lines):
        end, statement = start, None
        while statement is None and end < len(lines):
            end += 1
            try:
                statement = tomllib.loads("\n".join(lines[start:end]))
            except tomllib.TOMLDecodeError:
                continue
        keys = list(_keys(statement or {}))
        if lines[start].lstrip().startswith("["):
            table = keys[-1] if keys else ()
            yield table, start + 1
        else:
            yield from ((table + key, start + 1) for key in keys)
        start = end


def _keys(values: Mapping[str, Any]) -> Iterator[Key]:
    for name, value in values.items():
        yield (name,)
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from ((name, *rest) for rest in _keys(inner))
