"""Several kernels on one state: the hyperparameters that the data leave possible.

With few observations the hyperparameters are uncertain, and decisions under the best ones are too
confident. An ensemble holds the fitted kernel and draws from the Laplace approximation of the
hyperparameters' posterior about it, weighted by importance [MATHS 12.3]. Observations do not depend
on hyperparameters, and neither do sums over them: the kernels share one state, and each costs one
posterior.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bo_stream.base.fitting import (
    AscentObjective,
    Coordinates,
    Evaluated,
    objective_of,
    profiled_mean,
)
from bo_stream.base.stream import Derived, exclusive
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError, UnsupportedError, whole_number
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["KernelEnsemble"]


PARTS = ("coordinates", "means", "weights")
STEP = 1e-3
"""Step of the differences of gradients, in logarithms of hyperparameters."""
FLATTEST = 0.4
"""Least curvature of the Laplace approximation: draws have at most this to the power -1/2 as
standard deviation in any direction."""
LIGHTEST = 0.01
"""Share of the weight below which a kernel is left out."""


@dataclass(frozen=True)
class KernelEnsemble:
    """Hyperparameters of several kernels for one surrogate, with weights.

    Attributes:
        coordinates: Hyperparameters as a fit sees them (logarithms of positive ones), ``K x p``;
            those of the fitted kernel first.
        means: Constant prior means, ``K x o``; ``K x 0`` where a fit does not profile them out.
        weights: ``K``, adding up to one.

    Example:
        >>> from bo_stream import HSGP
        >>> X = torch.rand(30, 2, dtype=torch.double)
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = HSGP(X, X.sum(-1, keepdim=True).sin(), bounds=box, num_features=32)
        >>> ensemble = KernelEnsemble.around(model, size=4, seed=0)
        >>> len(ensemble.processes(model)) == len(ensemble.weights) <= 4
        True
    """

    coordinates: Tensor
    means: Tensor
    weights: Tensor
    _processes: Derived[list[PosteriorProcess]] = field(
        default_factory=Derived, repr=False, compare=False
    )

    @staticmethod
    def serves(model: object) -> bool:
        """Whether a surrogate's state is independent of hyperparameters.

        That of `WISKI`, `HSGP` and `ProjectedWISKI` is a sum over observations, that of `ExactGP`
        and `WarpedGP` the observations themselves. The outcome warp is the same for all kernels.
        """
        return isinstance(model, StreamingGP) and (
            model.promises.additive or model.promises.keeps_data
        )

    @classmethod
    def around(
        cls,
        model: StreamingGP,
        size: int = 6,
        seed: int | None = None,
    ) -> KernelEnsemble:
        """An ensemble about the current hyperparameters, which should be fitted ones.

        The precision of the draws is minus the Hessian of the fit's objective (evidence plus log
        priors), from differences of its gradient. A draw u at a distance z in its standard
        deviations has weight ``min(1, p(u)/p(u_0) exp(|z|^2/2))``, relative to the fitted kernel:
        no draw outweighs the kernel that it was drawn about. Kernels of less than a hundredth of
        the weight are left out. Costs p + size evaluations of objective and gradient. The
        surrogate is unchanged.

        Args:
            model: A surrogate that `serves`.
            size: Number of kernels at most.
            seed: Seed of the draws; by default they come from torch's global generator.

        Raises:
            UnsupportedError: for a family whose state depends on hyperparameters.
            InputError: for a size below 1.
        """
        whole_number("size", size, 1)
        if not cls.serves(model):
            raise UnsupportedError(
                "a surrogate whose state is a sum over observations, or these (WISKI, ExactGP)",
                f"{type(model).__name__}, whose state depends on its hyperparameters",
                "Leave the ensemble out, or use one of those families.",
            )
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return cls(*_drawn(_with_same_state(model), size, generator))

    def processes(self, model: StreamingGP) -> list[PosteriorProcess]:
        """The posterior process under each kernel, for the surrogate's current state.

        They are kept until its data change. Each costs what the family's first posterior costs.
        Where one cannot be computed, the surrogate's own takes its place, with a warning.

        Raises:
            StateError: for a surrogate of other hyperparameters.
        """
        return self._processes.made(model._key(), lambda: self._build(model))

    @torch.no_grad()
    def _build(self, model: StreamingGP) -> list[PosteriorProcess]:
        copied = _with_same_state(model)
        coordinates = Coordinates(copied, profiled_mean(copied))
        if self.coordinates.shape[-1] != coordinates.lower.numel():
            raise StateError(
                f"a surrogate of {self.coordinates.shape[-1]} free hyperparameters",
                f"one of {coordinates.lower.numel()}",
                "Use an ensemble with the surrogate that it was drawn for.",
            )
        made = []
        for u, mean in zip(self.coordinates, self.means, strict=True):
            coordinates.set(u)
            if len(mean):
                copied._set_prior_mean(mean)
            try:
                made.append(copied._build_process(copied.state))
            except (StateError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                text = f"The surrogate's own kernel replaces one of an ensemble: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=3)
                made.append(model.process())
        return made

    def counts(self, samples: int) -> list[int]:
        """The share of each kernel in a number of samples, in proportion to the weights.

        Shares are rounded at random, so that each is right on average.
        """
        edges = samples * self.weights.cumsum(0) + torch.rand((), dtype=self.weights.dtype)
        edges = edges.floor().long().clamp_max(samples)
        edges[-1] = samples
        return edges.diff(prepend=edges.new_zeros(1)).tolist()

    # -- snapshots -------------------------------------------------------------------------------

    def to_lists(self) -> dict[str, list[Any]]:
        """Plain lists, from which `from_lists` makes an equal ensemble."""
        return {name: getattr(self, name).tolist() for name in PARTS}

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[Any]]) -> KernelEnsemble:
        """An ensemble from what `to_lists` gave."""
        coordinates, means, weights = (torch.tensor(lists[n], dtype=torch.float64) for n in PARTS)
        return cls(coordinates, means, weights)


@exclusive
@lasting
def _with_same_state(model: StreamingGP) -> StreamingGP:
    """A copy that shares the buffers of the state, which are replaced and never changed."""
    return copy.deepcopy(model, {id(model.stream): model.stream})


@torch.inference_mode(False)
def _drawn(
    model: StreamingGP, size: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates, means and weights about a surrogate's hyperparameters, which are changed."""
    objective = objective_of(model)
    start = objective.start()
    precision, V = torch.linalg.eigh(_curvature(objective, start))
    root = precision.clamp_min(FLATTEST).sqrt()
    z = torch.randn(size - 1, len(start.u), generator=generator, dtype=torch.float64)
    draws = [objective.evaluate(objective.coordinates.clip(start.u + V @ (e / root))) for e in z]
    logs = start.u.new_zeros(len(draws))
    for i, each in enumerate(draws):
        distance = (root * (V.mT @ (each.u - start.u))).square().sum()
        logs[i] = each.value - start.value + 0.5 * distance
    weights = torch.cat([logs.new_ones(1), logs.clamp_max(0.0).exp()])
    weights = weights / weights.sum()
    kept = [i for i, weight in enumerate(weights.tolist()) if weight >= LIGHTEST]
    members, weights = [[start, *draws][i] for i in kept], weights[kept]
    means = [start.u.new_empty(0) if each.mean is None else each.mean.cpu() for each in members]
    return torch.stack([each.u for each in members]), torch.stack(means), weights / weights.sum()


def _curvature(objective: AscentObjective, start: Evaluated) -> Tensor:
    """Minus the Hessian, from differences of gradients towards the inside of the bounds."""
    H = start.u.new_zeros(len(start.u), len(start.u))
    inside = start.u + STEP <= objective.coordinates.upper
    for i, step in enumerate(torch.where(inside, STEP, -STEP).tolist()):
        there = start.u.clone()
        there[i] += step
        found = objective.evaluate(there)
        if found.value > -torch.inf:
            H[i] = (start.gradient - found.gradient) / step
    return 0.5 * (H + H.mT)
