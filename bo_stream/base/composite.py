"""What is made of several surrogates, and saved and loaded as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from bo_stream.base.state import Lock

__all__ = ["Composite"]


class Composite(ABC):
    """Something that plain settings and surrogates make up, by which a checkpoint holds it."""

    _lock: Lock

    @abstractmethod
    def _taken_apart(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Plain settings, and surrogates by name."""

    @classmethod
    @abstractmethod
    def _put_together(cls, settings: Mapping[str, Any], parts: Mapping[str, Any]) -> Self:
        """The same again."""
