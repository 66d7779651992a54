"""Sample functions of every surrogate, for BoTorch's pathwise tools.

They are registered with BoTorch's `DrawMatheronPaths`. `get_matheron_path_model`,
`PathwiseThompsonSampling`, `optimize_posterior_samples` and the optima of entropy searches
therefore work with any surrogate, conditioned posterior, or `ModelListGP` of them. On a grid the
draws are exact; elsewhere they follow Matheron's rule [Wilson2020].

References:
    [Wilson2020] J. T. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky, M. P. Deisenroth.
        Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.sampling.pathwise import draw_kernel_feature_paths, gaussian_update
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.utils import OutcomeUntransformer
from torch import Size, Tensor

from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.errors import ShapeError, UnsupportedError

__all__ = ["ModelPath"]


class ModelPath(SamplePath):
    """Sample functions of a surrogate's posterior at the time of construction, in raw units.

    Called at raw points ``batch x q x d`` it returns ``batch' x q`` for one output, where
    ``batch'`` is ``batch`` broadcast with ``sample_shape x batch_shape``; for ``m`` outputs, points
    ``batch x (1 | m) x q x d`` give ``batch' x m x q``, as in BoTorch. Differentiable in points.
    """

    def __init__(self, model: BoTorchModel, sample_shape: Size) -> None:
        super().__init__()
        self._outputs = model.num_outputs
        self._check: Callable[[Tensor], None] = model._check_points
        self._transformed: Callable[[Tensor], Tensor] = model._transformed
        self._draws = model.process().path(sample_shape)
        outcomes = model.outcome_map()
        self._untransform = (
            None if outcomes is None else OutcomeUntransformer(outcomes, self._outputs)
        )

    def forward(self, X: Tensor) -> Tensor:
        """Values of the sample functions at X; see the class for shapes."""
        self._check(X)
        Z = self._transformed(X)
        if self._outputs == 1:
            values = self._draws(Z).squeeze(-2)
        elif Z.ndim == 2 or Z.shape[-3] == 1:
            values = self._draws(Z if Z.ndim == 2 else Z.squeeze(-3))
        elif Z.shape[-3] == self._outputs:
            each = [self._draws(Z[..., i, :, :])[..., i, :] for i in range(self._outputs)]
            values = torch.stack(each, -2)
        else:
            raise ShapeError(
                f"points `batch x (1 or {self._outputs}) x q x d` for {self._outputs} outputs",
                f"{tuple(X.shape)}",
                "Insert the output dimension before the points: X.unsqueeze(-3).",
            )
        return (values if self._untransform is None else self._untransform(values)).to(X.dtype)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing: no surrogate here is an ensemble."""


@DrawMatheronPaths.register(BoTorchModel)  # type: ignore[untyped-decorator]
def _draw(
    model: BoTorchModel,
    *,
    sample_shape: Size,
    prior_sampler: Any = draw_kernel_feature_paths,
    update_strategy: Any = gaussian_update,
) -> ModelPath:
    if prior_sampler is not draw_kernel_feature_paths or update_strategy is not gaussian_update:
        raise UnsupportedError(
            "the default prior_sampler and update_strategy",
            "others",
            f"{type(model).__name__} draws its own sample functions; leave both out.",
        )
    return ModelPath(model, sample_shape)
