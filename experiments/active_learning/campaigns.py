"""One campaign: cells, kernel, surrogate and policy put together."""

from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.priors import GammaPrior

from experiments.active_learning.maps import described, draw_maps
from experiments.common.baselines.registry import FAMILIES
from experiments.common.kernels import RAW, scaled
from experiments.common.loops import PoolConfig, PoolLoop
from experiments.common.loops.policies import PoolPolicy
from experiments.common.study import fit_policy, plain
from problems import load_malaria
from problems.malaria import Malaria

KERNELS = {"ard": 2, "isotropic": None}
"""Kernels by name: lengthscales they have, None for a common one."""
SOURCE = ("source", "year", "release", "cells")


@dataclass(frozen=True)
class LearningRun:
    """One campaign: what its parts are called, the family's options, its name among them, and the
    keys of the configuration that all campaigns on a raster share.
    """

    cells: str
    observation: str
    surrogate: str
    policy: str
    kernel: str
    seed: int
    options: dict[str, Any]
    c: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """What it is called by in tables and files."""
        names = ("cells", "observation", "surrogate", "policy", "kernel", "seed")
        return {name: getattr(self, name) for name in names}

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        own = self.facts | {"surrogate": plain(self.surrogate)}
        return "_".join(map(str, own.values())).replace(" ", "-")

    def campaign(self) -> PoolLoop:
        """The campaign, not started.

        Raises:
            InputError: for sizes that it cannot have.
        """
        c, options = self.c, dict(self.options)
        sizes = {key: c[key] for key in ("steps", "q", "num_initial", "num_test")}
        own: dict[str, Any] = {
            "seed": self.seed,
            "observation": self.observation,
            "fit": fit_policy(c["fit"]),
        }
        config = PoolConfig(**sizes, **own)
        make = partial(FAMILIES[options.pop("name")], **options)
        policy = PoolPolicy(self.policy)
        return PoolLoop(load_cells(c), partial(with_kernel, make, self.kernel), policy, config)

    def execute(self, folder: Path) -> None:
        """Run it, and write table, JSON and maps."""
        campaign, cells = self.campaign(), load_cells(self.c)
        campaign.run()
        about = {**self.facts, **provenance(cells, self.c)}
        campaign.save(folder / f"{self.stem}.csv", **about)
        draw_maps(campaign, cells, folder / f"{self.stem}.png", title=described(self.facts))


def load_cells(c: dict[str, Any]) -> Malaria:
    """The raster of ``source`` and ``year``, or so many ``cells`` of the synthetic field.

    Raises:
        DataNotFound: if the source is not there.
    """
    return _loaded(*(c.get(key) for key in SOURCE))


def name_of(cells: Malaria) -> str:
    """The name of cells in tables and file names, with their year."""
    return cells.name if cells.year is None else f"{cells.name}_in_{cells.year}"


def provenance(cells: Malaria, c: dict[str, Any]) -> dict[str, Any]:
    """What a campaign's JSON says of its cells: enough to find the same ones again."""
    known = {} if cells.synthetic else {k: c[k] for k in ("source", "year", "release") if k in c}
    return {
        "source": {"source": None, **known, "cells": len(cells.X)},
        "units": cells.units,
        "attribution": cells.attribution,
        "derived_std": cells.derived_std,
        "synthetic": cells.synthetic,
    }


def with_kernel(make: Any, kernel: str, *data: Any, **kw: Any) -> Any:
    """A surrogate of cells in the unit square with this kernel."""
    return make(*data, covar_module=matern(kernel), **(RAW | kw))


def matern(kernel: str) -> ScaleKernel:
    """Matern-1/2 with the priors of the WISKI study: lengthscale Gamma(3, 6), scale Gamma(2, 0.15).

    ``ard`` or ``isotropic`` (in the unit square: see `problems.malaria.Malaria.X`).
    """
    prior = GammaPrior(3.0, 6.0)
    base = MaternKernel(nu=0.5, ard_num_dims=KERNELS[kernel], lengthscale_prior=prior)
    return scaled(base, outputscale_prior=GammaPrior(2.0, 0.15))


@lru_cache(1)
def _loaded(
    source: str | None, year: int | None, release: str | None, cells: int | None
) -> Malaria:
    if source:
        return load_malaria(source, year=year, release=release)
    return load_malaria(cells=cells or 20_000)
