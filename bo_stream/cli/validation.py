"""Checking the names and options of surrogates and acquisition functions in a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from bo_stream.cli.config import CampaignConfig
from bo_stream.cli.toml_reader import TomlTable

__all__ = ["check_choices"]


def check_choices(config: CampaignConfig, space: Any) -> None:
    """Refuse names and options that no surrogate or acquisition function has.

    A surrogate without data is built on the space, so that invalid options are refused now rather
    than after the first outcomes.

    Args:
        config: The configuration.
        space: Its space.

    Raises:
        ConfigError: naming line and key.
    """
    import torch

    from bo_stream.base.options import own_options
    from bo_stream.campaign.proposing.defaults import AUTO
    from bo_stream.campaign.proposing.rules import SEARCHES
    from bo_stream.errors import check_not_shadowed
    from bo_stream.surrogates.registry import FAMILIES, options_with_categories, surrogate

    check_not_shadowed("acquisitions")
    from acquisitions.build import DATA, OPTIONS

    document = config.document
    if config.surrogate is not None:
        name = _checked_name(config, "surrogate", FAMILIES)
        options = _options(config, "surrogate", own_options(FAMILIES[name]))  # type: ignore[arg-type]
        X, Y = (torch.empty(0, columns, dtype=torch.float64) for columns in (space.dim, 1))
        with document.errors_at("surrogate", "name"):
            if space.categories:
                options |= options_with_categories(name, space.dim, space.categories)
            surrogate(name, X, Y, bounds=space.tensor_bounds, outcome_transform=None, **options)
    if config.acquisition is not None:
        name = _checked_name(config, "acquisition", {AUTO: (), **dict.fromkeys(SEARCHES), **DATA})
        _options(config, "acquisition", list(OPTIONS.get(name, ())))


def _checked_name(config: CampaignConfig, part: str, known: Iterable[str]) -> str:
    """Name of the surrogate or acquisition function, if it is known."""
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


def _options(config: CampaignConfig, part: str, known: list[str]) -> dict[str, Any]:
    """Options of the surrogate or acquisition function, if all of them are known."""
    table = TomlTable(config.document, (part,), config.document.values[part])
    table.text("name")
    return table.rest(known)
