"""Contract: surrogates of one output in BoTorch's lists of models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models.model import ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Standardize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream.errors import UnsupportedError
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["ListContract"]

# name: (batch of X, batch of Y, points)
BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "plain": ((), (), 5),
    "one point": ((), (), 1),
    "b": ((3,), (3,), 5),
    "f over unbatched X": ((), (4,), 5),
    "f x b": ((3,), (4, 3), 5),
    "one fantasy x b": ((3,), (1, 3), 1),
}
TRANSFORMS: dict[str, Any] = {
    "none": lambda: None,
    "standardised": lambda: Standardize(1),
    "logarithms": Log,
    "both": lambda: ChainedOutcomeTransform(log=Log(), scale=Standardize(1)),
}


CASES = list(
    zip(
        BATCHES,
        ("both", "none", "standardised", "both", "none", "logarithms"),
        ("per point", "left out", "per value", "per value", "per point", "left out"),
        strict=True,
    )
)
"""Every batch, every transform and every kind of noise at least once."""


class ListContract(Contract):
    """Posterior, fantasies, subsets and conditioning are those of the members."""

    def members(self, transform: str = "none") -> tuple[Any, Any]:
        """Two surrogates of unlike, positive outcomes."""
        made = []
        for seed, scale in ((0, 1.0), (3, 7.0)):
            X, Y, Yvar = self.data(14, seed=seed)
            Y, kind = scale * (Y - Y.min() + 1.0), TRANSFORMS[transform]()
            Yvar = None if Yvar is None else scale**2 * Yvar
            made.append(self.over(X, Y, Yvar, outcome_transform=kind))
        return made[0], made[1]

    @pytest.mark.parametrize("kind", [ModelListGP, ModelList])
    def test_lists_of_models(self, kind: Any) -> None:
        first, second = self.members()
        models = kind(first, second)
        X = self.points(3, 2, seed=35)
        posterior = models.posterior(X)
        close(posterior.mean[..., 1:], second.posterior(X).mean)
        assert posterior.rsample(Size([4])).shape == (4, 3, 2, 2)
        assert_same_posterior(models.subset_output([0]), first, X)
        given = models.fantasize(X, SobolQMCNormalSampler(Size([4]), seed=1))
        assert given.posterior(X).mean.shape == (4, 3, 2, 2)

    @pytest.mark.parametrize(("batch", "transform", "kind"), CASES)
    def test_conditioning_a_list_is_conditioning_its_members(
        self, batch: str, transform: str, kind: str
    ) -> None:
        """To a `ModelListGP` noise is raw."""
        x, y, n = BATCHES[batch]
        members = self.members(transform)
        before = [snapshot(m) for m in members]
        X, points = self.points(*x, n, seed=7), self.points(*x, 4)
        generator = torch.Generator().manual_seed(5)
        Y = 1.0 + torch.rand(*y, n, 2, generator=generator, dtype=torch.float64).to(self.dtype)
        per_point = 0.1 + torch.rand(n, 2, generator=generator, dtype=torch.float64).to(self.dtype)
        noise = {"left out": None, "per point": per_point, "per value": per_point * Y}[kind]
        kw = {} if noise is None else {"noise": noise}
        given: Any = ModelListGP(*members).condition_on_observations([X, X], Y, **kw)
        joint = given.posterior(points)
        for i, member in enumerate(members):
            values = Y[..., [i]]
            own = None if noise is None else self.transformed_noise(member, values, noise, i)
            alone = member.condition_on_observations(X, values, noise=own)
            assert type(given.models[i]) is type(alone)
            single = alone.posterior(points)
            close(joint.mean[..., [i]], single.mean, 1e-7)
            close(joint.variance[..., [i]], single.variance, 1e-7)
        for kept, member in zip(before, members, strict=True):
            assert_same_state(kept, snapshot(member))

    def transformed_noise(self, member: Any, Y: Tensor, noise: Tensor, output: int) -> Tensor:
        """Raw variances in the units a member is conditioned in."""
        variance = noise[..., [output]].expand(Y.shape)
        if not hasattr(member, "outcome_transform"):
            return variance
        transformed: Tensor = member.outcome_transform(Y, variance)[1]
        return transformed

    def test_conditioned_lists_go_on(self) -> None:
        """They can be conditioned and fantasized on again, with gradients."""
        models: Any = ModelListGP(*self.members("standardised"))
        X = self.points(3, 2, seed=7).requires_grad_()
        Y = torch.zeros(3, 2, 2, dtype=self.dtype)
        given = models.condition_on_observations([X, X], Y)
        again = given.condition_on_observations([X + 0.01, X + 0.01], Y)
        twice = given.fantasize(X, SobolQMCNormalSampler(Size([2]), seed=1))
        for m in (again, twice):
            (gradient,) = torch.autograd.grad(m.posterior(X).mean.sum(), X, retain_graph=True)
            assert gradient.isfinite().all() and gradient.abs().sum() > 0

    def test_several_outputs_in_a_list(self) -> None:
        """Refused: BoTorch lays such a member's outcomes end to end."""
        model = self.build(outputs=self.outputs_of(2))
        X = self.points(2)
        with pytest.raises(UnsupportedError, match="one output"):
            ModelListGP(model).condition_on_observations([X, X], torch.zeros(2, 2).to(X))
