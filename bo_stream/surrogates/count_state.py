"""The state of a surrogate of counts: targets in a surrogate, outcomes held beside it."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self, cast

import torch
from torch import Tensor

from bo_stream.base import checkpoint
from bo_stream.base.composite import CompositeModel, align, empty_like
from bo_stream.base.stream import StreamBuffers, all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import StateError
from bo_stream.likelihoods import Likelihood
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.shapes import nested, shaped, tensors_of, with_tensors
from bo_stream.mathematics.sites.held import HeldOutcomes
from bo_stream.surrogates.exact import ExactGP
from bo_stream.surrogates.hsgp import HSGP
from bo_stream.surrogates.node_wiski import NodeWISKI
from bo_stream.surrogates.wiski import WISKI

__all__ = ["CountState", "SiteStream"]


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


class SiteStream(CompositeModel):
    """A surrogate of latent values with the state of its outcomes' sites.

    All parts share one lock and change together.

    Attributes:
        model: The surrogate of the latent value f, of known noise.
        frozen: The targets in it that are not held, for families of additive statistics; or None.
        likelihood: The likelihood of the outcomes.
        counts: The state beside the surrogate.
    """

    frozen: StreamingGP | None
    likelihood: Likelihood
    counts: StreamBuffers
    opening: int

    def _hold(
        self,
        model: StreamingGP,
        frozen: StreamingGP | None,
        likelihood: Likelihood,
        opening: int,
        state: CountState,
    ) -> None:
        """Set the parts."""
        self.model, self.frozen, self.likelihood, self.opening = model, frozen, likelihood, opening
        self.counts = StreamBuffers(cast(Any, state))
        self._share_lock()

    def _streams(self) -> list[StreamingGP]:
        return [self.model, *([] if self.frozen is None else [self.frozen])]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move everything; the state is never cast."""
        device = fn(self.model._interface).device
        kept = {id(buffer) for buffer in self.counts.buffers()}
        return super()._apply(lambda t: t.to(device) if id(t) in kept else fn(t), recurse)

    @property
    def _state(self) -> CountState:
        """The state beside the surrogate."""
        return cast(CountState, self.counts.contents)

    def _change(self, **changes: Any) -> None:
        """Replace parts of the state beside the surrogate."""
        self._lock.on_failure(partial(setattr, self, "counts", self.counts))
        self.counts = self.counts.replaced(**changes)

    @property
    def promises(self) -> Promises:
        """The guarantees of the surrogate, for one output. The order of the outcomes matters a
        little, and outcomes are held beside it.
        """
        changed = {"order_invariant": False, "bytes_constant": False, "multi_output": False}
        return replace(self.model.promises, **changed)

    # -- the surrogate's targets -----------------------------------------------------------------

    def _most_held(self) -> int:
        """Number of outcomes that may be held."""
        if isinstance(self.model, ExactGP):
            return 2**62
        return max(1, self.opening) if isinstance(self.model, WISKI | HSGP | NodeWISKI) else 0

    def _absorb_targets(
        self, model: StreamingGP, outcomes: HeldOutcomes, *, same_features: bool = False
    ) -> None:
        targets, noise = outcomes.targets.unsqueeze(0), outcomes.D.unsqueeze(0)
        model._absorb_transformed(outcomes.X, targets, noise, same_features=same_features)

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
            self._absorb_targets(self._frozen_stream(), outcomes, same_features=True)

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
        self._absorb_targets(model, self._state.held, same_features=sums)
        if self.frozen is not None:
            model.merge(self.frozen)

    def _move_prior_mean(self, value: Tensor) -> None:
        before = self.model._prior_mean().detach().clone()
        self._lock.on_failure(partial(self.model._set_prior_mean, before))
        self.model._set_prior_mean(value.detach().reshape(1))

    # -- latent values ---------------------------------------------------------------------------

    @property
    def num_observed(self) -> int:
        """Number of outcomes absorbed."""
        return int(self.counts.count)

    @property
    def nugget(self) -> float:
        """The variance of the nugget, on the latent scale."""
        return float(self._state.nugget)

    @property
    def state_bytes(self) -> int:
        """Size in bytes of all state buffers."""
        return super().state_bytes + sum(b.nbytes for b in self.counts.buffers())

    # -- saving ----------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        return {
            **self._shared_arguments("X"),
            "k": torch.empty(0),
            "likelihood": self.likelihood,
            "opening": self.opening,
        }

    def _kind(self) -> dict[str, Any]:
        return {"name": type(self.likelihood).__name__, **asdict(self.likelihood)}

    def _header(self) -> dict[str, Any]:
        return {"class": type(self).__name__, "likelihood": self._kind()}

    @lasting
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load hyperparameters with the nugget and, if it has no data, everything.

        As in `StreamingGP.load_state_dict`. Held targets are chosen again under what was loaded. On
        an error nothing changes.

        Raises:
            StateError: if the saved state does not match this surrogate.
        """
        partial_state = checkpoint.EXTRA not in state_dict and not strict
        header = checkpoint.unpacked(state_dict.get(checkpoint.EXTRA))
        mine = checkpoint.unpacked(self.get_extra_state())
        if header != mine and not partial_state:
            raise StateError(f"the state of {mine}", repr(header), "Build it alike.")
        own: dict[str, dict[str, Any]] = {"model": {}, "frozen": {}, "counts": {}}
        for name, value in state_dict.items():
            part, _, rest = name.partition(".")
            own.get(part, {})[rest] = value
        if self.num_observed or partial_state:
            return self._load_hyperparameters(own["model"], own["counts"].get("nugget"), strict)
        model, frozen = copy.deepcopy(self.model), None
        model.load_state_dict(own["model"], strict, assign=assign)
        if own["frozen"]:
            frozen = empty_like(model, 1, model.covar_module)
            frozen.load_state_dict(own["frozen"], strict, assign=assign)
        tensors = {name: value.clone() for name, value in own["counts"].items()}
        self._become(model, frozen, with_tensors(self._state, tensors))

    @all_or_nothing
    def _load_hyperparameters(
        self, state: Mapping[str, Any], nugget: Tensor | None, strict: bool
    ) -> Any:
        before = [t.detach().clone() for t in (*self.model.parameters(), self._state.nugget)]
        result = self.model.load_state_dict(state, strict)
        if nugget is not None and self.likelihood.nugget == "learn":
            self._change(nugget=nugget.to(self._state.nugget, copy=True))
        if not all(map(torch.equal, (*self.model.parameters(), self._state.nugget), before)):
            self._hyperparameters_loaded()
        return result

    @abstractmethod
    def _hyperparameters_loaded(self) -> None:
        """Choose the held targets again."""

    @all_or_nothing
    def _become(self, model: StreamingGP, frozen: StreamingGP | None, state: CountState) -> None:
        """Replace the parts; on failure the old ones are restored."""
        rest = (self.likelihood, self.opening)
        self._lock.on_failure(partial(self._hold, self.model, self.frozen, *rest, self._state))
        self._hold(model, frozen, *rest, state)
