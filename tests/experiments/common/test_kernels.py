"""Kernels and likelihoods as the studies start them."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

from experiments.common.kernels import gaussian, scaled, standardised
from experiments.growth.scenarios import kernel


def test_values_are_set_after_the_modules_are_float64() -> None:
    kernel = scaled(RBFKernel(ard_num_dims=2), lengthscale=0.3, outputscale=0.7)
    likelihood = gaussian(noise=0.013, floor=1e-4, prior=LogNormalPrior(-3.0, 1.0))
    values = [*kernel.base_kernel.lengthscale.flatten(), kernel.outputscale, likelihood.noise]
    assert all(value.dtype == torch.float64 for value in values)
    assert [v.item() for v in values] == pytest.approx([0.3, 0.3, 0.7, 0.013], rel=1e-6)
    assert likelihood.noise_covar.raw_noise_constraint.lower_bound == pytest.approx(1e-4)


def test_an_additive_kernel_shares_its_outputscale() -> None:
    X = torch.rand(4, 3, dtype=torch.float64)
    K = kernel("additive", 3, lengthscale=0.7, outputscale=0.6)(X).to_dense()
    assert torch.allclose(K.diagonal(), torch.full((4,), 0.6, dtype=torch.float64))
    near = (-(0.5 * (X[0] - X[1]).square() / 0.49)).exp().sum() * 0.2
    assert K[0, 1].item() == pytest.approx(near.item())


def test_outcomes_are_standardised_once() -> None:
    Y = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    transform = standardised(Y)
    assert not transform.training and float(transform(Y + 10.0)[0].mean()) > 5.0
