"""Reading a TOML configuration, with errors that name the line and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from bo_stream.errors import BoStreamError, InputError

__all__ = [
    "ConfigError",
    "TomlDocument",
    "read_document",
    "sqlite_file",
    "store_url",
]

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
        self.path, self.text = path, text
        try:
            self.values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}.") from error

    @cached_property
    def lines(self) -> dict[Key, int]:
        """The line of every key: where the statement begins that first has it."""
        found: dict[Key, int] = {}
        text, begin = self.text.splitlines(), 1
        for end in range(1, len(text) + 1):
            with suppress(tomllib.TOMLDecodeError):  # inside a statement of several lines
                values = tomllib.loads("\n".join(text[:end]))
                found = dict.fromkeys(_keys(values), begin) | found
                begin = end + 1
        return found

    def line(self, key: Key) -> int | None:
        """Line of a key, or of the innermost table around it; None for the top of the file."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key)

    @contextmanager
    def errors(self, *key: str) -> Iterator[None]:
        """Raise errors of the block as errors of the key that they are about, inside this one."""
        try:
            yield
        except (BoStreamError, TypeError, ValueError) as error:
            about = (*key, *getattr(error, "key", ()))
            if not about and not isinstance(error, InputError):
                raise
            line = self.line(about)
            place = [str(self.path), line and f"line {line}", ".".join(about)]
            raise ConfigError(f"{', '.join(part for part in place if part)}: {error}") from error


def read_document(path: Path) -> TomlDocument:
    """The document in a file.

    Raises:
        ConfigError: if the file cannot be read or is not TOML.
    """
    try:
        return TomlDocument(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}. Write one with: bo-stream init {path}"
        ) from error


def store_url(store: str, folder: Path) -> str:
    """URL of a store, which may be named by the file of an SQLite database.

    Args:
        store: The URL, or the file.
        folder: Where files are, unless their path is absolute.
    """
    url = store if "://" in store else f"sqlite:///{store}"
    file = sqlite_file(url)
    if file is None:
        return url
    return f"{url.partition(':///')[0]}:///{(folder / file.expanduser()).resolve()}"


def sqlite_file(url: str) -> Path | None:
    """File of an SQLite database; None for other stores."""
    kind, _, path = url.partition(":///")
    return Path(path) if kind.startswith("sqlite") and path not in ("", ":memory:") else None


def _keys(values: Mapping[str, Any]) -> Iterator[Key]:
    for name, value in values.items():
        yield (name,)
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from ((name, *rest) for rest in _keys(inner))
