"""Four posteriors of the same data, each beside the exact GP with its hyperparameters."""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from bo_stream import ExactGP
from bo_stream.scores import marginals
from experiments.common.kernels import RAW
from experiments.common.progress import Progress
from experiments.common.splits import TableSplit
from experiments.computation_aware_tables.contenders import CONTENDERS
from experiments.computation_aware_tables.course import Course

__all__ = ["Bands", "posteriors"]

LABELS = ("ExactGP", "SVGP", "CaGP-CG", "CaGP-Opt")

Bands = dict[str, tuple[Tensor, Tensor, Tensor]]
"""By contender: mean, latent deviation, and the exact GP's under the same hyperparameters."""


def posteriors(
    split: TableSplit, grid: Tensor, actions: int, seconds: float
) -> tuple[Bands, pd.DataFrame]:
    """Train the contenders; their posteriors on a grid, and a row of numbers each.

    Args:
        split: The data.
        grid: ``p x 1``.
        actions: Actions, and inducing points.
        seconds: Processor seconds of training for each.
    """
    sizes = {"actions": actions, "cg": actions, "inducing": actions, "batch": len(split.X)}
    rows: list[dict[str, object]] = []
    bands: Bands = {}
    progress = Progress(len(LABELS), "contenders")
    for label in LABELS:
        course = Course(split, seconds)
        trained = CONTENDERS[label](split, course, sizes)
        modules = RAW | {"covar_module": trained.kernel, "likelihood": trained.likelihood}
        least = marginals(ExactGP(split.X, split.Y, **modules), grid)[1].sqrt()
        with torch.no_grad():
            mean, variance = trained.predict(grid)
            deviation = (variance - trained.likelihood.noise).sqrt()
        bands[label] = mean, deviation, least
        ratio, last = deviation / least, course.rows[-1]
        row = {"surrogate": label, "nll": last["nll"], "rmse": last["rmse"]}
        row |= {"noise": trained.likelihood.noise.item()}
        row |= {"lengthscale": trained.kernel.base_kernel.lengthscale.item()}
        row |= {"least ratio": ratio.min().item(), "greatest ratio": ratio.max().item()}
        rows.append(row)
        progress(label)
    return bands, pd.DataFrame(rows)
