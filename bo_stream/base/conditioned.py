"""Models that result from conditioning and fantasizing: frozen snapshots behind BoTorch's API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast

import torch
from botorch.models.transforms.outcome import Standardize
from torch import Size, Tensor

from bo_stream.base.botorch_model import BoTorchModel
from bo_stream.base.posterior_snapshot import PosteriorSnapshot
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.conditioned import ConditionedProcess, SubsetProcess
from bo_stream.mathematics.lasting import lasting
from bo_stream.mathematics.process import PosteriorProcess

__all__ = [
    "ConditionedPosterior",
    "conditioned",
    "shift_and_scale",
    "standardised",
    "subset",
]


_EMPTY = Size()


class ConditionedPosterior(BoTorchModel):
    """A surrogate's posterior given more (real or fantasized) data.

    It is a frozen snapshot: later changes of the surrogate do not affect it, and it learns nothing.
    BoTorch can condition and fantasize on it again. Shapes and scales are those of the surrogate;
    `batch_shape` is ``fantasies x batch``.
    """

    def __init__(
        self,
        parent: BoTorchModel,
        snapshot: PosteriorSnapshot,
        batch_shape: Size = _EMPTY,
        outputs: list[int] | None = None,
    ) -> None:
        m = parent.num_outputs if outputs is None else len(outputs)
        inputs, outcomes = getattr(parent, "input_transform", None), snapshot.outcome_transform
        super().__init__((parent._dim, m), parent._interface, parent.bounds, inputs, outcomes)
        self._frozen, self._batch_shape = snapshot, batch_shape
        self.likelihood = parent.likelihood
        self.training = False

    @property
    def batch_shape(self) -> Size:
        """Batch shape of the conditioning data: ``fantasies x batch``."""
        return self._batch_shape

    def subset_output(self, idcs: list[int]) -> BoTorchModel:
        """Select outputs; selecting all returns the conditioned posterior itself."""
        return subset(self, idcs)

    def _snapshot(self) -> PosteriorSnapshot:
        return self._frozen

    def _given(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> ConditionedPosterior:
        return conditioned(self, X, Y, noise)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast the interface (BoTorch calls ``.to(X)`` freely); the process is not moved."""
        interface = self._interface
        moved = fn(interface)
        if moved.device != interface.device:
            raise UnsupportedError(
                f"a conditioned posterior to stay on {interface.device}, where its surrogate was",
                f"a move to {moved.device}",
                "Move the surrogate, then condition or fantasize again.",
            )
        self._interface = moved
        return self


@lasting
def conditioned(
    parent: BoTorchModel, X: Tensor, Y: Tensor, noise: Tensor | None
) -> ConditionedPosterior:
    """Condition the parent on ``Y`` at transformed ``X``, in addition to earlier conditioning.

    Args:
        parent: A surrogate or a conditioned posterior.
        X: ``batch x n x d``.
        Y: ``batch' x o x n``, ``batch'`` broadcasting against ``batch``.
        noise: ``... x o x n``; None: the typical noise.
    """
    snapshot = parent._snapshot()
    noise = snapshot.typical_noise().unsqueeze(-1) if noise is None else noise
    X, Y = X.clone(), Y.clone()  # the caller may reuse its tensors
    noise = noise.expand(torch.broadcast_shapes(noise.shape, Y.shape[-2:])).clone()
    process = _process_given(snapshot.process, X, Y, noise)
    batch = torch.broadcast_shapes(*(t.shape[:-2] for t in (process.X, process.Y, process.noise)))
    return ConditionedPosterior(parent, replace(snapshot, process=process), batch)


def _process_given(
    base: PosteriorProcess, X: Tensor, Y: Tensor, noise: Tensor
) -> ConditionedProcess:
    """A process given data.

    The factor of data without batch or graph is computed here, once. Later data extend it, or are
    conditioned on in a second step if they have a batch or a graph.
    """
    plain = not any(t.ndim > 2 or t.requires_grad for t in (X, Y, noise))
    fixed = not isinstance(base, ConditionedProcess) or base.factors is not None
    if plain and fixed:
        try:
            return ConditionedProcess.observed(base, X, Y, noise)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            pass  # the whole is repaired below
    elif fixed:
        return ConditionedProcess(base, X, Y, noise)
    before = cast(ConditionedProcess, base)
    X, Y = _join(before.X, X, -2), _join(before.Y, Y, -1)
    noise = _join(before.noise, noise, -1)
    return (ConditionedProcess.observed if plain and fixed else ConditionedProcess)(
        before.base, X, Y, noise
    )


def subset(parent: BoTorchModel, outputs: list[int]) -> BoTorchModel:
    """Select outputs as a snapshot; selecting all returns the model itself."""
    if list(outputs) == list(range(parent.num_outputs)):
        return parent
    snapshot = parent._snapshot()
    base = snapshot.process
    process: PosteriorProcess
    if isinstance(base, ConditionedProcess):
        Y, noise = base.Y[..., outputs, :], base.noise[..., outputs, :]
        process = _process_given(SubsetProcess(base.base, outputs), base.X, Y, noise)
    else:
        process = SubsetProcess(base, outputs)
    noise_kept = None if snapshot.noise is None else snapshot.noise[outputs]
    transform = snapshot.outcome_transform
    transform = None if transform is None else transform.subset_output(outputs)
    kept = PosteriorSnapshot(process, noise_kept, transform)
    return ConditionedPosterior(parent, kept, parent.batch_shape, outputs)


def standardised(model: Any) -> Any:
    """A surrogate's posterior as a snapshot in the units of its `Standardize`.

    Tolerances and smoothing widths of BoTorch's acquisition functions and of their optimisation
    are fixed numbers: here they mean the same for outcomes in any unit.

    Args:
        model: The surrogate. Models without a `Standardize`, and those that are no surrogates, are
            returned as they are.
    """
    if _standardisation(model) is None:
        return model
    snapshot = replace(model._snapshot(), outcome_transform=model.outcome_map(raw=False))
    return ConditionedPosterior(model, snapshot, model.batch_shape)


def shift_and_scale(model: Any) -> tuple[float, float]:
    """Shift and scale from the units of `standardised` to raw ones, of one outcome."""
    transform = _standardisation(model)
    if transform is None or transform.stdvs.numel() > 1:
        return 0.0, 1.0
    return float(transform.means), float(transform.stdvs)


def _standardisation(model: Any) -> Standardize | None:
    transform = getattr(model, "outcome_transform", None)
    found = isinstance(model, BoTorchModel) and type(transform) is Standardize
    return cast(Standardize, transform) if found else None


def _join(first: Tensor, second: Tensor, dim: int) -> Tensor:
    """Concatenate along a trailing dimension, broadcasting batches."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat(
        [first.expand(*batch, *first.shape[-2:]), second.expand(*batch, *second.shape[-2:])], dim
    )
