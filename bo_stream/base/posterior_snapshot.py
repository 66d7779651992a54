"""Snapshots of a posterior, and a cache that conditions them on data as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from torch import Tensor

from bo_stream.base.derived import Derived, Key, Version
from bo_stream.base.noise import noise_of_an_observation
from bo_stream.errors import NoiseError
from bo_stream.mathematics.conditioned import ConditionedProcess, unconditioned
from bo_stream.mathematics.process import PosteriorProcess

__all__ = ["PosteriorCache", "PosteriorSnapshot"]


@dataclass(frozen=True)
class PosteriorSnapshot:
    """The ingredients of a posterior, independent of later changes of the surrogate.

    Attributes:
        process: The posterior process, in transformed space.
        noise: Typical noise variance (``o``), transformed; None if the noise is known and none
            was seen.
        outcome_transform: How raw outcomes became those of the process, or None.
    """

    process: PosteriorProcess
    noise: Tensor | None
    outcome_transform: OutcomeTransform | None

    def typical_noise(self) -> Tensor:
        """The typical noise variance (``o``).

        Raises:
            NoiseError: if no noise was seen.
        """
        if self.noise is None:
            raise NoiseError(
                "observations with known noise before their typical noise is used",
                "none so far",
                "Give the noise of new observations as a Tensor (`observation_noise`, `noise`).",
            )
        return self.noise


@dataclass(frozen=True)
class Absorbed:
    """Transformed data absorbed between two versions of the state."""

    since: Version
    until: Version
    batches: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @property
    def points(self) -> int:
        """Number of points."""
        return sum(len(X) for X, _, _ in self.batches)


class PosteriorCache(Derived[PosteriorSnapshot]):
    """The last snapshot of a surrogate, and the data absorbed since.

    Under unchanged hyperparameters the next posterior is the last one conditioned on these data,
    until there are too many of them for the family.
    """

    _absorbed: Absorbed | None = None

    def absorbed(
        self, since: Version, until: Version, X: Tensor, Y: Tensor, R: Tensor, most: int
    ) -> None:
        """Record data absorbed between two versions, at most ``most`` points."""
        batches: tuple[tuple[Tensor, Tensor, Tensor], ...] = ((X.clone(), Y.clone(), R.clone()),)
        if self._absorbed is not None and self._absorbed.until is since:
            since, batches = self._absorbed.since, self._absorbed.batches + batches
        made = Absorbed(since, until, batches)
        self._absorbed = made if made.points <= most else None

    def renewed(self, key: Key, model: Any) -> PosteriorSnapshot:
        """The current snapshot of a surrogate, conditioned from the last one if possible."""
        key.hyperparameters.settled()
        before, process = self.entry, None
        if before is not None and before[0].hyperparameters.equivalent(key.hyperparameters):
            process = self._conditioned(before[0].version, before[1].process, key.version, model)
        if process is None:
            process = model._build_process(model.state)
        noise = noise_of_an_observation(model)
        snapshot = PosteriorSnapshot(process, noise, model.outcome_map())
        self._absorbed = None
        return self.put(key, snapshot)

    def _conditioned(
        self, since: Version, process: PosteriorProcess, until: Version, model: Any
    ) -> PosteriorProcess | None:
        """The process of one version of the state, given what was absorbed until another."""
        if since is until:
            return process
        data = self._absorbed
        if data is None or data.since is not since or data.until is not until:
            return None
        if unconditioned(process)[1] + data.points > model.conditions_up_to:
            return None
        base = model._to_condition(process, data.points)
        if base is None:
            return None
        X, Y, R = zip(*data.batches, strict=True)
        noise = model._noise_scale().unsqueeze(-1) * torch.cat(R, -1)
        try:
            return ConditionedProcess.observed(base, torch.cat(X), torch.cat(Y, -1), noise)
        except (NoiseError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            return None

    def __deepcopy__(self, memo: dict[int, Any]) -> PosteriorCache:
        made = PosteriorCache()
        made.entry, made._absorbed = self.entry, self._absorbed
        return made
