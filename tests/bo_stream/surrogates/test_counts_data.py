"""CountGP on a survey of malaria in 203 Ethiopian schools."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import betabinom
from torch import Tensor

from bo_stream import CountGP

NAME = "malaria_ethiopia_school_survey_2009.csv"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["exact", "wiski"])
def test_schools_are_predicted_better_than_by_one_rate(family: str) -> None:
    """Negative log probability a school over ten folds; one pooled rate has .647."""
    path = Path(os.environ.get("BO_STREAM_DATA", "data")) / NAME
    if not path.exists():
        pytest.skip(f"{path} is not there")
    table = pd.read_csv(path)
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
