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

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from botorch.sampling.pathwise import draw_kernel_feature_paths, gaussian_update
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.utils import OutcomeUntransformer
from torch import Size, Tensor

from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.errors import ShapeError, UnsupportedError

__all__ = [
    "LEAST_NOISE",
    "ModelPath",
    "constructor_arguments",
]

LEAST_NOISE = 1e-6
"""Noise variance substituted for exact evaluations (variance zero), relative to the outcomes'
variance: gpytorch's floor for standardised outcomes."""


def constructor_arguments(
    family: Any, data: Mapping[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """A family's constructor arguments; see `GaussianModel.construct_inputs`.

    Args:
        family: A subclass of `GaussianModel`.
        data: ``train_X``, ``train_Y``, and optionally ``train_Yvar``.
        options: Further arguments by name.
    """
    unknown = sorted(set(options) - set(inspect.signature(family).parameters))
    if unknown:
        raise UnsupportedError(
            f"options of {family.__name__}, and a search space of plain numbers",
            ", ".join(unknown),
            "Check the spelling; encode categories as numbers (in Ax, by its transforms).",
        )
    inputs: dict[str, Any] = {**data, "loads_data": False}
    if "train_Yvar" in inputs:
        inputs["train_Yvar"] = _with_floor(inputs["train_Yvar"], inputs["train_Y"])
    bounds = options.get("bounds")
    unknown_box = family.needs_bounds and bounds is None and options.get("grid") is None
    if unknown_box or _is_unit_cube(bounds):
        options = {**options, "bounds": "unit"}
    return {**inputs, **options}


def _is_unit_cube(bounds: Any) -> bool:
    if not isinstance(bounds, Tensor | list | tuple):
        return False
    value = torch.as_tensor(bounds, dtype=torch.float64)
    rows = value.unbind() if value.ndim == 2 else ()
    return len(rows) == 2 and not bool(rows[0].any()) and bool((rows[1] == 1).all())


def _with_floor(Yvar: Tensor, Y: Tensor) -> Tensor:
    """Replace variances of zero by the floor."""
    scale = Y.var(0) if len(Y) > 1 else torch.zeros_like(Y[:1].sum(0))
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.where(Yvar == 0, LEAST_NOISE * scale, Yvar)


class ModelPath(SamplePath):
    """Sample functions of a surrogate's posterior at the time of construction, in raw units.

    Called at raw points ``batch x q x d`` it returns ``batch' x q`` for one output, where
    ``batch'`` is ``batch`` broadcast with ``sample_shape x batch_shape``; for ``m`` outputs, points
    ``batch x (1 | m) x q x d`` give ``batch' x m x q``, as in BoTorch. Differentiable in points.
    """

    def __init__(self, model: GaussianModel, sample_shape: Size) -> None:
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


@DrawMatheronPaths.register(GaussianModel)  # type: ignore[untyped-decorator]
def _draw(
    model: GaussianModel,
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
