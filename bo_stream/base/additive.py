"""Families whose state is a sum over observations (MATHS 2.2): `merge` and `forget`."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from bo_stream.base.changes import all_or_nothing
from bo_stream.base.hyperparameter_key import settings_of
from bo_stream.errors import InputError, NoiseError, StateError, UnsupportedError
from bo_stream.mathematics.shapes import moved

__all__ = ["check_noise", "forget", "merge"]

LEAST_NOISE = 1e-12
"""Smallest noise variance that float64 sums can hold, as a share of the prior variance."""


def check_noise(model: Any, X: Tensor, R: Tensor) -> None:
    """Refuse known noise (``o x n``) too small for float64 sums.

    Raises:
        NoiseError: if a variance is below 1e-12 of the prior variance at its point.
    """
    if model.noise_mode == "learned":
        return
    prior = model.covar_module(X[:1], diag=True).detach().double().reshape(-1, 1)
    least = LEAST_NOISE * prior / model._noise_scale().detach().unsqueeze(-1)
    if bool((least > R).any()):
        raise NoiseError(
            f"noise variances of at least {LEAST_NOISE:g} of the prior variance",
            f"{float((R / least).min()) * LEAST_NOISE:.1e} of it",
            "Put a floor under Yvar: sums in float64 cannot tell it from zero.",
        )


def check_additive(model: Any, what: str) -> None:
    """Refuse operations that need additive statistics.

    Raises:
        UnsupportedError: if the family's state is not a sum over observations.
    """
    if not model.promises.additive:
        raise UnsupportedError(
            "a family of additive statistics (WISKI, HSGP)",
            f"{type(model).__name__}, which cannot {what}",
            "Use one of those, or rebuild this one on the data to keep.",
        )


def forget(model: Any, factor: Any) -> None:
    """Down-weight all observations by ``factor``; see `StreamingGP.forget`."""
    number = isinstance(factor, Real) and not isinstance(factor, bool)
    if not number or not 0.0 < float(factor) <= 1.0:
        raise InputError(
            "a factor above 0 and at most 1",
            repr(factor),
            "Give the weight of past observations from now on, say 0.99.",
        )
    check_additive(model, "forget")
    _discount(model, float(factor))


@all_or_nothing
def _discount(model: Any, factor: float) -> None:
    model._replace(state=model.state.discounted(factor))


def merge(model: Any, other: Any) -> None:
    """Add another stream's observations; see `StreamingGP.merge`."""
    check_additive(model, "merge")
    mine, alike = model._layout(), isinstance(other, type(model))
    theirs = other._layout() if alike else None
    if mine != theirs:
        raise StateError(
            f"a {type(model).__name__} of {mine}",
            f"{theirs or type(other).__name__}",
            "Build both streams with the same bounds, options and noise model.",
        )
    for name in ("input_transform", "outcome_transform"):
        if not _equal(getattr(model, name, None), getattr(other, name, None)):
            raise StateError(
                f"equal {name}s",
                "different ones",
                "Hand both streams one transform in eval mode.",
            )
    _add(model, other)


@all_or_nothing
def _add(model: Any, other: Any) -> None:
    stream = model.stream.contents
    theirs = moved(other.stream.contents, stream.count.device)
    n, others = int(stream.count), int(theirs.count)
    model._replace(
        state=stream.state.merged_at(theirs.state, n, others),
        count=stream.count + others,
        noise_sum=stream.noise_sum + theirs.noise_sum,
    )


def _equal(a: nn.Module | None, b: nn.Module | None) -> bool:
    """Whether two frozen transforms are equal: classes, settings and values."""
    parts = [[] if t is None else list(t.modules()) for t in (a, b)]
    mine, theirs = ([(type(part), settings_of(part)) for part in own] for own in parts)
    if a is None or b is None or mine != theirs:
        return a is b
    values, others = a.state_dict(), b.state_dict()
    return values.keys() == others.keys() and all(
        torch.equal(value.cpu(), others[name].cpu()) for name, value in values.items()
    )
