"""Families and acquisition functions that a configuration names, tried before they are used."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

from bo_stream.cli.config import Config
from bo_stream.cli.toml_reader import Section

__all__ = ["check_choices"]


def check_choices(config: Config, space: Any) -> None:
    """Refuse names and options that no surrogate or acquisition function has.

    A surrogate without data is built on the space, so that what a family refuses it refuses now,
    and not when the first outcomes are in.

    Args:
        config: The configuration.
        space: Its space.

    Raises:
        ConfigError: naming line and key.
    """
    import torch

    from acquisitions.build import NAMES, build
    from bo_stream.base.options import own_options
    from bo_stream.surrogates.registry import FAMILIES, surrogate

    document = config.document
    if config.surrogate is not None:
        name = _among(config, "surrogate", FAMILIES)
        options = _options(config, "surrogate", own_options(FAMILIES[name]))  # type: ignore[arg-type]
        X, Y = (torch.empty(0, columns, dtype=torch.float64) for columns in (space.dim, 1))
        with document.blamed_on("surrogate", "name"):
            surrogate(name, X, Y, bounds=space.tensor_bounds, outcome_transform=None, **options)
    if config.acquisition is not None:
        _among(config, "acquisition", NAMES)
        given = ("name", "model", "X_baseline", "best_f", "X_pending", "mc_points", "weights")
        parameters = inspect.signature(build).parameters.values()
        known = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in given]
        _options(config, "acquisition", known)


def _among(config: Config, part: str, known: Iterable[str]) -> str:
    """The name of a part, if it is known."""
    chosen = getattr(config, part)["name"]
    if chosen not in (names := list(known)):
        near = difflib.get_close_matches(chosen, names, 1)
        raise config.document.error(
            (part, "name"),
            f"one of {', '.join(names)}",
            repr(chosen),
            f"Did you mean {near[0]!r}?" if near else "Choose one of these.",
        )
    return str(chosen)


def _options(config: Config, part: str, known: list[str]) -> dict[str, Any]:
    """The options of a part, all of them known."""
    table = Section(config.document, (part,), config.document.values[part])
    table.text("name")
    return table.rest(known)
