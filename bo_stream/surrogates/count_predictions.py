"""The state of a surrogate of counts, its predictions, and its checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling.base import MCSampler
from torch import Size, Tensor, nn

from bo_stream.base import additive, checkpoint
from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.base.changes import StateLock
from bo_stream.base.stream import StreamBuffers
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.base.target_free_sums import align, empty_like
from bo_stream.likelihoods import Likelihood, named
from bo_stream.mathematics.shapes import nested, shaped, tensors_of, with_tensors
from bo_stream.mathematics.sites.batch import batch_evidence, batch_sites
from bo_stream.mathematics.sites.held import HeldOutcomes
from bo_stream.mathematics.sites.predictions import OutcomePrediction, Response
from bo_stream.mathematics.sites.quadrature import expected
from bo_stream.surrogates.exact import ExactGP
from bo_stream.surrogates.hsgp import HSGP
from bo_stream.surrogates.node_wiski import NodeWISKI
from bo_stream.surrogates.wiski import WISKI

__all__ = ["CountPredictions", "CountState"]

CHUNK = 4096
"""Points whose marginals are computed at a time."""
LEAST_VARIANCE = 1e-14


@dataclass(frozen=True)
class CountState:
    """What is kept beside the surrogate.

    Attributes:
        held: Outcomes whose sites can be computed again.
        nugget: The variance of the nugget.
        totals: Sums of outcomes and of sizes.
        count: Number of outcomes.
        late: What outcomes that are not held add to the evidence.
    """

    held: HeldOutcomes = nested()
    nugget: Tensor = shaped("", "not negative")
    totals: Tensor = shaped("2")
    count: Tensor = shaped("", "not negative")
    late: Tensor = shaped("")

    @classmethod
    def empty(cls, dim: int, like: Tensor, nugget: float) -> CountState:
        """No outcomes of ``dim`` inputs, on the device of a tensor."""
        zero = torch.zeros((), dtype=torch.float64, device=like.device)
        none = HeldOutcomes.none(dim, zero)
        return cls(none, zero + nugget, torch.stack([zero, zero]), zero.long(), zero.clone())


class CountPredictions(Model):
    """A surrogate of latent values with the state of its outcomes' sites.

    All parts share one lock and change together.

    Attributes:
        model: The surrogate of the latent value f, of known noise.
        frozen: The targets in it that are not held, for families of additive statistics; or None.
        likelihood: The likelihood of the outcomes.
        counts: The state beside the surrogate.
    """

    model: StreamingGP
    frozen: StreamingGP | None
    likelihood: Likelihood
    counts: StreamBuffers
    opening: int
    _lock: StateLock

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        checkpoint.loadable(cls)

    def _hold(
        self,
        model: StreamingGP,
        frozen: StreamingGP | None,
        likelihood: Likelihood,
        opening: int,
        state: CountState,
    ) -> None:
        """Set the parts."""
        model._lock = self._lock
        self.model, self.frozen, self.likelihood, self.opening = model, None, likelihood, opening
        if frozen is not None:
            frozen._lock = self._lock
            self.frozen = frozen
        self.counts = StreamBuffers(cast(Any, state))

    def _change(self, **changes: Any) -> None:
        """Replace parts of the state beside the surrogate."""
        self._lock.on_failure(partial(setattr, self, "counts", self.counts))
        self.counts = self.counts.replaced(**changes)

    # -- the surrogate's targets -----------------------------------------------------------------

    def _most_held(self) -> int:
        """Number of outcomes that may be held."""
        if isinstance(self.model, ExactGP):
            return 2**62
        return self.opening if isinstance(self.model, WISKI | HSGP | NodeWISKI) else 0

    def _absorb_targets(
        self, model: StreamingGP, outcomes: HeldOutcomes, *, exact: bool = False
    ) -> None:
        targets, noise = outcomes.targets.unsqueeze(0), outcomes.D.unsqueeze(0)
        model._absorb_transformed(outcomes.X, targets, noise, exact=exact)

    def _frozen_stream(self) -> StreamingGP:
        """The stream of targets that are not held, which is created if there is none."""
        if self.frozen is None:
            made = empty_like(self.model, 1, self.model.covar_module)
            align(made, self.model)
            made._lock = self._lock
            self._lock.on_failure(partial(setattr, self, "frozen", None))
            self.frozen = made
        return self.frozen

    def _freeze(self, outcomes: HeldOutcomes) -> None:
        """Keep targets that are not held for later rebuilds, if the family's state is a sum."""
        if self.model.promises.additive and self._most_held():
            self._absorb_targets(self._frozen_stream(), outcomes, exact=True)

    def _freeze_all(self) -> None:
        """Keep everything the surrogate has absorbed for later rebuilds."""
        if self._most_held():
            stream = self.model.stream.contents
            copies = {name: tensor.clone() for name, tensor in tensors_of(stream.state)}
            state = with_tensors(stream.state, copies)
            changes = {"count": stream.count, "noise_sum": stream.noise_sum}
            self._frozen_stream()._replace(state=state, **changes)

    def _rebuild(self) -> None:
        """Build the surrogate's state from the held targets and the others' sums."""
        model, sums = self.model, self.model.promises.additive
        empty = model._empty_state()
        if sums:
            empty = empty.along(model.state, 0)
        stream = model.stream.contents
        none = {"count": torch.zeros_like(stream.count), "noise_sum": 0.0 * stream.noise_sum}
        model._replace(state=empty, **none)
        self._absorb_targets(model, self.counts.contents.held, exact=sums)
        if self.frozen is not None:
            additive.merge(model, self.frozen)

    def _move_prior_mean(self, value: Tensor) -> None:
        before = self.model._prior_mean().detach().clone()
        self._lock.on_failure(partial(self.model._set_prior_mean, before))
        self.model._set_prior_mean(value.detach().reshape(1))

    # -- latent values ---------------------------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @property
    def batch_shape(self) -> Size:
        """Empty."""
        return Size()

    @property
    def num_observed(self) -> int:
        """Number of outcomes absorbed."""
        return int(self.counts.count)

    @property
    def nugget(self) -> float:
        """The variance of the nugget, on the latent scale."""
        return float(self.counts.contents.nugget)

    @property
    def state_bytes(self) -> int:
        """Size in bytes of all state buffers."""
        parts = [self.model, *([] if self.frozen is None else [self.frozen])]
        own = sum(b.numel() * b.element_size() for b in self.counts.buffers())
        return own + sum(part.state_bytes for part in parts)

    def _check_points(self, X: Tensor) -> None:
        self.model._check_points(X)

    def _joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (``n``) and covariance of g at transformed points."""
        point = self.model.process().at(X)
        S = point.covariance(point)[0]
        return point.mean[0], S + self.counts.contents.nugget * torch.eye(len(X)).to(S)

    def _marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of f at transformed points, each ``n``."""
        made = [self.model.process().at(part) for part in X.split(CHUNK)]
        v = torch.cat([point.variance()[0] for point in made]).clamp_min(LEAST_VARIANCE)
        return torch.cat([point.mean[0] for point in made]), v

    def _held_marginals(self, rows: slice = slice(None)) -> tuple[Tensor, Tensor, Tensor]:
        """Means, variances and prior variances of f at held points."""
        X = self.counts.contents.held.X[rows]
        prior = cast(Tensor, self.model.covar_module(X, diag=True)).detach().double()
        return *self._marginals(X), prior.reshape(-1)

    def _held_corrections(self, rows: slice = slice(None)) -> Tensor:
        """What held outcomes add to the evidence of their targets, 0-dim."""
        state = self.counts.contents
        if not len(state.held):
            return cast(Tensor, state.late * 0.0)
        given = (*self._held_marginals(rows), state.nugget)
        made: Tensor = state.held.part(rows).corrections(self.likelihood, *given)
        return made

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """The joint posterior of the smooth latent surface f: logits or logarithms.

        Args:
            X: ``batch_shape x q x d`` raw points.
            output_indices: ``[0]`` or None.
            observation_noise: True adds `future_noise` of an outcome of typical size. A Tensor
                ``batch_shape x q x 1`` is added as given.
            posterior_transform: Applied last.
        """
        if observation_noise is True:
            observation_noise = self.future_noise(X)
        return self.model.posterior(X, output_indices, observation_noise, posterior_transform)

    def _sized(self, size: Any, like: Tensor) -> Tensor:
        """Sizes of future outcomes; by default the mean of those seen, or one."""
        if size is None:
            count = max(1, self.num_observed)
            total = self.counts.contents.totals[1] / count
            return total if self.num_observed else torch.ones_like(total)
        return self.likelihood.read_size(size, like.new_zeros(like.shape[-2], 1))

    def future_noise(self, X: Tensor, trials: Any = None) -> Tensor:
        """The noise with which a future outcome observes f, nugget included (MATHS 11.6).

        It is differentiable in the points.

        Args:
            X: ``batch_shape x q x d`` raw points.
            trials: ``q`` trials or exposures, or one number; by default the mean of those seen.

        Returns:
            ``batch_shape x q x 1``.
        """
        size = self._sized(trials, X).unsqueeze(-1)
        point, nugget = self.model.process().at(self.model.transformed(X)), self.nugget
        variance = point.variance()[..., 0, :] + nugget

        def information(g: Tensor) -> Tensor:
            return self.likelihood.information(g, size)

        return (1.0 / expected(information, point.mean[..., 0, :], variance) + nugget).unsqueeze(-1)

    def response_weights(self, X: Tensor) -> Tensor:
        """Squared mean slopes of the response in f at ``n x d`` raw points, ``n`` (MATHS 11.6).

        As weights of `acquisitions.NIPV` on `model`, they make it the integrated variance of the
        response instead of that of the latent value.
        """
        with torch.no_grad():
            m, v = self._marginals(self.model.transformed(X))
            return expected(self.likelihood.response_slope, m, v + self.nugget).square()

    def believing(self, X: Tensor, trials: Any = None) -> BoTorchModel:
        """The latent surface given outcomes with unchanged means at ``q x d`` pending raw points.

        Args:
            X: The points.
            trials: As for `future_noise`.
        """
        with torch.no_grad():
            mean = cast(GPyTorchPosterior, self.posterior(X)).mean
            return self.model.condition_on_observations(X, mean, self.future_noise(X, trials))

    def fantasize(self, X: Tensor, sampler: MCSampler, trials: Any = None) -> BoTorchModel:
        """Sample future outcomes' targets and condition on them, with exact gradients to X.

        Args:
            X: ``batch_shape x q x d`` raw points.
            sampler: Draws the fantasies.
            trials: As for `future_noise`.
        """
        return self.model.fantasize(X, sampler, self.future_noise(X, trials))

    # -- predictions of outcomes -----------------------------------------------------------------

    def response(self, X: Tensor, *, nugget: bool = True) -> Response:
        """The prevalence, or the rate of one unit of exposure, at ``n x d`` raw points.

        Args:
            X: The points.
            nugget: True: the response *here*, at a site that may be surveyed, which has a nugget of
                its own. False: that of the *smooth surface*.
        """
        with torch.no_grad():
            m, v = self._marginals(self.model.transformed(X))
        return Response(self.likelihood, m, v + self.nugget if nugget else v)

    def predict_counts(self, X: Tensor, trials: Any = None) -> OutcomePrediction:
        """The distribution of a future outcome at each of ``n x d`` raw points.

        Args:
            X: The points.
            trials: ``n`` trials or exposures, or one number; None for ones.
        """
        size = self.likelihood.read_size(trials, X)
        here = self.response(X)
        return OutcomePrediction(self.likelihood, here.latent_mean, here.latent_variance, size)

    def log_predictive(self, X: Tensor, k: Any, trials: Any = None) -> Tensor:
        """Joint log probability of new outcomes before they are absorbed, 0-dim, by EP: O(n^3)."""
        self._check_points(X)
        y, size = self.likelihood.read(k, trials, X)
        with torch.no_grad():
            prior = self._joint(self.model._transformed(X))
            sites = batch_sites(self.likelihood, *prior, y, size)
            return batch_evidence(self.likelihood, *prior, y, size, sites)[0]

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: Any) -> None:
        """Write a checkpoint, from which `bo_stream.load` rebuilds everything."""
        checkpoint.save(self, path)

    def _parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts of a checkpoint: plain settings, and surrogates by name."""
        streams = {} if self.frozen is None else {"frozen": self.frozen}
        tensors = {k: v.detach().cpu().clone() for k, v in tensors_of(self.counts.contents)}
        settings = {"likelihood": self._kind(), "opening": self.opening, "tensors": tensors}
        return settings, {"model": self.model, **streams}

    def _kind(self) -> dict[str, Any]:
        return {"name": type(self.likelihood).__name__, **asdict(self.likelihood)}

    @classmethod
    def _of_parts(cls, settings: Mapping[str, Any], parts: Mapping[str, Any]) -> Self:
        """Build it from settings and surrogates."""
        made, model = cls.__new__(cls), parts["model"]
        nn.Module.__init__(made)
        made._lock = StateLock()
        state = with_tensors(CountState.empty(model._dim, model._like, 0.0), settings["tensors"])
        kind = named(settings["likelihood"])
        made._hold(model, parts.get("frozen"), kind, settings["opening"], state)
        made.eval()
        return made
