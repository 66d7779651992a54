"""`NIPV` for `botorch.acquisition.input_constructors`, which are slow to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from acquisitions.learning import NIPV
from bo_stream.base.gaussian_model import GaussianModel

__all__ = ["NIPV"]


@acqf_input_constructor(NIPV)
def _construct_inputs(
    model: GaussianModel,
    bounds: Sequence[tuple[float, float]],
    num_mc_points: int = 128,
    mc_points: Tensor | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Arguments of `NIPV` for BoTorch and Ax; the default test points are Sobol points."""
    if mc_points is None:
        box = torch.as_tensor(bounds, dtype=model.dtype).mT
        mc_points = draw_sobol_samples(bounds=box, n=num_mc_points, q=1).squeeze(-2)
    return {"model": model, "mc_points": mc_points, **others}
