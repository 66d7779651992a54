"""One survey: sites chosen one batch after the other on a map of prevalence."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from acquisitions import NIPV, response_nipv, select_from_pool
from bo_stream import WISKI, CountGP
from experiments.active_learning.campaigns import load_cells, provenance
from experiments.common.records import TimedRow
from experiments.common.study import quiet
from experiments.common.tables import write_table
from experiments.counts.maps import draw_percent

POLICIES = ("prevalence", "latent", "logits", "random")
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
COLUMNS = ("step", "n", "rmse", "coverage", "nats", "fit_seconds", "acquisition_seconds")


class Logits(WISKI):
    """Empirical logits as Gaussian data, the usual way around: half a count added to both sides."""

    def __init__(self, X: Tensor, k: Tensor, n: Tensor | float, **options: Any) -> None:
        super().__init__(X, *haldane(k, n), outcome_transform=None, **options)

    def told(self, X: Tensor, k: Tensor, n: float) -> None:
        """Absorb counts."""
        self.observe(X, *haldane(k, n))


def haldane(k: Tensor, n: Tensor | float) -> tuple[Tensor, Tensor]:
    """Empirical logits and their variances, ``q x 1``."""
    yes, no = (part.unsqueeze(-1) + 0.5 for part in (k, n - k))
    return (yes / no).log(), 1.0 / yes + 1.0 / no


@dataclass(frozen=True)
class Survey:
    """A policy and a seed, and the keys of the configuration that all surveys share."""

    policy: str
    seed: int
    c: dict[str, Any]

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return f"{self.policy}_{self.seed}"

    def truth(self) -> Tensor:
        """Prevalence at the cells: the raster's, with stretched logits."""
        share = load_cells(self.c).Y[:, 0].double().clamp(1e-3, 1.0 - 1e-3).logit()
        return (self.c["centre"] + self.c["stretch"] * (share - share.mean())).sigmoid()

    def execute(self, folder: Path) -> None:
        """Run it, and write table and map."""
        with quiet():
            rows, model, sites = self._run()
        cells = load_cells(self.c)
        about = {**asdict(self), "label": self.policy, "problem": cells.name}
        write_table(
            pd.DataFrame(rows), folder / f"{self.stem}.csv", about | provenance(cells, self.c)
        )
        lonlat, path = cells.lonlat().cpu().numpy(), folder / f"{self.stem}.png"
        panels = {"truth": self.truth(), "mean": prevalence(model, cells.X)[0]}
        caption = f"Logits of the raster are stretched. {cells.attribution}"
        draw_percent(lonlat, panels, lonlat[sites.numpy()], path, caption, shared=True)

    def _run(self) -> tuple[list[TimedRow], Any, Tensor]:
        c, X, p = self.c, load_cells(self.c).X.double(), self.truth()
        rng = np.random.default_rng(self.seed)
        order = torch.from_numpy(rng.permutation(len(X)))
        k = torch.from_numpy(rng.binomial(c["examined"], p.numpy())).double()
        test, left = order[: c["num_test"]], order[c["num_test"] :]
        sites, left = left[: c["num_initial"]], left[c["num_initial"] :]
        kind = Logits if self.policy == "logits" else CountGP
        kernel = ScaleKernel(MaternKernel(1.5))
        model: Any = kind(X[sites], k[sites], c["examined"], bounds=UNIT, covar_module=kernel)
        rows, fitted = list[TimedRow](), 0
        while True:
            row = TimedRow(COLUMNS)
            if len(sites) >= c["refit"] * fitted:
                with row.timed("fit_seconds"):
                    model.fit()
                fitted = len(sites)
            row |= {"step": len(rows), "n": len(sites)}
            row |= scores(model, X[test], p[test], k[test], c["examined"])
            rows.append(row)
            if len(sites) >= c["sites"]:
                return rows, model, sites
            with row.timed("acquisition_seconds"):
                chosen = self._chosen(model, X[test], X[left])
            new, keep = left[chosen], torch.ones(len(left), dtype=torch.bool)
            keep[chosen] = False
            sites, left = torch.cat([sites, new]), left[keep]
            tell = model.told if kind is Logits else model.observe
            tell(X[new], k[new], c["examined"])

    def _chosen(self, model: Any, test: Tensor, pool: Tensor) -> Tensor:
        """Indices into the pool, which is in random order."""
        q = self.c["q"]
        if self.policy == "random":
            return torch.arange(q)
        if self.policy == "logits":
            return select_from_pool(NIPV(model, test), pool, q)[0]
        examined = self.c["examined"]
        if self.policy == "prevalence":
            return select_from_pool(response_nipv(model, test, examined), pool, q)[0]
        noise = partial(model.future_noise, trials=examined)
        return select_from_pool(NIPV(model.model, test, noise=noise), pool, q)[0]


def prevalence(model: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean prevalence of the smooth surface, ``n``, and its central 90 % interval, ``2 x n``."""
    if isinstance(model, CountGP):
        smooth = model.response(X, nugget=False)
        return smooth.mean, smooth.quantiles([0.05, 0.95])
    with torch.no_grad():
        parts = [model.process().at(model.transformed(part)) for part in X.split(4096)]
    m = torch.cat([part.mean[0] for part in parts])
    half = 1.645 * torch.cat([part.variance()[0] for part in parts]).sqrt()
    return m.sigmoid(), torch.stack([m - half, m + half]).sigmoid()


def scores(model: Any, X: Tensor, p: Tensor, k: Tensor, n: float) -> dict[str, float]:
    """Error and coverage of the prevalence, and nats of a test count (of `CountGP` only)."""
    mean, (low, high) = prevalence(model, X)
    counted = isinstance(model, CountGP)
    nats = -float(model.predict_counts(X, n).log_prob(k).mean()) if counted else float("nan")
    return {
        "rmse": float((mean - p).square().mean().sqrt()),
        "coverage": float(((low <= p) & (p <= high)).double().mean()),
        "nats": nats,
    }
