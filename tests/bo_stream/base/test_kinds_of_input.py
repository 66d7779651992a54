"""What is no tensor is refused by its name, with a remedy, wherever points and outcomes enter."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch

from bo_stream import CountGP, DirichletClassifier, ExactGP
from bo_stream.errors import BoStreamError, BoundsError

X = torch.rand(12, 2, dtype=torch.double, generator=torch.Generator().manual_seed(0))
Y, UNIT = X.sum(-1, keepdim=True), torch.tensor([[0.0, 0.0], [1.0, 1.0]])
K = torch.arange(12) % 3
COUNTS = CountGP(X, K, 4, bounds=UNIT, surrogate="exact")
CLASSES = DirichletClassifier(X, K, bounds=UNIT, surrogate="exact")
GP = ExactGP(X, Y, bounds=UNIT)
KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "array": torch.Tensor.numpy,
    "list": torch.Tensor.tolist,
    "frame": lambda t: pd.DataFrame(t.numpy()),
    "integers": torch.Tensor.long,
    "half": torch.Tensor.half,
    "one row": lambda t: t[0],
    "none": lambda t: None,
    "text": lambda t: "points",
}
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "CountGP": lambda x: CountGP(x, K, 4, bounds=UNIT),
    "CountGP.observe": lambda x: COUNTS.observe(x, K, 4),
    "CountGP.posterior": COUNTS.posterior,
    "CountGP.response": COUNTS.response,
    "CountGP.predict_counts": lambda x: COUNTS.predict_counts(x, 3),
    "CountGP.log_predictive": lambda x: COUNTS.log_predictive(x, K, 4),
    "CountGP.future_noise": COUNTS.future_noise,
    "CountGP.believing": COUNTS.believing,
    "DirichletClassifier": lambda x: DirichletClassifier(x, K, bounds=UNIT),
    "DirichletClassifier.observe": lambda x: CLASSES.observe(x, K),
    "DirichletClassifier.predict": CLASSES.predict,
    "DirichletClassifier.predict_proba": CLASSES.predict_proba,
    "DirichletClassifier.believing": CLASSES.believing,
    "ExactGP": lambda x: ExactGP(x, Y, bounds=UNIT),
    "ExactGP.observe": lambda x: GP.observe(x, Y),
    "ExactGP.posterior": GP.posterior,
    "ExactGP.condition_on_observations": lambda x: GP.condition_on_observations(x, Y),
    "outcomes": lambda y: ExactGP(X, y, bounds=UNIT),
}
REFUSED = [(e, k) for e in ENTRIES for k in KINDS if k != "half" or "." not in e]
"""Predictions compute in float64, whatever the precision of the points."""


@pytest.mark.parametrize(("entry", "kind"), REFUSED)
def test_it_is_refused_with_a_remedy(entry: str, kind: str) -> None:
    with pytest.raises(BoStreamError, match=r"Expected .*; got .*\. \S"):
        ENTRIES[entry](KINDS[kind](X))
    assert COUNTS.num_observed == GP.num_observed == 12


@pytest.mark.parametrize("kind", ["array", "list", "frame", "integers", "half"])
def test_bounds_counts_trials_and_labels_may_be_of_any_kind(kind: str) -> None:
    given, k = KINDS[kind](UNIT), KINDS[kind](K) if kind != "frame" else pd.Series(K.numpy())
    model = CountGP(X, k, KINDS[kind](torch.full((12,), 4)), bounds=given, surrogate="exact")
    assert torch.equal(model.response(X).mean, COUNTS.response(X).mean)
    assert DirichletClassifier(X, K.tolist(), bounds=given).num_observed == 12


@pytest.mark.parametrize("wrong", ["wide", object(), [[0.0], [1.0, 2.0]], pd.DataFrame(["a", "b"])])
def test_other_bounds_are_refused(wrong: Any) -> None:
    with pytest.raises(BoundsError, match="Stack"):
        CountGP(X, K, 4, bounds=wrong)
