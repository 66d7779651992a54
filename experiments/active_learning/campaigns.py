"""The campaigns of a configuration: cells, kernel, surrogate and policy put together."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from torch import Tensor

from acquisitions import PoolPolicy
from acquisitions.choice import POLICIES
from bo_stream import ExactGP, surrogate
from bo_stream.actions import BlockSparse
from bo_stream.errors import InputError
from bo_stream.scores import score
from bo_stream.simulation import FitPolicy, PoolConfig, PoolLoop
from bo_stream.surrogates.registry import FAMILIES
from experiments.common.command import TAKES
from experiments.common.kernels import RAW, scaled
from experiments.common.progress import say
from problems import load_malaria
from problems.errors import BadData, DataNotFound
from problems.malaria import Malaria

__all__ = [
    "Saved",
    "campaigns",
    "exact_like",
    "load_cells",
    "matern",
    "provenance",
    "saved",
    "single",
]

KERNELS = {"ard": 2, "isotropic": None}
"""Kernels by name: lengthscales they have, None for a common one."""

Make = Callable[..., Any]
"""What makes a surrogate."""

Planned = tuple[dict[str, Any], Callable[..., PoolLoop]]
"""Facts of a campaign, and what makes it, given a callback for its rows or nothing."""


def matern(kernel: str) -> ScaleKernel:
    """Matern-1/2 with the priors of the WISKI study: lengthscale Gamma(3, 6), scale Gamma(2, 0.15).

    Args:
        kernel: ``ard`` or ``isotropic`` (in the unit square: see `problems.malaria.Malaria.X`).
    """
    base = MaternKernel(
        nu=0.5, ard_num_dims=KERNELS[kernel], lengthscale_prior=GammaPrior(3.0, 6.0)
    )
    return scaled(base, outputscale_prior=GammaPrior(2.0, 0.15))


def load_cells(c: dict[str, Any]) -> Malaria:
    """The raster of ``source`` and ``year``; without a source that many ``cells`` of the field.

    Raises:
        DataNotFound: if the source is not there.
    """
    if c.get("source"):
        return load_malaria(c["source"], year=c.get("year"), release=c.get("release"))
    return load_malaria(cells=c.get("cells", 20_000))


def name_of(cells: Malaria) -> str:
    """The name of cells in tables and file names, with their year."""
    return cells.name if cells.year is None else f"{cells.name}_in_{cells.year}"


def provenance(cells: Malaria, c: dict[str, Any]) -> dict[str, Any]:
    """What a campaign's JSON says of its cells: enough for `saved` to find the same ones again."""
    known = {} if cells.synthetic else {k: c[k] for k in ("source", "year", "release") if k in c}
    return {
        "source": {"source": None, **known, "cells": len(cells.X)},
        "units": cells.units,
        "attribution": cells.attribution,
        "derived_std": cells.derived_std,
        "synthetic": cells.synthetic,
    }


def campaigns(c: dict[str, Any], cells: Malaria | None = None) -> tuple[Malaria, list[Planned]]:
    """Cells, and for every combination of a configuration named facts and what makes its campaign.

    Args:
        c: Keys of ``configs/malaria_senegal.toml``.
        cells: Those of the configuration; loaded if left out.

    Raises:
        InputError: for names or sizes that no campaign can have, before any is run.
    """
    try:
        cells = cells or load_cells(c)
    except DataNotFound as error:
        say(f"{error}\nRunning on the SYNTHETIC field instead.")
        cells = load_cells(c | {"source": None})
    observations = c["observations"]
    if cells.Yvar is None and "known noise" in observations:
        say(f"{cells.name}: no standard deviations, no known noise.")
        observations = [o for o in observations if o != "known noise"]
    planned: list[Planned] = []
    families = [sized for family in c["surrogates"] for sized in _sized(family, c)]
    each = itertools.product(observations, families, c["policies"], c["kernels"], c["seeds"])
    for observation, (label, make), policy, kernel, seed in each:
        config = PoolConfig(
            steps=c["steps"],
            q=c["q"],
            num_initial=c["num_initial"],
            num_test=c["num_test"],
            seed=seed,
            observation=observation,
            fit=FitPolicy(**c["fit"]),
        )
        facts = {
            "cells": name_of(cells),
            "observation": observation,
            "surrogate": label,
            "policy": policy,
            "kernel": kernel,
            "seed": seed,
        }
        with_kernel = partial(_with_kernel, make, _known(kernel, KERNELS, "kernel"))
        _known(policy, POLICIES, "policy")
        make_campaign = partial(_campaign, cells, with_kernel, policy, config)
        make_campaign()  # too few cells are refused now, not at the last campaign
        planned.append((facts, make_campaign))
    if not planned:
        raise InputError("an observation model these cells allow", "none", "Choose 'raster'.")
    return cells, planned


def single(c: dict[str, Any]) -> list[dict[str, Any]]:
    """A configuration of its own for every combination, in the order of `campaigns`."""
    families = [
        (family, size)
        for family in c["surrogates"]
        for size in (([s] for s in c["grid_size"]) if family == "wiski" else [[]])
    ]
    each = itertools.product(c["observations"], families, c["policies"], c["kernels"], c["seeds"])
    shared = {key: value for key, value in c.items() if key not in ("output", TAKES)}
    return [
        {
            **shared,
            "observations": [observation],
            "surrogates": [family],
            "grid_size": size,
            "policies": [policy],
            "kernels": [kernel],
            "seeds": [seed],
        }
        for observation, (family, size), policy, kernel, seed in each
    ]


@dataclass(frozen=True, eq=False)
class Saved:
    """A campaign found again: what it was run on, and what came of it.

    Attributes:
        campaign: On the same cells with the same split, not started; its surrogate would be an
            exact GP with the same kernel.
        queried: Cells queried, in order.
        about: Its JSON.
    """

    campaign: PoolLoop
    queried: Tensor
    about: dict[str, Any]


def saved(path: Path) -> Saved:
    """A saved campaign, from its JSON.

    Raises:
        DataNotFound: if the campaign's source is not there: nothing stands in for it.
        BadData: if the cells found there are not those of the campaign.
    """
    about = json.loads(path.read_text())
    config = dict(about["config"])
    config["fit"] = FitPolicy(**config["fit"])
    cells = load_cells(about["source"])
    found, expected = (name_of(cells), len(cells.X)), (about["cells"], about["source"].get("cells"))
    if found[0] != expected[0] or expected[1] not in (None, found[1]):
        raise BadData(
            f"{path}: expected the cells that the campaign was run on, {expected[0]} "
            f"({expected[1] or 'any number of'} cells), got {found[0]} ({found[1]} cells). Point "
            "BO_STREAM_DATA at the data of that time, or run the campaign again."
        )
    make = partial(_with_kernel, ExactGP, about["kernel"])
    campaign = _campaign(cells, make, about["policy"], PoolConfig(**config))
    return Saved(campaign, torch.tensor(about["queried"]), about)


def exact_like(path: Path, n: int) -> float:
    """Error of an exact GP fitted to the first n cells of a saved campaign, likewise."""
    found = saved(path)
    cells, split, first = found.campaign.cells, found.campaign.split, found.queried[:n]
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    noise = None if split.noise is None else split.noise[first]
    Y = torch.tensor(found.about["readings"][:n], dtype=torch.float64).unsqueeze(-1)
    data = (cells.X[first], Y, noise)
    model = found.campaign.make_surrogate(*data, bounds=box, outcome_transform=Standardize(1))
    model.fit()
    test, known = split.test, split.noise
    at_test = (cells.X[test], cells.Y[test], split.observed[test])
    return score(model, *at_test, None if known is None else known[test]).rmse


def _sized(family: str, c: dict[str, Any]) -> list[tuple[str, Make]]:
    """A family in its sizes, by names that tell these."""
    make = partial(surrogate, _known(family, FAMILIES, "surrogate"))
    if family == "wiski":
        return [(f"{family}{size}", partial(make, grid_size=size)) for size in c["grid_size"]]
    if family == "cagp" and "num_actions" in c:
        actions = BlockSparse(c["num_actions"])
        return [(f"{family}{c['num_actions']}", partial(make, actions=actions))]
    return [(family, make)]


def _campaign(
    cells: Malaria,
    make: Make,
    policy: str,
    config: PoolConfig,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> PoolLoop:
    return PoolLoop(cells, make, PoolPolicy(policy), config, callback)


def _with_kernel(make: Make, kernel: str, *data: Tensor | None, **kw: Any) -> Any:
    return make(*data, covar_module=matern(kernel), **(RAW | kw))  # cells are in the unit square


def _known(name: str, names: Iterable[str], what: str) -> str:
    if name not in names:
        raise InputError(f"a {what}, one of {', '.join(names)}", repr(name), "Choose among these.")
    return name
