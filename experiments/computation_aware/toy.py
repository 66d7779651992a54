"""Four posteriors of the same data, each beside the exact GP with its hyperparameters."""

import pandas as pd
import torch
from torch import Tensor

from bo_stream import ExactGP
from bo_stream.scores import marginals
from experiments.common.data import TableSplit
from experiments.common.kernels import RAW
from experiments.computation_aware.methods import METHODS
from experiments.computation_aware.training import Training

LABELS = ("ExactGP", "SVGP", "CaGP-CG", "CaGP-Opt")

Bands = dict[str, tuple[Tensor, Tensor, Tensor]]
"""By method: mean, latent deviation, and the exact GP's under the same hyperparameters."""


def data() -> tuple[TableSplit, Tensor, Tensor]:
    """120 noisy values of a wave that quickens to the right, none of them in the middle; a grid
    ``400 x 1`` that reaches beyond the data; and the noiseless function there, ``400``.
    """
    generator = torch.Generator().manual_seed(0)
    X = torch.cat([torch.linspace(-1.0, -0.1, 60), torch.linspace(0.25, 1.0, 60)]).double()[:, None]
    X_test = 2.0 * torch.rand(200, 1, generator=generator, dtype=torch.float64) - 1.0

    def wave(x: Tensor) -> Tensor:
        return (4.0 * x + 5.0 * x.square()).sin()

    def noisy(x: Tensor) -> Tensor:
        return wave(x) + 0.1 * torch.randn(x.shape, generator=generator, dtype=torch.float64)

    grid = torch.linspace(-1.3, 1.3, 400, dtype=torch.float64)[:, None]
    return TableSplit(X, noisy(X), X_test, noisy(X_test)), grid, wave(grid)[:, 0]


def posteriors(
    split: TableSplit, grid: Tensor, actions: int, seconds: float
) -> tuple[Bands, pd.DataFrame]:
    """Posteriors on a ``p x 1`` grid, and a row of numbers for each method."""
    sizes = {"actions": actions, "cg": actions, "inducing": actions, "batch": len(split.X)}
    rows, bands = list[dict[str, object]](), Bands()
    for label in LABELS:
        training = Training(split, seconds)
        trained = METHODS[label](training, sizes)
        modules = RAW | {"covar_module": trained.kernel, "likelihood": trained.likelihood}
        least = marginals(ExactGP(split.X, split.Y, **modules), grid)[1].sqrt()
        with torch.no_grad():
            mean, variance = trained.predict(grid)
            deviation = (variance - trained.likelihood.noise).sqrt()
        bands[label] = mean, deviation, least
        ratio, last = deviation / least, training.rows[-1]
        row = {"surrogate": label, "nll": last["nll"], "rmse": last["rmse"]}
        row |= {"noise": trained.likelihood.noise.item()}
        row |= {"lengthscale": trained.kernel.base_kernel.lengthscale.item()}
        row |= {"least ratio": ratio.min().item(), "greatest ratio": ratio.max().item()}
        rows.append(row)
    return bands, pd.DataFrame(rows)
