"""The model behind conditioning and fantasies: a snapshot that BoTorch can go on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, Self

import torch
from torch import Size, Tensor

from bo_stream.base.botorch_model import Moment, ProcessModel
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.posterior.conditioned import ConditionedProcess
from bo_stream.mathematics.posterior.process import PosteriorProcess
from bo_stream.mathematics.posterior.subset import SubsetProcess

__all__ = ["ConditionedPosterior", "conditioned", "subset"]


_EMPTY = Size()


class ConditionedPosterior(ProcessModel):
    """A surrogate's posterior given more (perhaps imagined) data; BoTorch can fantasize on it
    again.

    It is a snapshot: the surrogate it came from may observe or fit afterwards without changing it.
    It learns nothing itself: real data go to the surrogate's `observe`. Shapes and scales are those
    of the surrogate; `batch_shape` is ``fantasies x batch``.
    """

    def __init__(
        self,
        parent: ProcessModel,
        now: Moment,
        batch_shape: Size = _EMPTY,
        outputs: list[int] | None = None,
    ) -> None:
        super().__init__()
        self._frozen = now
        self._shape = batch_shape
        self._num_outputs = parent.num_outputs
        self._dim = parent._dim
        self.likelihood = parent.likelihood
        self.register_buffer("bounds", parent.bounds)
        self.register_buffer("_interface", parent.get_buffer("_interface"), persistent=False)
        if hasattr(parent, "input_transform"):
            self.input_transform = parent.input_transform
        if now.outcome_transform is not None:
            self.outcome_transform = now.outcome_transform
        if outputs is not None:
            self._num_outputs = len(outputs)
        self.training = False

    @property
    def batch_shape(self) -> Size:
        """Batch shape of the conditioning data: ``fantasies x batch``."""
        return self._shape

    def subset_output(self, idcs: list[int]) -> ConditionedPosterior:
        """Some of the outputs; all of them: the conditioned posterior itself."""
        if list(idcs) == list(range(self.num_outputs)):
            return self
        return subset(self, idcs)

    def _now(self) -> Moment:
        return self._frozen

    def _conditioned(self, X: Tensor, Y: Tensor, noise: Tensor) -> ConditionedPosterior:
        return conditioned(self, X, Y, noise)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Cast the interface (BoTorch calls ``.to(X)`` freely); the process stays where it is."""
        interface = self.get_buffer("_interface")
        moved = fn(interface)
        if moved.device != interface.device:
            raise UnsupportedError(
                f"a conditioned posterior to stay on {interface.device}, where its surrogate was",
                f"a move to {moved.device}",
                "Move the surrogate, then condition or fantasize again.",
            )
        self._buffers["_interface"] = moved
        return self

    def observe(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: see the class."""
        self._refuse("observe")

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: see the class."""
        self._refuse("fit")

    def log_evidence(self) -> NoReturn:
        """Refused: see the class."""
        self._refuse("log_evidence")

    def _refuse(self, name: str) -> NoReturn:
        raise UnsupportedError(
            f"`{name}` on a surrogate",
            "a conditioned posterior, which is a frozen snapshot",
            "Call it on the surrogate this one came from, then condition or fantasize again.",
        )


def conditioned(parent: ProcessModel, X: Tensor, Y: Tensor, noise: Tensor) -> ConditionedPosterior:
    """The parent given ``Y`` (``batch' x o x n``) at transformed ``X``, on top of what it was
    given.

    Args:
        parent: A surrogate or a conditioned posterior.
        X: ``batch x n x d``.
        Y: ``batch' x o x n``, ``batch'`` broadcasting against ``batch``.
        noise: ``... x o x n``.
    """
    now = parent._now()
    base = now.process
    X, Y = X.clone(), Y.clone()  # the caller may reuse its tensors
    noise = noise.expand(torch.broadcast_shapes(noise.shape, Y.shape[-2:])).clone()
    if isinstance(base, ConditionedProcess):
        X, Y, noise = (
            _join(base.X, X, -2),
            _join(base.Y, Y, -1),
            _join(base.noise, noise, -1),
        )
        base = base.base
    batch = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], noise.shape[:-2])
    given = replace(now, process=ConditionedProcess(base, X, Y, noise))
    return ConditionedPosterior(parent, given, batch)


def subset(parent: ProcessModel, outputs: list[int]) -> ConditionedPosterior:
    """Some of the outputs of a surrogate or conditioned posterior, as a snapshot."""
    now = parent._now()
    base = now.process
    process: PosteriorProcess
    if isinstance(base, ConditionedProcess):
        Y, noise = base.Y[..., outputs, :], base.noise[..., outputs, :]
        process = ConditionedProcess(SubsetProcess(base.base, outputs), base.X, Y, noise)
    else:
        process = SubsetProcess(base, outputs)
    noise_kept = None if now.noise is None else now.noise[outputs]
    transform = now.outcome_transform
    transform = None if transform is None else transform.subset_output(outputs)
    kept = Moment(process, noise_kept, transform)
    return ConditionedPosterior(parent, kept, parent.batch_shape, outputs)


def _join(first: Tensor, second: Tensor, dim: int) -> Tensor:
    """Concatenate along a trailing dimension, batches broadcast."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat(
        [first.expand(*batch, *first.shape[-2:]), second.expand(*batch, *second.shape[-2:])], dim
    )
