"""The runs of a configuration: every table, order, family and seed, and the exact GP on each."""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

from experiments.common.command import BadParameter
from experiments.common.kinds import (
    listed,
    refuse_options,
    refuse_unknown,
    surrogates,
    takes_part,
)
from experiments.stream_classification.orders import ORDERS
from experiments.stream_classification.rows import MADE_UP, labelled
from experiments.stream_classification.streams import AtOnce, Exact, Sizes, Stream

__all__ = ["plan"]


def plan(c: dict[str, Any], smoke: bool = False) -> list[Stream | Exact]:
    """All runs, each with a stem of its own.

    Args:
        c: The configuration; see ``experiments/configs/classes.toml``.
        smoke: A few rows that were made up instead of tables, and one seed.

    Raises:
        BadParameter: for what the configuration cannot mean, in one line.
    """
    orders = listed(c["order"])
    refuse_unknown(orders, ORDERS, "order")
    refuse_unknown(c["exact"], (field.name for field in fields(AtOnce)), "exact")
    for entry in c["surrogate"]:
        refuse_options(entry)
    sizes = Sizes(c["batch"], tuple(c["fits"]), c["score_every"])
    if sizes.batch < 1 or sizes.score_every <= 1.0 or sorted(sizes.fits) != list(sizes.fits):
        raise BadParameter("batch is at least 1, score_every above 1, and fits are in order.")
    names, seeds = (c["table"], c["seeds"]) if not smoke else ([MADE_UP], c["seeds"][:1])
    tables = {name: labelled(name).X.shape for name in names}
    methods = surrogates(c["surrogate"])
    runs: list[Stream | Exact] = [
        Stream(entry, label, files, name, order, sizes, seed, rows)
        for (name, (rows, dim)), order, (entry, label, files), seed in product(
            tables.items(), orders, methods, seeds
        )
        if takes_part(entry, dim)
    ]
    exact = AtOnce(**c["exact"])
    return runs + [
        Exact(name, exact, seed, 10 * rows)
        for (name, (rows, _)), seed in product(tables.items(), seeds)
    ]
