"""A map of a field along a path: mean, standard deviation, path and inducing points."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bo_stream import OnlineSGPR
from bo_stream.scores import marginals
from experiments.common.plots import plt, save

__all__ = ["draw_field"]


def draw_field(model: OnlineSGPR, X: Tensor, path: Path, title: str = "") -> None:
    """Draw mean and standard deviation over the plane, with the path and the inducing points.

    Args:
        model: A surrogate of two inputs.
        X: Points of the path, ``n x 2``, in order.
        path: PNG or any format of matplotlib; folders are made.
        title: Above the maps.
    """
    low, high = X.amin(0), X.amax(0)
    axes = [torch.linspace(float(a), float(b), 80) for a, b in zip(low, high, strict=True)]
    mean, variance = marginals(model, torch.cartesian_prod(*axes).to(X))
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    shown = {"posterior mean": mean, "posterior standard deviation": variance.sqrt()}
    tesla = "field strength (microtesla)"
    Z = model.inducing_points.cpu()
    for ax, (name, values) in zip(panels, shown.items(), strict=True):
        image = values.reshape(80, 80).mT.cpu().numpy()
        drawn = ax.imshow(image, extent=extent, origin="lower")
        figure.colorbar(drawn, ax=ax, shrink=0.8).set_label(tesla, fontsize=8)
        ax.plot(*X.mT.cpu().numpy(), color="white", linewidth=0.4, alpha=0.6)
        ax.scatter(*Z.mT.numpy(), s=6, c="black", label=f"{len(Z)} inducing points")
        ax.set(title=name, xlabel="x (metres)", ylabel="y (metres)")
    panels[0].legend(fontsize=8, loc="upper right")
    figure.suptitle(title, fontsize=9)
    save(figure, path)
