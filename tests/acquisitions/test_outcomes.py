"""Acquisition functions of several outcomes."""

from typing import Any

import pytest
import torch
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from gpytorch.likelihoods import GaussianLikelihood

from acquisitions.outcomes import OutcomeAcquisition


def model_of(X: torch.Tensor, Y: torch.Tensor) -> ModelListGP:
    """Models that follow the outcomes."""
    each = []
    for column in Y.split(1, -1):
        likelihood = GaussianLikelihood().double()
        likelihood.noise = 1e-4
        each.append(SingleTaskGP(X, column, likelihood=likelihood, outcome_transform=None))
    return ModelListGP(*each)


@pytest.mark.parametrize("dominated", [-1.0, -50.0])
def test_the_reference_point_follows_from_the_front(dominated: float) -> None:
    """A tenth of its range below its worst, (0, 1) and (1, 0), in units of the outcomes' spread."""
    X = torch.tensor([[0.0], [0.3], [0.6], [1.0]], dtype=torch.float64)
    Y = torch.tensor([[0.0, 1.0], [1.0, 0.0], [dominated, -0.5], [-0.5, dominated]]).double()
    model = model_of(X, Y)
    acqf: Any = OutcomeAcquisition("qlognehvi", 2)(model, observed=X)
    with torch.no_grad():
        spread = model.posterior(X).mean.std(0)
    assert acqf.ref_point * spread == pytest.approx([-0.1, -0.1], abs=0.03)
