"""CountGP on a survey of malaria in 203 Ethiopian schools, and on the two classes of Banana."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import betabinom
from torch import Tensor

from bo_stream import CountGP, DirichletClassifier
from bo_stream.likelihoods import Bernoulli


def there(name: str) -> pd.DataFrame:
    """A table, if it is there."""
    path = Path(os.environ.get("BO_STREAM_DATA", "data")) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return pd.read_csv(path)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["exact", "wiski"])
def test_schools_are_predicted_better_than_by_one_rate(family: str) -> None:
    """Negative log probability a school over ten folds; one pooled rate has .647."""
    table = there("malaria_ethiopia_school_survey_2009.csv")
    X = torch.from_numpy(table[["longitude", "latitude"]].to_numpy())
    n, k = (torch.from_numpy(table[name].to_numpy()).double() for name in ("examined", "pf_pos"))
    bounds = torch.stack([X.amin(0) - 0.1, X.amax(0) + 0.1])
    fold = torch.from_numpy(np.random.default_rng(0).permutation(len(X)) % 10)
    scores, pooled = [], []
    for one in range(10):
        seen, left = fold != one, fold == one

        def loss(logs: np.ndarray, rows: Tensor) -> float:
            return -betabinom(n[rows].numpy(), *np.exp(logs)).logpmf(k[rows].numpy()).sum()

        rate = minimize(loss, [-2.0, 2.0], (seen,), "Nelder-Mead").x
        pooled.append(loss(rate, left))
        model = CountGP(X[seen], k[seen], n[seen], bounds=bounds, surrogate=family)
        model.fit()
        scores.append(model.predict_counts(X[left], n[left]).log_prob(k[left]))
    assert -float(torch.cat(scores).mean()) <= 0.545
    assert sum(pooled) / len(X) >= 0.62


@pytest.mark.slow
def test_two_classes_are_calibrated_better_than_by_transformed_labels() -> None:
    """Log loss and calibration error of 4,900 labels of Banana, given 400."""
    table = there("banana.csv.gz")
    X, y = (
        torch.from_numpy(table[["x0", "x1"]].to_numpy()),
        torch.from_numpy(table.label.to_numpy()),
    )
    train = torch.from_numpy((table["split"] == "train").to_numpy())
    bounds = torch.stack([X.amin(0) - 0.1, X.amax(0) + 0.1])
    kind = Bernoulli(classes=(0, 1), nugget=0.0)
    sites = CountGP(X[train], y[train], bounds=bounds, likelihood=kind)
    labels = DirichletClassifier(X[train], y[train], bounds=bounds)
    found = []
    for model in (sites, labels):
        model.fit()
        counts = isinstance(model, CountGP)
        p = model.response(X[~train]).mean if counts else model.predict_proba(X[~train])[:, 1]
        told = y[~train] == 1
        loss = -torch.where(told, p, 1.0 - p).log().mean()
        sure, right = torch.maximum(p, 1.0 - p), ((p > 0.5) == told).double()
        bins = ((sure - 0.5) * 20.0).long().clamp_max(9)
        gaps = torch.zeros(10).double().index_add(0, bins, right - sure)
        found.append((float(loss), float(gaps.abs().sum() / len(p))))
    assert found[0][0] <= 0.235 < found[1][0]
    assert found[0][1] <= 0.019 < found[1][1]
