"""What the parts of the streaming contract share: the factory, data, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from botorch.models.model import Model
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from bo_stream.base.streaming_gp import Promises, StreamingGP

__all__ = ["Contract", "assert_same_posterior", "assert_same_state", "close", "snapshot"]

TIGHT = 1e-8
"""Two routes to the same float64 numbers: rounding, amplified by the condition of a small GP."""


class Contract:
    """A family under test: subclass, name the family (or define `make`), set what differs.

    Attributes:
        family: The class under test.
        options: Options of its constructor.
        dim: Number of inputs.
        noise: ``"learned"``, ``"known"`` or ``"scaled"`` (known up to a learned factor).
        promises: What this configuration promises; by default what its class declares. Set it
            where a configuration promises more (a growth policy, an action) than the class.
        warm_evaluations: What the median fit after one more point may take.
        warm_residual: What 30 outcomes may miss under hyperparameters learned from ten others, as a
            share of their deviation.
    """

    family: type[StreamingGP]
    options: Mapping[str, Any] = {}
    dim: int = 2
    noise: str = "learned"
    promises: Promises | None = None
    warm_evaluations: int = 5
    warm_residual: float = 0.6
    dtype: torch.dtype = torch.float64

    def make(
        self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None = None, **kw: Any
    ) -> StreamingGP:
        """The surrogate under test. Small and quick: this is called a few hundred times."""
        return self.family(train_X, train_Y, train_Yvar, **{**self.options, **kw})

    def kernel(self, outputs: int = 1) -> Kernel | None:
        """The kernel under test, new at each call; None is the family's default."""
        return None

    # -- data ------------------------------------------------------------------------------------

    @property
    def bounds(self) -> Tensor:
        """Raw bounds that are no unit cube, ``2 x d``."""
        low = torch.tensor([-1.0, 0.5, 2.0, 0.0], dtype=self.dtype)[: self.dim]
        width = torch.tensor([2.0, 1.5, 3.0, 1.0], dtype=self.dtype)[: self.dim]
        return torch.stack([low, low + width])

    def points(self, *shape: int, seed: int = 1) -> Tensor:
        """Points well inside the bounds, ``shape x d``."""
        generator = torch.Generator().manual_seed(seed)
        U = torch.rand(*shape, self.dim, generator=generator, dtype=torch.float64)
        low, high = self.bounds
        return low + (high - low) * (0.02 + 0.96 * U.to(self.dtype))

    def data(
        self, n: int, *, seed: int = 0, outputs: int = 1
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """A smooth function seen with noise: ``X, Y, Yvar`` (Yvar None where noise is learned)."""
        X = self.points(n, seed=seed)
        generator = torch.Generator().manual_seed(1000 + seed)
        phase = torch.arange(outputs, dtype=self.dtype)
        clean = (2.0 * X.sum(-1, keepdim=True) + phase).sin() + 0.5 * X[:, :1]
        variance = 0.02 + 0.05 * torch.rand(n, outputs, generator=generator, dtype=torch.float64)
        noise = torch.randn(n, outputs, generator=generator, dtype=torch.float64)
        Y = clean + (variance.sqrt() * noise).to(self.dtype)
        return X, Y, None if self.noise == "learned" else variance.to(self.dtype)

    def build(self, n: int = 14, *, seed: int = 0, outputs: int = 1, **kw: Any) -> Any:
        """A surrogate that has seen ``n`` points (Any: torch types attributes too loosely)."""
        return self.over(*self.data(n, seed=seed, outputs=outputs), **kw)

    def over(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, **kw: Any) -> Any:
        """A surrogate that has seen these data, with noise of a size that matters."""
        kernel = self.kernel(Y.shape[-1])
        if kernel is not None:
            kw.setdefault("covar_module", kernel)
        if self.noise == "scaled" and "likelihood" not in kw:
            batch = torch.Size([Y.shape[-1]] if Y.shape[-1] > 1 else [])
            kw["likelihood"] = GaussianLikelihood(batch_shape=batch)
        model = self.plain(X, Y, Yvar, bounds=self.bounds, **kw)
        scale = {"learned": 0.05, "scaled": 1.3}.get(self.noise)
        if scale is not None:
            model.likelihood.noise = scale
        return model

    def plain(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, **kw: Any) -> Any:
        """`make` without transforms, unless they are given: what comes in is what is modelled."""
        return self.make(X, Y, Yvar, **{"input_transform": None, "outcome_transform": None, **kw})

    def left_out(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, **kw: Any) -> Any:
        """`make` with transforms left out unless they are given: the defaults are modelled."""
        kernel = self.kernel(Y.shape[-1])
        if kernel is not None:
            kw.setdefault("covar_module", kernel)
        if self.noise == "scaled":
            kw.setdefault("likelihood", GaussianLikelihood())
        return self.make(X, Y, Yvar, **{"bounds": self.bounds, **kw})

    def objective_of_all(self, model: StreamingGP) -> Tensor:
        """The evidence (or bound) of all data plus log priors: what is the same however they came.

        By default what `make_mll` gives; a family whose hyperparameters climb less says so here.
        """
        value: Tensor = model.make_mll()()
        return value

    def declared(self, model: StreamingGP) -> Promises:
        """What the configuration under test promises."""
        return self.promises or type(model).promises

    def require(self, model: StreamingGP, promise: str) -> None:
        """Skip, saying so, where the family does not promise this."""
        if not getattr(self.declared(model), promise):
            pytest.skip(f"{type(model).__name__} does not promise `{promise}`")

    def outputs_of(self, model_outputs: int) -> int:
        """Skip several outputs where the family takes one."""
        if model_outputs > 1:
            self.require(self.build(4), "multi_output")
        return model_outputs


def close(a: Tensor, b: Tensor, tolerance: float = TIGHT) -> None:
    """Equal shapes, and values to ``tolerance * (1 + |value|)``."""
    assert a.shape == b.shape, f"{tuple(a.shape)} is not {tuple(b.shape)}"
    a, b = a.detach().double(), b.detach().double()
    error = ((a - b).abs() / (1.0 + b.abs())).max() if a.numel() else 0.0
    assert float(error) <= tolerance, f"relative error {float(error):.3g} above {tolerance:.3g}"


def assert_same_posterior(a: Any, b: Any, X: Tensor, tolerance: float = TIGHT) -> None:
    """Equal joint posteriors (mean and full covariance) at X."""
    p, q = a.posterior(X), b.posterior(X)
    close(p.mean, q.mean, tolerance)
    close(p.distribution.covariance_matrix, q.distribution.covariance_matrix, tolerance)


def snapshot(model: Model) -> dict[str, Any]:
    """A copy of the whole `state_dict`."""
    return {
        k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in model.state_dict().items()
    }


def assert_same_state(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Bit-identical `state_dict`s."""
    assert before.keys() == after.keys()
    for key, value in before.items():
        if isinstance(value, Tensor):
            assert value.dtype == after[key].dtype and value.shape == after[key].shape, key
            assert torch.equal(value, after[key]), f"{key} has changed"
        else:
            assert value == after[key], f"{key} has changed"
