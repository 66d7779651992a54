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
from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from torch import Size, Tensor, nn

from bo_stream.base.fitting import (
    AscentObjective,
    Coordinates,
    Evaluated,
    objective_of,
    profiled_mean,
)
from bo_stream.base.gaussian_model import ScaleFreeNormal
from bo_stream.base.options import whole_number
from bo_stream.base.stream import Derived, exclusive
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.autograd import lasting
from bo_stream.mathematics.process import PosteriorProcess

__all__ = [
    "EnsembleModel",
    "KernelEnsemble",
]


class EnsembleModel(Model):
    """A mixture of surrogates of one output, over whose members BoTorch's acquisitions average.

    BoTorch's mixtures have equal weights: a member of larger weight occurs several times.

    Args:
        members: Surrogates, frozen.
        counts: How often each occurs.
    """

    _is_ensemble = True
    places: Tensor

    def __init__(self, members: Sequence[StreamingGP], counts: Sequence[int]) -> None:
        super().__init__()
        if members[0].num_outputs != 1:
            raise UnsupportedError(
                "a surrogate of one output", f"{members[0].num_outputs}", "Select one output."
            )
        self.members = nn.ModuleList(members)
        self.register_buffer(
            "places", torch.arange(len(counts)).repeat_interleave(torch.tensor(list(counts)))
        )

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @property
    def batch_shape(self) -> Size:
        """The number of members, as often as they occur."""
        return self.places.shape

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """The posterior mixture at raw points ``batch_shape x q x d``, members as dimension -3."""
        parts = [
            cast(GPyTorchPosterior, member.posterior(X, output_indices, observation_noise))
            for member in cast("Sequence[StreamingGP]", self.members)
        ]
        means = torch.stack([part.distribution.mean for part in parts], -2)
        covariances = torch.stack([part.distribution.covariance_matrix for part in parts], -3)
        posterior = GaussianMixturePosterior(
            ScaleFreeNormal(means[..., self.places, :], covariances[..., self.places, :, :])
        )
        return posterior if posterior_transform is None else posterior_transform(posterior, X=X)


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
    def serves(model: Any) -> bool:
        """Whether a surrogate's state is independent of hyperparameters.

        That of `WISKI`, `HSGP` and `ProjectedWISKI` is a sum over observations, that of `ExactGP`
        and `WarpedGP` the observations themselves. The outcome warp is the same for all kernels.
        """
        return isinstance(model, StreamingGP) and model.promises.serves_kernels

    @classmethod
    def around(
        cls,
        model: StreamingGP,
        size: int = 6,
        seed: int | None = None,
        generator: torch.Generator | None = None,
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
            seed: Seed of the draws.
            generator: Their generator, instead of a seed; by default torch's global one.

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
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
        return cls(*_drawn(_Worker(model), size, generator))

    @property
    def size(self) -> int:
        """The number of kernels."""
        return len(self.weights)

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
        worker = _Worker(model)
        if self.coordinates.shape[-1] != worker.coordinates.lower.numel():
            raise StateError(
                f"a surrogate of {self.coordinates.shape[-1]} free hyperparameters",
                f"one of {worker.coordinates.lower.numel()}",
                "Use an ensemble with the surrogate that it was drawn for.",
            )
        made = []
        for u, mean in zip(self.coordinates, self.means, strict=True):
            try:
                made.append(worker.process(u, mean))
            except (StateError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                text = f"The surrogate's own kernel replaces one of an ensemble: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=3)
                made.append(model.process())
        return made

    @lasting
    def model(self, model: StreamingGP, members: int = 16) -> EnsembleModel:
        """The mixture of the current posteriors, for BoTorch's acquisition functions.

        These average their value over the members. Later data are not seen.

        Args:
            model: The surrogate.
            members: Number of members of equal weight, among which each kernel occurs in
                proportion to its weight.

        Raises:
            UnsupportedError: for several outputs, or an outcome transform that is not linear.
        """
        workers = [_Worker(model) for _ in range(self.size)]
        for worker, u, mean in zip(workers, self.coordinates, self.means, strict=True):
            worker.process(u, mean)
        return EnsembleModel([worker.model for worker in workers], self.counts(members))

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
        names = ("coordinates", "means", "weights")
        return {name: getattr(self, name).tolist() for name in names}

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[Any]]) -> KernelEnsemble:
        """An ensemble from what `to_lists` gave.

        Raises:
            StateError: for other contents.
        """
        names = ("coordinates", "means", "weights")
        try:
            parts = [torch.tensor(lists[name], dtype=torch.float64) for name in names]
            (members, _), (alike, _), (weighted,) = (part.shape for part in parts)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                "lists that `to_lists` gave", f"{error!r}", "They are damaged."
            ) from error
        if not members == alike == weighted > 0:
            got = ", ".join(str(tuple(part.shape)) for part in parts)
            raise StateError("K x p, K x o and K numbers", got, "They are damaged.")
        coordinates, means, weights = parts
        return cls(coordinates, means, weights)


class _Worker:
    """A copy of a surrogate with hyperparameters of its own and the same state."""

    def __init__(self, model: StreamingGP) -> None:
        self.model = _with_same_state(model)
        self.coordinates = Coordinates(self.model, profiled_mean(self.model))

    def process(self, u: Tensor, mean: Tensor) -> PosteriorProcess:
        """The posterior process under some hyperparameters."""
        self.coordinates.set(u)
        if len(mean):
            self.model._set_prior_mean(mean)
        return self.model._build_process(self.model.state)


@exclusive
@lasting
def _with_same_state(model: StreamingGP) -> StreamingGP:
    """A copy that shares the buffers of the state, which are replaced and never changed."""
    return copy.deepcopy(model, {id(model.stream): model.stream})


@torch.inference_mode(False)
def _drawn(
    worker: _Worker, size: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates, means and weights of an ensemble about a worker's hyperparameters."""
    objective = objective_of(worker.model)
    start = objective.start()
    precision, V = torch.linalg.eigh(_curvature(objective, start))
    root = precision.clamp_min(FLATTEST).sqrt()
    z = torch.randn(size - 1, len(start.u), generator=generator, dtype=torch.float64)
    draws = [objective.evaluate(objective.coordinates.clip(start.u + V @ (e / root))) for e in z]
    logs = start.u.new_tensor([each.value - start.value for each in draws])
    for i, each in enumerate(draws):
        logs[i] += 0.5 * (root * (V.mT @ (each.u - start.u))).square().sum()
    weights = torch.cat([logs.new_ones(1), logs.clamp_max(0.0).exp()])
    weights = weights / weights.sum()
    kept = [i for i, weight in enumerate(weights.tolist()) if weight >= LIGHTEST]
    members, weights = [[start, *draws][i] for i in kept], weights[kept]
    means = [start.u.new_empty(0) if each.mean is None else each.mean.cpu() for each in members]
    return torch.stack([each.u for each in members]), torch.stack(means), weights / weights.sum()


def _curvature(objective: AscentObjective, start: Evaluated) -> Tensor:
    """Minus the Hessian, from differences of gradients towards the inside of the bounds."""
    rows = []
    for i in range(len(start.u)):
        there = start.u.clone()
        inside = float(there[i]) + STEP <= float(objective.coordinates.upper[i])
        step = STEP if inside else -STEP
        there[i] += step
        found = objective.evaluate(there)
        row = (start.gradient - found.gradient) / step
        rows.append(row if found.value > -torch.inf else torch.zeros_like(row))
    H = torch.stack(rows) if rows else start.u.new_zeros(0, 0)
    return 0.5 * (H + H.mT)
