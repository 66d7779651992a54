"""Online SGPR on a table: the recipe that is the same for every stream, and the GP it is held to.

What keeps the model from growing to nearly all points, measured on these tables: inputs in the
unit cube (heavy-tailed columns, merely standardised, leave outliers that greedy variance takes
first); a lengthscale prior that scales with dimension; and `trust`, which lets a batch move
hyperparameters by a bounded factor, so that one unrepresentative batch cannot shorten lengthscales
for good.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from bo_stream import ExactGP, OnlineSGPR
from bo_stream.growth import VIPS, FixedSize
from bo_stream.scores import score
from experiments.common.kernels import gaussian, scaled, standardised
from experiments.common.splits import TableSplit
from problems.tables import load_table

__all__ = ["errors", "modules", "reference", "rows", "stream"]

LEAK = " with leak"

Reference = ExactGP | OnlineSGPR


def rows(name: str) -> tuple[Tensor, Tensor]:
    """Inputs and outcomes of a table of `problems.tables`, or ``synthetic`` ones.

    " with leak" after a table's name keeps inputs that leak the outcome.
    """
    if name == "synthetic":
        return _synthetic()
    table = load_table(name.removesuffix(LEAK), leak=name.endswith(LEAK))
    return table.X, table.Y


def errors(split: TableSplit, model: Reference | None) -> tuple[float, float]:
    """Error and negative log density of the test rows, outcomes in units of their deviation.

    None stands for the mean of the training outcomes.
    """
    scale = float(split.Y.std())
    if model is None:
        return float((split.Y.mean(0) - split.Y_test).square().mean().sqrt()) / scale, math.nan
    raw = score(model, split.X_test, split.Y_test, split.Y_test)
    return raw.rmse / scale, raw.nlpd - math.log(scale)


def modules(split: TableSplit, c: dict[str, Any]) -> dict[str, Any]:
    """Kernel, likelihood and transforms of the recipe, new at each call."""
    d = split.X.shape[1]
    location, scale = c["lengthscale"]
    prior = LogNormalPrior(location + 0.5 * math.log(d), scale)
    base = RBFKernel(ard_num_dims=d, lengthscale_prior=prior)
    start = {"lengthscale": math.sqrt(d), "outputscale": 1.0}
    noise, noise_prior = math.exp(c["noise"][0]), LogNormalPrior(*c["noise"])
    box = torch.stack([split.X.amin(0), split.X.amax(0)])
    return {
        "covar_module": scaled(base, **start, outputscale_prior=LogNormalPrior(*c["outputscale"])),
        "likelihood": gaussian(noise=noise, prior=noise_prior, floor=1e-4),
        "input_transform": Normalize(d, bounds=box),
        "outcome_transform": standardised(split.Y),
    }


def stream(
    split: TableSplit, batches: int, c: dict[str, Any], tell: Callable[[dict[str, Any]], None]
) -> tuple[OnlineSGPR, list[dict[str, float]]]:
    """The surrogate after all batches, and a row for each.

    A row has the number of inducing points, the processor time of the batch, and ``rmse`` and
    ``nlpd`` of the test rows, whose scoring is outside of that time. Rows come sorted by the first
    input and test rows are from all over the table: until the last batch some lie where the stream
    has not been yet, and errors are large. ``tell`` is called after each batch, with its row.
    """
    parts = list(zip(split.X.chunk(batches), split.Y.chunk(batches), strict=True))
    course = []
    start = time.process_time()
    growth = VIPS(c["delta"], max_points=c["max_points"])
    model = OnlineSGPR(*parts[0], growth=growth, trust=c["trust"], **modules(split, c))
    model.fit()
    for i, (X, Y) in enumerate(parts):
        if i:
            start = time.process_time()
            model.observe(X, Y)
        seconds = time.process_time() - start
        M, (rmse, nlpd) = len(model.inducing_points), errors(split, model)
        course.append({"batch": i, "points": M, "seconds": seconds, "rmse": rmse, "nlpd": nlpd})
        tell(course[-1])
    return model, course


def reference(split: TableSplit, c: dict[str, Any]) -> tuple[Reference, str]:
    """A GP fitted to all training rows at once, and its name."""
    r, kw = c["reference"], modules(split, c)
    model: Reference
    if len(split.X) <= r["exact"]:
        model, name = ExactGP(split.X, split.Y, **kw), "exact GP"
    else:
        model = OnlineSGPR(split.X, split.Y, growth=FixedSize(r["points"]), **kw)
        name = f"batch SGPR, {r['points']} points"
    model.fit(r["evaluations"])
    return model, name


def _synthetic() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(160, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(160, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + 0.2 * noise
