"""A TOML document that knows on which line each of its keys stands."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Document", "ConfigError", "read"]

Key = tuple[str, ...]


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names file, line and key."""


class Document:
    """What a TOML file says, and where.

    Args:
        path: The file, for messages; relative paths in it are relative to its folder.
        text: What it says.

    Raises:
        ConfigError: if that is no TOML.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        try:
            self.values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is no TOML: {error}.") from error
        self._lines = dict(reversed(list(_lines(text))))

    def line(self, key: Key) -> int | None:
        """The line of a key, or of the nearest table around it; None for the top of the file."""
        while key and key not in self._lines:
            key = key[:-1]
        return self._lines.get(key)

    def error(self, key: Key, expected: str, got: str, remedy: str) -> ConfigError:
        """What is wrong with a key, and where it stands."""
        return self.wrong(key, f"Expected {expected}; got {got}. {remedy}")

    def wrong(self, key: Key, what: str) -> ConfigError:
        """The same in words of one's own."""
        line = self.line(key)
        place = [str(self.path), *([] if line is None else [f"line {line}"]), ".".join(key)]
        return ConfigError(f"{', '.join(part for part in place if part)}: {what}")

    @contextmanager
    def blamed_on(self, *key: str) -> Iterator[None]:
        """What is refused inside is wrong with this key."""
        from bo_stream.errors import BoStreamError  # here: it brings torch along

        try:
            yield
        except (BoStreamError, TypeError, ValueError) as error:
            raise self.wrong(key, str(error)) from error

    def beside(self, path: str) -> Path:
        """A path that the document names, which is relative to its folder."""
        return self.path.parent / Path(path).expanduser()


def read(path: Path) -> Document:
    """The document in a file.

    Raises:
        ConfigError: if there is none, or it is no TOML.
    """
    try:
        return Document(path, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}. Write one with: bo-stream init {path}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8: {error}.") from error


def _lines(text: str) -> Iterator[tuple[Key, int]]:
    """Every key of a document that is TOML, with its line, in order.

    The document is cut into its statements: the fewest lines that are TOML by themselves.
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
