"""Counts of schools predicted from other schools, against full-batch EP written in numpy."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import betabinom

from bo_stream.likelihoods import Binomial
from bo_stream.surrogates.counts import OutcomePrediction
from experiments.common.command import CONFIGS, read
from experiments.counts import schools
from tests.bo_stream.surrogates.count_cases import full_batch

CONFIG = CONFIGS / "schools.toml"


def test_made_up_schools_are_scored_and_drawn(tmp_path: Path) -> None:
    """They depend on the longitude, so that a map is better than one rate."""
    schools.main(read(CONFIG, CONFIG) | schools.SMOKE, tmp_path)
    nats = pd.read_csv(tmp_path / "scores.csv").set_index("method")["nats"]
    assert nats["wiski"] < nats["pooled"]
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_pooled_counts_are_beta_binomial() -> None:
    rng = np.random.default_rng(0)
    n = np.full(2_000, 50)
    k = betabinom(n, 2.0, 6.0).rvs(random_state=rng)
    future = schools.PooledRate(k, n, np.array([50.0, 80.0]))
    expected = betabinom([50, 80], 2.0, 6.0).logpmf([10, 20])
    np.testing.assert_allclose(future.log_prob(torch.tensor([10.0, 20.0])), expected, atol=0.05)


@pytest.mark.slow
def test_schools_are_predicted_better_than_by_one_rate() -> None:
    """Negative log probability a school over ten folds: that of full-batch EP, below .545."""
    c = read(CONFIG, CONFIG)
    name = c["table"]["name"]
    if not list(Path(os.environ.get("BO_STREAM_DATA", "data")).glob(f"{name}.csv*")):
        pytest.skip(f"{name} is not under BO_STREAM_DATA")
    data, _ = schools.surveyed(c["table"])
    fold, bounds, whole = schools.folds_of(len(data[0]), 10), schools.bounds_of(data[0]), []
    for one in range(10):
        (X, k, n), (Z, to_come, m) = (
            [part[mask] for part in data] for mask in (fold != one, fold == one)
        )
        model = schools.fitted("exact", bounds, X, k, n)
        rows = model.model.transformed(torch.cat([X, Z]))
        K = model.model.covar_module(rows).to_dense().detach().numpy()
        # a school to come is one of no trial: EP on the full batch has its marginal
        trials, positive = torch.cat([n, 0.0 * m]).numpy(), torch.cat([k, 0.0 * m]).numpy()
        mean = np.full(len(K), float(model.model.mean_module.constant.detach()))
        f, v, _ = full_batch(K, mean, model.nugget, positive, trials)
        f, v = (torch.from_numpy(part[len(X) :]) for part in (f, v))
        whole.append(OutcomePrediction(Binomial(), f, v + model.nugget, m).log_prob(to_come))
    found = {name: schools.scored(name, data, 10)["nats"] for name in c["methods"]}
    full = -float(torch.cat(whole).mean())
    assert found["exact"] == pytest.approx(full, abs=1e-3) and full <= 0.545
    for name in ("wiski", "node_wiski", "hsgp"):
        assert found[name] <= 0.545
    assert found["pooled"] >= 0.62 and found["logits"] >= 0.9
