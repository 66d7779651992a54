"""Contract: BoTorch's `Model` interface: shapes, outputs, noise, dtypes, devices."""

from __future__ import annotations

import inspect
import io
from typing import Any

import pytest
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import GP
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.scores import Surprise
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["InterfaceContract"]

SINGLE = 1e-4
"""Numbers that went through float32 at the interface."""
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is present")


class InterfaceContract(Contract):
    """What BoTorch asks of a model."""

    def test_types(self) -> None:
        """What BoTorch, GPyTorch and Ax test with isinstance, and inspect."""
        model = self.build()
        for kind in (GPyTorchModel, GP, FantasizeMixin):
            assert isinstance(model, kind)
        for seen in (type(model), type(model).__init__):
            names = inspect.getfullargspec(seen)
            assert names.varkw is None and not names.kwonlyargs
            assert {"train_X", "train_Y", "train_Yvar", "bounds"} <= {*names.args}
            assert {"input_transform", "outcome_transform"} <= {*names.args}
        assert hasattr(model, "likelihood")
        assert model.num_outputs == 1 and model.batch_shape == Size()
        assert not model.training

    @pytest.mark.parametrize("outputs", [1, 2])
    def test_shapes(self, outputs: int) -> None:
        model: StreamingGP = self.build(outputs=self.outputs_of(outputs))
        for shape in ((1,), (4,), (3, 1), (3, 4), (2, 3, 4)):
            self.assert_shapes(model, self.points(*shape), outputs)

    def assert_shapes(self, model: StreamingGP, X: Tensor, outputs: int) -> None:
        """Batches of points have BoTorch's shapes, and the values of their points alone."""
        *batch, q = X.shape[:-1]
        posterior = model.posterior(X)
        assert type(posterior) is GPyTorchPosterior
        assert posterior.mean.shape == (*batch, q, outputs)
        assert posterior.variance.shape == (*batch, q, outputs)
        assert posterior.rsample(Size([5])).shape == (5, *batch, q, outputs)
        assert (posterior.variance > 0).all()
        latent = model(model.transform_inputs(X))
        assert isinstance(latent, MultivariateNormal)
        close(latent.mean.reshape(posterior.mean.shape), posterior.mean)
        flat = model.posterior(X.reshape(-1, self.dim))
        close(flat.mean.reshape(posterior.mean.shape), posterior.mean)
        close(flat.variance.reshape(posterior.variance.shape), posterior.variance)

    def test_points_are_raw_everywhere(self) -> None:
        """Also where BoTorch transforms its models' inputs itself."""
        model = self.build(input_transform=Normalize(self.dim, bounds=self.bounds))
        X = self.points(3, 4)
        assert torch.equal(model.transform_inputs(X), X)
        close(model(X).mean.unsqueeze(-1), model.posterior(X).mean)
        close(model(X).covariance_matrix, model.posterior(X).distribution.covariance_matrix)

    def test_posteriors_return_to_evaluation_mode(self) -> None:
        model = self.build().train()
        before = snapshot(model)
        model.posterior(self.points(2))
        assert not model.training
        assert_same_state(before, snapshot(model))

    def test_output_indices(self) -> None:
        model = self.build(outputs=self.outputs_of(2))
        X = self.points(3, 4)
        whole = model.posterior(X)
        for indices in ([0], [1], [1, 0], [0, 1]):
            part = model.posterior(X, output_indices=indices)
            close(part.mean, whole.mean[..., indices])
            close(part.variance, whole.variance[..., indices])
            assert_same_posterior(model.subset_output(indices), part_of(model, indices), X)

    def test_posterior_transform(self) -> None:
        outputs = self.outputs_of(2)
        model = self.build(outputs=outputs)
        X = self.points(3, 4)
        weights = torch.tensor([0.5, 2.0], dtype=self.dtype)
        transform = ScalarizedPosteriorTransform(weights, offset=1.0)
        posterior = model.posterior(X, posterior_transform=transform)
        whole = model.posterior(X)
        close(posterior.mean[..., 0], 1.0 + whole.mean @ weights)
        close(posterior.variance[..., 0], whole.variance @ weights.square())

    @pytest.mark.parametrize("outputs", [1, 2])
    def test_observation_noise(self, outputs: int) -> None:
        model = self.build(outputs=self.outputs_of(outputs))
        X = self.points(3, 4)
        clean = model.posterior(X)
        typical = model.posterior(X, observation_noise=True)
        added = typical.variance - clean.variance
        assert (added > 0).all()
        close(added, added[:1, :1].expand_as(added), 1e-10)
        for shape in ((3, 4, outputs), (4, outputs), (3, 1, outputs), (1, outputs)):
            noise = 0.1 + torch.rand(shape, dtype=self.dtype)
            noisy = model.posterior(X, observation_noise=noise)
            close(noisy.variance - clean.variance, noise.expand(3, 4, outputs), 1e-10)
            close(noisy.mean, clean.mean, 1e-12)

    def test_many_points(self) -> None:
        """Three thousand points: only the diagonal is formed, and it is right."""
        model = self.build()
        X = self.points(3_000, seed=41)
        posterior = model.posterior(X)
        few = model.posterior(X[:5])
        close(posterior.mean[:5], few.mean)
        close(posterior.variance[:5], few.variance)
        given = model.fantasize(X[:2], SobolQMCNormalSampler(Size([2]), seed=1))
        assert given.posterior(X).variance.shape == (2, 3_000, 1)
        middle = model.posterior(X[:300])
        cov = middle.distribution.covariance_matrix
        close(cov[:5, :5], few.distribution.covariance_matrix)
        noisy = model.posterior(X[:300], observation_noise=True)
        close(noisy.distribution.covariance_matrix.diagonal(), noisy.variance[:, 0])

    def test_says_when_its_predictions_fall_behind_what_they_promise(self) -> None:
        """Data as predicted are no surprise; data of another function are one."""
        model, surprises = self.build(), {0.0: False, 8.0: True}
        for off, behind in surprises.items():
            surprise = Surprise()
            for seed in range(3):
                X, _, Yvar = self.data(6, seed=20 + seed)
                seen = model.posterior(X, observation_noise=True if Yvar is None else Yvar)
                spread = seen.variance.detach().sqrt()
                score = model.predictive_score(X, seen.mean.detach() + off * spread, Yvar)
                close(
                    score.log_density,
                    model.log_predictive(X, seen.mean.detach() + off * spread, Yvar),
                )
                surprise = surprise.seen(score.shortfall, score.variance, len(X))
            assert surprise.behind is behind

    def test_log_predictive_is_the_density_of_new_data(self) -> None:
        """By the joint posterior with noise, in raw units, before the data are absorbed."""
        for transform in (None, Standardize(1)):
            model = self.build(outcome_transform=transform)
            X, Y, Yvar = self.data(4, seed=9)
            if Yvar is None:
                noise: Any = True
            else:
                scale = model.likelihood.noise.detach() if self.noise == "scaled" else 1.0
                noise = scale * (Yvar if transform is None else model.outcome_transform(Y, Yvar)[1])
            posterior = model.posterior(X, observation_noise=noise)
            expected = posterior.distribution.log_prob(Y[:, 0])
            close(model.log_predictive(X, Y, Yvar), expected)
            none = None if Yvar is None else Yvar[:0]
            assert float(model.log_predictive(X[:0], Y[:0], none)) == 0.0

    # -- dtype -----------------------------------------------------------------------------------

    def assert_double_inside(self, model: StreamingGP) -> None:
        """State and transforms stay in float64."""
        for name, buffer in model.state_dict().items():
            known = isinstance(buffer, Tensor) and buffer.is_floating_point()
            if known and name not in dict(model.named_parameters()) and "prior" not in name:
                if name.startswith(("likelihood.", "covar_module.", "mean_module.")):
                    continue
                assert buffer.dtype == torch.float64, f"{name} is {buffer.dtype}"

    def test_single_precision(self) -> None:
        """float32 in, float32 out; state and factorisations are float64."""
        double = self.build(20)
        X, Y, Yvar = self.data(20)
        single = self.over(X.float(), Y.float(), None if Yvar is None else Yvar.float())
        self.assert_double_inside(single)
        assert all(p.dtype == torch.float32 for p in single.parameters())
        Z = self.points(3, 4)
        posterior = single.posterior(Z.float())
        assert posterior.mean.dtype == posterior.variance.dtype == torch.float32
        assert posterior.rsample(Size([2])).dtype == torch.float32
        close(posterior.mean, double.posterior(Z).mean, SINGLE)
        close(posterior.variance, double.posterior(Z).variance, SINGLE)
        close(single.log_predictive(X.float(), Y.float(), None if Yvar is None else Yvar.float()),
              double.log_predictive(X, Y, Yvar), 1e-3)  # fmt: skip
        given = single.fantasize(Z.float(), SobolQMCNormalSampler(Size([2]), seed=1))
        assert given.posterior(Z.float()).mean.dtype == torch.float32
        plain = single.condition_on_observations(X[:2].float(), Y[:2].float())
        assert plain.posterior(Z.float()).mean.dtype == torch.float32
        single.observe(X[:2].float(), Y[:2].float(), None if Yvar is None else Yvar[:2].float())
        assert single.fit(3).evaluations <= 3
        acqf = qLogExpectedImprovement(
            single, best_f=0.1, sampler=SobolQMCNormalSampler(Size([8]), seed=1)
        )
        candidates, _ = optimize_acqf(
            acqf, self.bounds.float(), q=2, num_restarts=2, raw_samples=4, options={"maxiter": 2}
        )
        assert candidates.dtype == torch.float32

    def test_casting_the_interface(self) -> None:
        """`.to(torch.float32)` does not cast the state, and there is a way back."""
        model = self.build(
            input_transform=Normalize(self.dim, bounds=self.bounds),
            outcome_transform=Standardize(1),
        )
        X = self.points(3, 4)
        before, posterior = snapshot(model), model.posterior(X)
        model.to(torch.float32)
        self.assert_double_inside(model)
        states = {k for k in before if k not in dict(model.named_parameters())}
        after = snapshot(model)
        for key in states:
            if isinstance(before[key], Tensor) and before[key].dtype == after[key].dtype:
                assert torch.equal(before[key], after[key]), key
        assert model.posterior(X.float()).mean.dtype == torch.float32
        close(model.posterior(X.float()).mean, posterior.mean.float(), SINGLE)
        model.to(torch.float64)
        close(model.posterior(X).mean, posterior.mean, SINGLE)

    def test_casting_to_the_same_is_free_of_effect(self) -> None:
        """BoTorch's analytic acquisitions call `.to(X)` at each evaluation."""
        model = self.build()
        X = self.points(3, 4)
        before, mean = snapshot(model), model.posterior(X).mean
        model.to(X)
        assert_same_state(before, snapshot(model))
        assert torch.equal(model.posterior(X).mean, mean)
        given = model.fantasize(X, SobolQMCNormalSampler(Size([2]), seed=1)).to(X)
        assert given.posterior(X).mean.dtype == self.dtype

    # -- devices ---------------------------------------------------------------------------------

    @pytest.mark.gpu
    @NEEDS_CUDA
    def test_moving_to_a_gpu(self) -> None:
        """A surrogate that moves takes everything with it, and gives the same numbers."""
        model, X = self.build(), self.points(3, 4)
        mean, variance = model.posterior(X).mean, model.posterior(X).variance
        model.to("cuda")
        assert all(t.is_cuda for t in (*model.parameters(), *model.buffers()))
        posterior = model.posterior(X.cuda())
        assert posterior.mean.is_cuda
        close(posterior.mean.cpu(), mean, 1e-6)
        close(posterior.variance.cpu(), variance, 1e-6)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        restored = self.build(0)
        restored.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        close(restored.posterior(X).mean, mean, 1e-6)

    @pytest.mark.gpu
    @NEEDS_CUDA
    def test_living_on_a_gpu(self) -> None:
        """Built there: observe, fantasize, fit, optimise, sample."""
        X, Y, Yvar = (None if t is None else t.cuda() for t in self.data(14))
        kernel = self.kernel()
        kw = {} if kernel is None else {"covar_module": kernel}
        model = self.plain(X, Y, Yvar, bounds=self.bounds.cuda(), **kw)  # type: ignore[arg-type]
        model.observe(*(None if t is None else t.cuda() for t in self.data(4, seed=9)))
        assert model.fit(3).evaluations <= 3
        assert model.log_predictive(X, Y, Yvar).is_cuda
        sampler = SobolQMCNormalSampler(Size([8]), seed=1)
        Z = self.points(3, 2).cuda()
        assert model.fantasize(Z, sampler).posterior(Z).mean.is_cuda
        acqf = qLogExpectedImprovement(model, best_f=0.1, sampler=sampler)
        candidates, _ = optimize_acqf(
            acqf, self.bounds.cuda(), q=2, num_restarts=2, raw_samples=4, options={"maxiter": 2}
        )
        assert candidates.is_cuda
        assert model.condition_on_observations(Z[0], Z[0, :, :1]).posterior(Z).mean.is_cuda


def part_of(model: StreamingGP, indices: list[int]) -> Any:
    """A surrogate's outputs by `posterior(output_indices=...)`, as something with a posterior."""

    class Part:
        def posterior(self, X: Tensor) -> Any:
            return model.posterior(X, output_indices=indices)

    return Part()
