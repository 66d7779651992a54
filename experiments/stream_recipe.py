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
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models.transforms import Normalize, Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from bo_stream import ExactGP, OnlineSGPR
from bo_stream.core.streaming import StreamingGP
from bo_stream.growth import VIPS, FixedSize
from bo_stream.scores import score
from problems.tables import load_table

__all__ = ["SortedSplit", "modules", "reference", "stream"]

LEAK = " with leak"


@dataclass(frozen=True, eq=False)
class SortedSplit:
    """A table split at random; the training rows sorted by the first input, raw units.

    Attributes:
        X, Y: Training rows, ``n x d`` and ``n x 1``.
        X_test, Y_test: The other rows.
    """

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor

    @classmethod
    def of(cls, name: str, seed: int, share: float) -> SortedSplit:
        """Split a table of `problems.tables`, or ``synthetic`` data; constant columns go."""
        X, Y = _synthetic() if name == "synthetic" else _table(name)
        X = X[:, X.std(0) > 0.0]
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
        train, test = order[: int(share * len(X))], order[int(share * len(X)) :]
        train = train[X[train, 0].argsort(stable=True)]
        return cls(X[train], Y[train], X[test], Y[test])

    def scores(self, model: StreamingGP | None) -> tuple[float, float]:
        """Error and negative log density of the test rows, outcomes in units of their deviation.

        None stands for the mean of the training outcomes.
        """
        scale = float(self.Y.std())
        if model is None:
            return float((self.Y.mean(0) - self.Y_test).square().mean().sqrt()) / scale, math.nan
        raw = score(model, self.X_test, self.Y_test, self.Y_test)
        return raw.rmse / scale, raw.nlpd - math.log(scale)


def modules(split: SortedSplit, c: dict[str, Any]) -> dict[str, Any]:
    """Kernel, likelihood and transforms of the recipe, new at each call."""
    d = split.X.shape[1]
    location, scale = c["lengthscale"]
    base = RBFKernel(
        ard_num_dims=d, lengthscale_prior=LogNormalPrior(location + 0.5 * math.log(d), scale)
    )
    kernel = ScaleKernel(base, outputscale_prior=LogNormalPrior(*c["outputscale"])).double()
    base.lengthscale, kernel.outputscale = math.sqrt(d), 1.0
    likelihood = GaussianLikelihood(
        noise_prior=LogNormalPrior(*c["noise"]), noise_constraint=GreaterThan(1e-4)
    ).double()
    likelihood.noise = math.exp(c["noise"][0])
    outcomes = Standardize(1)
    outcomes(split.Y)
    return {
        "covar_module": kernel,
        "likelihood": likelihood,
        "input_transform": Normalize(d, bounds=torch.stack([split.X.amin(0), split.X.amax(0)])),
        "outcome_transform": outcomes.eval(),
    }


def stream(
    split: SortedSplit, batches: int, c: dict[str, Any]
) -> tuple[OnlineSGPR, list[dict[str, float]]]:
    """The surrogate after all batches, and a row for each.

    A row has the number of inducing points, the processor time of the batch, and ``rmse`` and
    ``nlpd`` of the test rows, whose scoring is outside of that time. Rows come sorted by the first
    input and test rows are from all over the table: until the last batch some lie where the stream
    has not been yet, and errors are large.
    """
    parts = list(zip(split.X.chunk(batches), split.Y.chunk(batches), strict=True))
    rows = []
    start = time.process_time()
    growth = VIPS(c["delta"], max_points=c["max_points"])
    model = OnlineSGPR(*parts[0], growth=growth, trust=c["trust"], **modules(split, c))
    model.fit()
    model.reselect()
    model.fit()
    for i, (X, Y) in enumerate(parts):
        if i:
            start = time.process_time()
            model.observe(X, Y)
        seconds = time.process_time() - start
        M, (rmse, nlpd) = len(model.inducing_points), split.scores(model)
        rows.append({"batch": i, "points": M, "seconds": seconds, "rmse": rmse, "nlpd": nlpd})
    return model, rows


def reference(split: SortedSplit, c: dict[str, Any]) -> tuple[StreamingGP, str]:
    """A GP fitted to all training rows at once, and its name."""
    r, kw = c["reference"], modules(split, c)
    model: StreamingGP
    if len(split.X) <= r["exact"]:
        model, name = ExactGP(split.X, split.Y, **kw), "exact GP"
    else:
        model = OnlineSGPR(split.X, split.Y, growth=FixedSize(r["points"]), **kw)
        name = f"batch SGPR, {r['points']} points"
    model.fit(r["evaluations"])
    return model, name


def _table(name: str) -> tuple[Tensor, Tensor]:
    """A table's inputs and outcomes; " with leak" after its name keeps inputs that leak them."""
    table = load_table(name.removesuffix(LEAK), leak=name.endswith(LEAK))
    return table.X, table.Y


def _synthetic() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(160, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(160, 1, generator=generator, dtype=torch.float64)
    return X, (6.0 * X).sin().sum(-1, keepdim=True) + 0.2 * noise
