"""A magnetic field along a path: online SGPR in batches, and the map it makes.

Run `python -m experiments.field`. The field's strength is learned in the order in which it was
measured. Prints size and errors after each batch; writes them and a map with the path and the
inducing points to the config's folder.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from matplotlib import pyplot as plt
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.growth import VIPS, FixedSize
from bo_stream.scores import marginals, score
from experiments.common.command import CONFIGS, command, configured, start
from experiments.common.kernels import RAW, gaussian, scaled, standardised
from experiments.common.plots import save
from experiments.common.progress import Progress, say
from problems.errors import DataNotFound
from problems.tables import load_table


def main(c: dict[str, Any], folder: Path) -> None:
    """Stream the path; compare with a GP on all of it; draw the map."""
    path = load(c["table"], c["every"])
    model, table = streamed(path, c)
    table.to_csv(folder / "batches.csv", index=False)
    draw_field(model, path.X, folder / "map.png", f"Field strength, {path.attribution}")
    say(table.to_string(index=False, float_format="{:.3f}".format))


@dataclass(frozen=True, eq=False)
class FieldPath:
    """Positions ``n x 2`` (metres) in order, a field's strength ``n x 1`` (microtesla) there, both
    also held out, and where they come from.
    """

    X: Tensor
    Y: Tensor
    X_test: Tensor
    Y_test: Tensor
    attribution: str


def load(name: str, every: int) -> FieldPath:
    """A path of which one row in so many is held out.

    The table has the three components of a field; ``synthetic`` is a path that is made up, which
    also stands in where the table is absent.
    """
    try:
        X, Y, attribution = _synthetic() if name == "synthetic" else _measured(name)
    except DataNotFound as error:
        say(f"{error}\nRunning on a SYNTHETIC walk instead.")
        X, Y, attribution = _synthetic()
    held = torch.arange(len(X)) % every == every - 1
    return FieldPath(X[~held], Y[~held], X[held], Y[held], attribution)


def streamed(path: FieldPath, c: dict[str, Any]) -> tuple[OnlineSGPR, pd.DataFrame]:
    """The surrogate after the last batch; size and errors after each, and of a GP on all rows."""

    def errors(model: OnlineSGPR) -> dict[str, float]:
        result = score(model, path.X_test, path.Y_test, path.Y_test)
        return {"rmse": result.rmse, "nlpd": result.nlpd}

    rows: list[dict[str, Any]] = []
    parts = list(zip(path.X.chunk(c["batches"]), path.Y.chunk(c["batches"]), strict=True))
    growth = VIPS(c["delta"])
    model = OnlineSGPR(*parts[0], growth=growth, trust=c["trust"], **_modules(path.Y, c))
    model.fit()
    with Progress(len(parts) + 1, "batches") as progress:
        for i, part in enumerate(parts):
            if i:
                model.observe(*part)
            M = len(model.inducing_points)
            rows.append({"batch": i, "n": model.num_observed, "points": M} | errors(model))
            progress(f"{M} inducing points; at last all batches at once")
        full = OnlineSGPR(path.X, path.Y, growth=FixedSize(c["points"]), **_modules(path.Y, c))
        full.fit(c["evaluations"])
    last = {"batch": "all at once", "n": len(path.X), "points": c["points"]}
    return model, pd.DataFrame([*rows, last | errors(full)])


def draw_field(model: OnlineSGPR, X: Tensor, path: Path, title: str = "") -> None:
    """Draw mean and standard deviation over the plane, with the path ``X`` and the inducing
    points.
    """
    low, high = X.amin(0), X.amax(0)
    axes = [torch.linspace(float(a), float(b), 80) for a, b in zip(low, high, strict=True)]
    mean, variance = marginals(model, torch.cartesian_prod(*axes).to(X))
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    shown = {"posterior mean": mean, "posterior standard deviation": variance.sqrt()}
    Z = model.inducing_points.cpu()
    for ax, (name, values) in zip(panels, shown.items(), strict=True):
        image = values.reshape(80, 80).mT.cpu().numpy()
        drawn = ax.imshow(image, extent=extent, origin="lower")
        figure.colorbar(drawn, ax=ax, shrink=0.8).set_label(
            "field strength (microtesla)", fontsize=8
        )
        ax.plot(*X.mT.cpu().numpy(), color="white", linewidth=0.4, alpha=0.6)
        ax.scatter(*Z.mT.numpy(), s=6, c="black", label=f"{len(Z)} inducing points")
        ax.set(title=name, xlabel="x (metres)", ylabel="y (metres)")
    panels[0].legend(fontsize=8, loc="upper right")
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def _modules(Y: Tensor, c: dict[str, Any]) -> dict[str, Any]:
    """Kernel, likelihood and outcome transform, new at each call."""
    base = RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(*c["lengthscale"]))
    start, prior = math.exp(c["lengthscale"][0]), LogNormalPrior(0.0, 1.0)
    noise, noise_prior = math.exp(c["noise"][0]), LogNormalPrior(*c["noise"])
    return RAW | {
        "covar_module": scaled(base, lengthscale=start, outputscale_prior=prior),
        "likelihood": gaussian(noise=noise, prior=noise_prior, floor=1e-4),
        "outcome_transform": standardised(Y),
    }


def _measured(name: str) -> tuple[Tensor, Tensor, str]:
    table = load_table(name)
    return table.X, table.Y.norm(dim=-1, keepdim=True), table.attribution


def _synthetic() -> tuple[Tensor, Tensor, str]:
    time = torch.linspace(0.0, 30.0, 400, dtype=torch.float64)
    X = torch.stack([(0.9 * time).sin() + 0.05 * time, (0.7 * time).cos()], -1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(X), 1, generator=generator, dtype=torch.float64)
    return X, 50.0 + 5.0 * (2.0 * X).sin().sum(-1, keepdim=True) + 0.5 * noise, "synthetic walk"


app = command(
    configured(main, CONFIGS / "field.toml", {"table": "synthetic", "batches": 4}), __doc__
)

if __name__ == "__main__":
    start(app)
