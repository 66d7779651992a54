"""Contract: exponential forgetting is a power of the likelihood of what was seen (MATHS 2.2)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models.transforms.outcome import Standardize
from torch import Tensor

from bo_stream.base.checkpoint import load
from bo_stream.errors import InputError, UnsupportedError
from bo_stream.testing import oracles
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["ForgettingContract"]

FACTOR = 0.8
DENSE = 1e-7
"""Dense algebra on kernel matrices against sums."""


class ForgettingContract(Contract):
    """`forget` of families whose state is a sum; the others refuse."""

    def forgetful(self, n: int, **kw: Any) -> Any:
        """A surrogate that can `forget`, or skip."""
        model = self.build(n, **kw)
        self.require(model, "additive")
        return model

    def test_forgetting_weights_the_likelihood(self) -> None:
        """Against dense algebra, with posteriors in between and more data after."""
        prior, Z = self.forgetful(0), self.points(5)
        X, Y, Yvar = self.data(18)
        model = self.build(0)
        for i in (0, 6, 12):
            part = slice(i, i + 6)
            model.observe(X[part], Y[part], None if Yvar is None else Yvar[part])
            model.posterior(Z)
            if i < 12:
                assert model.forget(FACTOR) is model
        v = FACTOR ** torch.tensor([2.0, 1.0, 0.0]).double().repeat_interleave(6)
        d = torch.ones_like(v) if Yvar is None else Yvar[:, 0].double()
        if self.noise != "known":
            d = d * float(model.likelihood.noise)
        dense = oracles.DenseGP(
            lambda A, B: prior.posterior(A).distribution.covariance_matrix.detach(),
            X.double(),
            Y[:, 0].double(),
            d / v,
            model.mean_module.constant.detach().double(),
        )
        mean, covariance = dense.posterior(Z)
        posterior = model.posterior(Z)
        close(posterior.mean[:, 0], mean, DENSE)
        close(posterior.distribution.covariance_matrix, covariance, DENSE)
        powers = (2.0 * math.pi * d / v).log() - v * (2.0 * math.pi * d).log()
        close(model.log_evidence(), dense.evidence() + 0.5 * powers.sum(), DENSE)
        assert model.num_observed == 18
        assert abs(model.effective_observations - float(v.sum())) < 1e-12

    def test_gradients_after_forgetting(self) -> None:
        model = self.forgetful(14).forget(FACTOR)
        learned = [p for p in model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(model.log_evidence(), learned)
        for parameter, gradient in zip(learned, gradients, strict=True):
            kept = parameter.data

            def value(x: Tensor, parameter: Any = parameter) -> Tensor:
                parameter.data = x
                return model.log_evidence().detach()

            close(gradient, oracles.difference_quotient(value, kept), 1e-5)
            parameter.data = kept

    def test_forgetting_everything_leaves_the_prior(self) -> None:
        """No subnormal numbers on the way, and finite results."""
        model, Z = self.forgetful(14), self.points(5)
        for _ in range(1050):
            model.forget(0.5)
        for value in snapshot(model).values():
            if isinstance(value, Tensor) and value.is_floating_point():
                assert not bool(((value != 0.0) & (value.abs() < 1e-290)).any())
        assert_same_posterior(model, self.build(0), Z)
        assert model.effective_observations < 1e-190
        assert model.observe(*self.data(14)).log_evidence().isfinite()

    def test_a_factor_of_one_changes_nothing(self) -> None:
        model = self.forgetful(14)
        before = snapshot(model)
        assert_same_state(before, snapshot(model.forget(1)))

    def test_forgetting_and_new_units(self) -> None:
        """In either order."""
        first, second = (self.forgetful(14, outcome_transform=Standardize(1)) for _ in range(2))
        Y = 5.0 * self.data(14)[1] + 2.0
        first.forget(FACTOR).restandardise(Y)
        second.restandardise(Y).forget(FACTOR)
        assert_same_posterior(first, second, self.points(5))
        close(first.log_evidence(), second.log_evidence())

    def test_forgetting_and_merging(self) -> None:
        """Streams that forget by themselves add up."""
        first, second = (self.forgetful(8, seed=seed).forget(FACTOR) for seed in (0, 1))
        both = self.build(8).observe(*self.data(8, seed=1)).forget(FACTOR)
        first.merge(second)
        assert_same_posterior(first, both, self.points(5))
        close(first.log_evidence(), both.log_evidence())

    def test_forgetting_and_saving(self, tmp_path: Path) -> None:
        model = self.forgetful(14).forget(FACTOR)
        modules = {} if self.kernel() is None else {"covar_module": self.kernel()}
        if self.noise == "scaled":
            modules["likelihood"] = type(model.likelihood)()
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt", **modules)
        for each in (model, again):
            each.forget(0.9).observe(*self.data(5, seed=3))
        assert again.effective_observations == model.effective_observations
        assert torch.equal(again.log_evidence(), model.log_evidence())

    @pytest.mark.parametrize("factor", [0.0, -0.5, 1.0001, math.nan, math.inf, "0.5", None, True])
    def test_other_factors_are_refused(self, factor: Any) -> None:
        model = self.build(8)
        before = snapshot(model)
        with pytest.raises(InputError, match="factor"):
            model.forget(factor)
        assert_same_state(before, snapshot(model))

    def test_families_that_cannot_forget_say_so(self) -> None:
        model = self.build(8)
        if self.declared(model).additive:
            pytest.skip(f"{type(model).__name__} forgets")
        before = snapshot(model)
        with pytest.raises(UnsupportedError, match="HSGP"):
            model.forget(0.9)
        assert_same_state(before, snapshot(model))
        assert model.effective_observations == 8.0
