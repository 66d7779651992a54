"""Malaria in 203 Ethiopian schools: k of n children positive, predicted from other schools.

Run `python -m experiments.counts.schools`. In ten folds the count of every school is predicted: by
`CountGP` over several surrogates (over the exact GP it is expectation propagation on the full
batch), by one pooled rate (beta-binomial), and by empirical logits with half a count added to both
sides, taken for Gaussian data. Prints mean negative log probabilities of a school's count, shares
of counts inside their 90 % intervals, and seconds; writes them, and a map in percent with the width
of its 90 % intervals, to the config's folder.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from scipy.stats import betabinom
from torch import Tensor

from bo_stream import CountGP
from bo_stream.likelihoods import Binomial
from bo_stream.surrogates.counts import OutcomePrediction
from experiments.common.command import CONFIGS, command, configured, start
from experiments.common.data import MADE_UP
from experiments.common.progress import say
from experiments.common.study import quiet
from experiments.counts.maps import draw_percent
from experiments.counts.survey import Logits
from problems.tables import load_table

SMOKE = {
    "table": {"name": MADE_UP},
    "methods": ["wiski", "pooled", "logits"],
    "folds": 3,
    "side": 20,
}
MARGIN = 0.1
"""Between the outermost schools and the bounds, degrees."""
LEVELS = (0.05, 0.95)
Counts = Sequence[Tensor]
"""Places, ``n x 2``, positives and numbers examined, ``n`` each."""


def main(c: dict[str, Any], folder: Path) -> None:
    """Score every method in all folds, and draw the map of the first surrogate."""
    data, about = surveyed(c["table"])
    rows = []
    with quiet():
        for method in c["methods"]:
            rows.append({"method": method} | scored(method, data, c["folds"]))
            say(f"{method}: {rows[-1]['nats']:.3f} nats a school")
        bounds = bounds_of(data[0])
        model = fitted(c["methods"][0], bounds, *data)
    table = pd.DataFrame(rows)
    table.to_csv(folder / "scores.csv", index=False)
    say("\n" + table.to_string(index=False, float_format="{:.3f}".format) + f"\n{about}")
    low, high = bounds.tolist()
    grid = torch.cartesian_prod(*map(torch.linspace, low, high, [c["side"]] * 2)).double()
    here = model.response(grid)
    width = here.quantiles(LEVELS).diff(dim=0)[0]
    panels = {"mean": here.mean, "width of the 90 % interval": width}
    draw_percent(grid.numpy(), panels, data[0].numpy(), folder / "map.png", about)


def surveyed(table: Mapping[str, Any]) -> tuple[Counts, str]:
    """The schools of a table, or 60 made up, and their attribution; its targets are the numbers
    of positive and of all.
    """
    if table["name"] != MADE_UP:
        schools = load_table(table["name"], table.get("target"), inputs=table.get("inputs"))
        return (schools.X, schools.Y[:, 0], schools.Y[:, 1]), schools.attribution
    rng = np.random.default_rng(0)
    X, n = rng.random((60, 2)), rng.integers(20, 120, 60)
    k = rng.binomial(n, 1.0 / (1.0 + np.exp(6.0 - 5.0 * X[:, 0])))
    return (torch.from_numpy(X), *(torch.from_numpy(a).double() for a in (k, n))), "Made up."


def folds_of(schools: int, folds: int) -> Tensor:
    """The fold of each school."""
    return torch.from_numpy(np.random.default_rng(0).permutation(schools) % folds)


def bounds_of(X: Tensor) -> Tensor:
    """Bounds of places, with a margin."""
    return torch.stack([X.amin(0) - MARGIN, X.amax(0) + MARGIN])


def scored(method: str, data: Counts, folds: int) -> dict[str, float]:
    """Nats a school, share of counts inside 90 % intervals, and seconds, over all folds."""
    fold, began = folds_of(len(data[0]), folds), time.perf_counter()
    nats, inside, bounds = [], [], bounds_of(data[0])
    for one in range(folds):
        X, k, n = (part[fold == one] for part in data)
        future = predicted(method, bounds, [part[fold != one] for part in data], X, n)
        low, high = future.quantiles(LEVELS)
        nats.append(-future.log_prob(k))
        inside.append((low <= k) & (k <= high))
    means = {"nats": torch.cat(nats).mean(), "coverage": torch.cat(inside).double().mean()}
    return {k: float(v) for k, v in means.items()} | {"seconds": time.perf_counter() - began}


def fitted(method: str, bounds: Tensor, X: Tensor, k: Tensor, n: Tensor) -> Any:
    """A surrogate of counts, or of empirical logits, whose noise is theirs, fitted."""
    options = {} if method == "logits" else {"surrogate": method}
    kind: Any = Logits if method == "logits" else CountGP
    model = kind(X, k, n, bounds=bounds, **options)
    model.fit()
    return model


def predicted(method: str, bounds: Tensor, data: Counts, X: Tensor, n: Tensor) -> Any:
    """The distribution of the counts at places to come."""
    if method == "pooled":
        return PooledRate(data[1].numpy(), data[2].numpy(), n.numpy())
    model = fitted(method, bounds, *data)
    if method != "logits":
        return model.predict_counts(X, n)
    latent = model.posterior(X.unsqueeze(-2))
    m, v = (part.detach().reshape(-1) for part in (latent.mean, latent.variance))
    return OutcomePrediction(Binomial(), m, v, n)


class PooledRate:
    """Counts of a rate that does not depend on the place: beta-binomial, fitted to counts."""

    def __init__(self, k: np.ndarray, trials: np.ndarray, n: np.ndarray) -> None:
        def loss(logs: np.ndarray) -> float:
            return -float(betabinom(trials, *np.exp(logs)).logpmf(k).sum())

        best = minimize(loss, [-2.0, 2.0], method="Nelder-Mead").x
        self.future = betabinom(n, *np.exp(best))

    def log_prob(self, k: Tensor) -> Tensor:
        """Log probability of each count."""
        return torch.from_numpy(self.future.logpmf(k.numpy()))

    def quantiles(self, levels: Sequence[float]) -> Tensor:
        """Quantiles of each count."""
        return torch.stack([torch.from_numpy(self.future.ppf(level)) for level in levels])


app = command(configured(main, CONFIGS / "schools.toml", SMOKE), __doc__)

if __name__ == "__main__":
    start(app)
