"""Surrogates of small boxes about the best point, whose features resolve more (MATHS 12.5).

The features of an `HSGP` over the whole space resolve a few periods of each input. Where a function
varies faster, its best point is found by chance, and samples of the posterior return to it. As many
features over a smaller box resolve what was missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from botorch.models.transforms import Normalize, Standardize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.campaign.outcomes.observations import Observations
from bo_stream.campaign.proposing.averages import not_lower
from bo_stream.errors import check_not_shadowed
from bo_stream.surrogates.hsgp import HSGP

__all__ = ["CloseUp", "close_ups", "takes_close_ups"]

SIDES = (0.4, 0.2)
"""Sides of the boxes, in widths of the space."""

FEATURES, LEAST = 256, 300
"""Number of features, and least number of outcomes in a box."""

EVALUATIONS, LATER_EVALUATIONS = 15, 12
"""Most evaluations of a first fit, and of one from earlier hyperparameters."""

COMPARED = 3000
"""Most outcomes of a box that hyperparameters are fitted to and residuals are computed of."""

SIGMAS = 2.0
"""Standard errors by which squared residuals of the surrogate must exceed a close-up's noise."""

MOST_INPUTS = 3
"""Number of inputs up to which the features of a box resolve much more."""

TENSORS = ("bounds", "parameters", "best")


@dataclass(frozen=True)
class CloseUp:
    """A surrogate of a box, by what it follows from.

    Attributes:
        bounds: The box, ``2 x d``.
        parameters: Raw hyperparameters.
        best: Its best point, ``d``.
        n: Number of outcomes of the campaign that it was made of.
    """

    bounds: Tensor
    parameters: Tensor
    best: Tensor
    n: int

    def model(self, data: Observations) -> HSGP:
        """The surrogate of the outcomes in the box: O(n)."""
        made = _unfitted(self.bounds, data)
        vector_to_parameters(self.parameters, made.parameters())
        return made.choose_features()

    def to_lists(self) -> dict[str, Any]:
        """Plain numbers, from which `from_lists` makes the same."""
        return {"n": self.n, **{name: getattr(self, name).tolist() for name in TENSORS}}

    @classmethod
    def from_lists(cls, plain: dict[str, Any], like: Tensor) -> Self:
        """The same as before `to_lists`.

        Args:
            plain: What that gave.
            like: A tensor of the dtype and device to use.
        """
        return cls(n=plain["n"], **{name: like.new_tensor(plain[name]) for name in TENSORS})


def takes_close_ups(model: StreamingGP, data: Observations) -> bool:
    """Whether close-ups can be of use: to an `HSGP` of few inputs that learns the noise."""
    few = 1 < data.X.shape[-1] <= MOST_INPUTS
    scaled = isinstance(model.outcome_transform, Standardize)
    return isinstance(model, HSGP) and few and scaled and model.noise_mode == "learned"


@torch.no_grad()
def close_ups(
    model: StreamingGP,
    bounds: Tensor,
    data: Observations,
    best: Tensor,
    before: Sequence[CloseUp] = (),
) -> tuple[CloseUp, ...]:
    """Close-ups about the best point that resolve what is noise to the surrogate.

    In its box, squared residuals of the surrogate must be significantly larger than the noise of
    the close-up. Without earlier ones, a small box is tried only after the large one: 0.1 s where
    none is needed.

    Args:
        model: The surrogate.
        bounds: The space, ``2 x d``.
        data: All outcomes.
        best: The best point, ``d``.
        before: Earlier close-ups. Fits start from their hyperparameters, and their best points are
            preferred unless outcomes next to them are lower.
    """
    check_not_shadowed("acquisitions")
    from acquisitions import ThompsonSampling  # not at the top: it imports bo_stream

    found, width = list[CloseUp](), bounds[1] - bounds[0]
    earlier = {round(float(((own.bounds[1] - own.bounds[0]) / width)[0]), 6): own for own in before}
    for own in before:
        best = not_lower(own.best, best, data)
    for side in SIDES:
        low = (best - 0.5 * side * width).maximum(bounds[0]).minimum(bounds[1] - side * width)
        box = torch.stack([low, low + side * width])
        inside = int(_inside(box, data).sum())
        if inside < LEAST:
            continue
        every = -(-inside // COMPARED)
        some, evaluations = _unfitted(box, data, every), EVALUATIONS
        if side in earlier:
            vector_to_parameters(earlier[side].parameters, some.parameters())
            evaluations = LATER_EVALUATIONS
        with torch.enable_grad():
            some.fit(evaluations)
        error = (2.0 * every / inside) ** 0.5
        if _unresolved(model, box, data, every) > _noise(some) * (1.0 + SIGMAS * error):
            parameters = parameters_to_vector(some.parameters()).detach().clone()
            made = CloseUp(box, parameters, best, len(data.X))
            x = ThompsonSampling(made.model(data)).recommend()
            found.append(replace(made, best=x))
            best = not_lower(x, best, data)
        elif not before:
            break
    return tuple(found)


def _inside(bounds: Tensor, data: Observations) -> Tensor:
    low, high = bounds
    return ((low <= data.X) & (high >= data.X)).all(-1)


def _unfitted(bounds: Tensor, data: Observations, every: int = 1) -> HSGP:
    """A surrogate of every so many outcomes of a box, with the default hyperparameters."""
    inside = _inside(bounds, data)
    return HSGP(
        data.X[inside][::every],
        data.Y[inside][::every],
        num_features=FEATURES,
        main_effects=False,
        bounds=bounds,
        input_transform=Normalize(data.X.shape[-1], bounds=bounds),
        outcome_transform=Standardize(1),
    )


def _noise(made: HSGP) -> float:
    """The variance of a close-up's noise, in the units of the outcome."""
    scale = cast(Standardize, made.outcome_transform).stdvs
    return float(cast(Tensor, made.likelihood.noise_covar.noise) * scale.square())


def _unresolved(model: StreamingGP, bounds: Tensor, data: Observations, every: int) -> float:
    """The mean square of the surrogate's residuals at every so many outcomes of a box."""
    inside = _inside(bounds, data)
    X, Y = data.X[inside][::every], data.Y[inside][::every]
    mean = model.process().at(model.transformed(X)).mean.reshape(-1, 1)
    mean = cast(Standardize, model.outcome_transform).untransform(mean)[0]
    return float((Y - mean).square().mean())
