"""Contract: sample functions through BoTorch's pathwise tools."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models.gp_regression import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.pathwise import get_matheron_path_model
from botorch.utils.sampling import optimize_posterior_samples
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.testing.base import Contract, close

__all__ = ["PathwiseContract"]

DRAWS = 800
STRAY = 5.0
"""Standard errors by which a Monte-Carlo average over a handful of entries may stray."""


class PathwiseContract(Contract):
    """Paths have BoTorch's shapes and the posterior's distribution."""

    def assert_draws_follow_the_posterior(
        self, model: StreamingGP, X: Tensor, outputs: int
    ) -> None:
        """Mean and covariance over draws at X (``q x d``) are the posterior's."""
        torch.manual_seed(0)
        with torch.no_grad():
            draws = get_matheron_path_model(model, Size([DRAWS]))(X.expand(DRAWS, -1, -1))
            for o in range(outputs):
                posterior = cast(GPyTorchPosterior, model.posterior(X, output_indices=[o]))
                joint = posterior.distribution
                mean, cov = joint.mean, joint.covariance_matrix
                centred = draws[..., o] - mean
                z = centred.mean(0) / (cov.diagonal() / DRAWS).sqrt()
                assert float(z.abs().max()) < STRAY
                deviation = cov.diagonal().outer(cov.diagonal()) + cov.square()
                z = (centred.T @ centred / DRAWS - cov) / (deviation / DRAWS).sqrt()
                # random features of the prior are not exact: they add a few per cent
                assert float(z.abs().max()) < STRAY + 5.0

    def test_paths_follow_the_posterior(self) -> None:
        self.assert_draws_follow_the_posterior(self.build(20), self.points(4), 1)

    def test_paths_without_data(self) -> None:
        self.assert_draws_follow_the_posterior(self.build(0), self.points(4), 1)

    def test_paths_of_several_outputs_in_raw_units(self) -> None:
        outputs = self.outputs_of(2)
        X, Y, Yvar = self.data(20, outputs=outputs)
        Yvar = None if Yvar is None else 100.0 * Yvar
        model = self.over(
            X,
            10.0 * Y + 3.0,
            Yvar,
            input_transform=Normalize(self.dim, bounds=self.bounds),
            outcome_transform=Standardize(outputs),
        )
        self.assert_draws_follow_the_posterior(model, self.points(4), outputs)

    def test_paths_of_a_conditioned_posterior(self) -> None:
        """At the points conditioned on too, where the noise shows; different data per batch."""
        model = self.build(0)
        X, Y = self.points(2, seed=7), self.points(3, 2, seed=8)[..., :1]
        noise = torch.full((2, 1), 0.3, dtype=self.dtype)
        given = model.condition_on_observations(X, Y, noise=noise)
        torch.manual_seed(0)
        points = torch.cat([X, self.points(2)])
        with torch.no_grad():
            draws = get_matheron_path_model(given, Size([DRAWS]))(points)
            posterior = given.posterior(points)
        assert draws.shape == (DRAWS, 3, 4, 1)
        z = (draws.mean(0) - posterior.mean) / (posterior.variance / DRAWS).sqrt()
        assert float(z.abs().max()) < STRAY
        z = (draws.var(0) / posterior.variance - 1.0) / (2.0 / DRAWS) ** 0.5
        assert float(z.abs().max()) < STRAY + 5.0

    @pytest.mark.parametrize("outputs", [1, 2])
    def test_shapes_are_botorchs(self, outputs: int) -> None:
        model = self.build(outputs=self.outputs_of(outputs))
        stock = SingleTaskGP(*self.data(6, outputs=outputs)[:2], outcome_transform=None)
        batches: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((), ()),
            ((5,), ()),
            ((5,), (5,)),
            ((5,), (2, 5)),
        ]
        for samples, batch in batches:
            X = self.points(*batch, 4)
            shape = Size(samples)
            ours = get_matheron_path_model(model, shape)(X)
            assert ours.shape == get_matheron_path_model(stock, shape)(X).shape
            assert ours.dtype == self.dtype

    def test_points_of_their_own(self) -> None:
        """Sample i at its own points is sample i."""
        model = self.build()
        paths = get_matheron_path_model(model, Size([3]))
        X = self.points(3, 4)
        together = paths(X)
        for i in range(3):
            close(together[i], paths(X[i])[i])

    def test_a_path_is_a_function(self) -> None:
        """The same draw, call after call, whatever its surrogate observes."""
        model, X = self.build(), self.points(4)
        path = get_matheron_path_model(model)
        before = path(X)
        model.observe(*self.data(5, seed=9))
        assert torch.equal(path(X), before)

    def test_optima_of_paths(self) -> None:
        model = self.build()
        torch.manual_seed(0)
        paths = get_matheron_path_model(model, Size([3]))
        X, f = optimize_posterior_samples(paths, self.bounds, raw_samples=64, num_restarts=2)
        assert X.shape == (3, self.dim) and f.shape == (3, 1)
        grid = paths(self.points(50)).amax(-2)
        assert (f >= grid - 1e-2 * (1 + grid.abs())).all()

    def test_thompson_sampling_by_paths(self) -> None:
        model = self.build()
        X, _ = optimize_acqf(
            PathwiseThompsonSampling(model), self.bounds, q=2, num_restarts=2, raw_samples=16
        )
        assert X.shape == (2, self.dim) and X.isfinite().all()

    def test_paths_of_a_model_list(self) -> None:
        models = ModelListGP(self.build(), self.build(seed=3))
        path = get_matheron_path_model(models, Size([5]))
        assert path(self.points(4)).shape == (5, 4, 2)
