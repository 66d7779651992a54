"""CountGP on the two classes of Banana."""

import os
from pathlib import Path

import pandas as pd
import pytest
import torch

from bo_stream import CountGP, DirichletClassifier
from bo_stream.likelihoods import Bernoulli


def there(name: str) -> pd.DataFrame:
    """A table, if it is there."""
    path = Path(os.environ.get("BO_STREAM_DATA", "data")) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return pd.read_csv(path)


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
