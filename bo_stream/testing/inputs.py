"""Contract: bad input raises an error that says so, and leaves the state bit-identical."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.sampling.normal import SobolQMCNormalSampler
from torch import Size, Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import (
    BoStreamError,
    BoundsError,
    DtypeError,
    InputError,
    NoiseError,
    ShapeError,
)
from bo_stream.testing.base import Contract, assert_same_state, snapshot

__all__ = ["InputContract"]

Batch = tuple[Tensor, Tensor, Tensor | None]


def _last(t: Tensor, value: float) -> Tensor:
    """The last row only is bad: nothing before it may be absorbed."""
    return torch.cat([t[:-1], torch.full_like(t[-1:], value)])


# name: (change of a good batch, the error). Bounds are never wider than 3.
BAD_DATA: dict[str, tuple[Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], type]] = {
    "NaN in X": (lambda X, Y: (_last(X, torch.nan), Y), InputError),
    "infinite X": (lambda X, Y: (_last(X, torch.inf), Y), InputError),
    "X outside the bounds": (lambda X, Y: (_last(X, 99.0), Y), BoundsError),
    "X below the bounds": (lambda X, Y: (_last(X, -99.0), Y), BoundsError),
    "X of another dimension": (lambda X, Y: (torch.cat([X, X], -1), Y), ShapeError),
    "one-dimensional X": (lambda X, Y: (X[0], Y[:1]), ShapeError),
    "integer X": (lambda X, Y: (torch.ones_like(X, dtype=torch.long), Y), DtypeError),
    "half-precision X": (lambda X, Y: (X.half(), Y.half()), DtypeError),
    "X of another dtype": (lambda X, Y: (X.float(), Y), DtypeError),
    "Y of another dtype": (lambda X, Y: (X, Y.float()), DtypeError),
    "NaN in Y": (lambda X, Y: (X, _last(Y, torch.nan)), InputError),
    "infinite Y": (lambda X, Y: (X, _last(Y, torch.inf)), InputError),
    "Y without output dimension": (lambda X, Y: (X, Y[:, 0]), ShapeError),
    "Y with too many outputs": (lambda X, Y: (X, torch.cat([Y, Y], -1)), ShapeError),
    "Y with too few rows": (lambda X, Y: (X, Y[:-1]), ShapeError),
    "Y with one row": (lambda X, Y: (X, Y[:1]), ShapeError),
    "Y with no rows": (lambda X, Y: (X, Y[:0]), ShapeError),
}

OF_ANOTHER_MODEL = ("X of another dimension", "one-dimensional X", "Y with too many outputs")
"""A constructor takes these, or refuses them for another reason."""

BAD_POINTS = ("NaN in X", "infinite X", "X outside the bounds", "X of another dimension")
"""No silent extrapolation: a posterior off the bounds is refused."""

BAD_NOISE: dict[str, Callable[[Tensor], Tensor]] = {
    "zero": lambda Y: _last(Y.square() + 0.1, 0.0),
    "negative": lambda Y: _last(Y.square() + 0.1, -0.1),
    "NaN": lambda Y: _last(Y.square() + 0.1, torch.nan),
    "infinite": lambda Y: _last(Y.square() + 0.1, torch.inf),
    "of another shape": lambda Y: Y[:-1].square() + 0.1,
    "one for all": lambda Y: Y[:1].square() + 0.1,
    "of another dtype": lambda Y: Y.float().square() + 0.1,
}


class InputContract(Contract):
    """`observe`, `condition_on_observations`, `posterior`, the constructor."""

    def refused(self, call: Callable[[], object], error: type, model: StreamingGP) -> None:
        """The call raises `error`, with a remedy, and leaves the model as it was."""
        before = snapshot(model)
        with pytest.raises(error, match=r"Expected .*; got .*\. .+") as caught:
            call()
        assert isinstance(caught.value, BoStreamError)
        assert_same_state(before, snapshot(model))

    @pytest.mark.parametrize("name", BAD_DATA)
    def test_bad_data(self, name: str) -> None:
        """Wherever they come in."""
        change, error = BAD_DATA[name]
        model = self.build()
        X, Y, Yvar = self.data(4, seed=9)
        X, Y = change(X, Y)
        Yvar = None if Yvar is None else torch.full_like(Y, 0.1)
        self.refused(lambda: model.observe(X, Y, Yvar), error, model)
        self.refused(lambda: model.condition_on_observations(X, Y), error, model)
        self.refused(lambda: model.log_predictive(X, Y, Yvar), error, model)
        if name not in OF_ANOTHER_MODEL:
            self.refused(lambda: self.over(X, Y, Yvar), error, model)
        if name in BAD_POINTS:
            sampler = SobolQMCNormalSampler(Size([2]))
            self.refused(lambda: model.posterior(X), error, model)
            self.refused(lambda: model.fantasize(X, sampler), error, model)

    def test_batched_data(self) -> None:
        """Refused by name: one surrogate per batch."""
        X, Y, Yvar = self.data(4)
        model = self.build()
        batched = X[None], Y[None], None if Yvar is None else Yvar[None]
        self.refused(lambda: model.observe(*batched), ShapeError, model)
        with pytest.raises(ShapeError, match="batch"):
            self.over(*batched)

    @pytest.mark.parametrize("name", BAD_NOISE)
    def test_bad_noise(self, name: str) -> None:
        X, Y, _ = self.data(4, seed=9)
        Yvar = BAD_NOISE[name](Y)
        good = self.data(6)
        model = self.plain(*good[:2], torch.full_like(good[1], 0.1), bounds=self.bounds)
        self.refused(lambda: model.observe(X, Y, Yvar), InputError, model)
        with pytest.raises(InputError):
            self.plain(X, Y, Yvar, bounds=self.bounds)

    def test_bad_noise_of_conditioning(self) -> None:
        model = self.build()
        X, Y, _ = self.data(4, seed=9)
        bad = _last(torch.full_like(Y, 0.1), -0.1)
        for noise in (bad, bad[:3], bad.expand(4, 2)):
            condition = functools.partial(model.condition_on_observations, X, Y, noise=noise)
            self.refused(condition, InputError, model)

    def test_noise_that_is_missing_or_not_wanted(self) -> None:
        X, Y, Yvar = self.data(4, seed=9)
        model = self.build()
        wrong = torch.full_like(Y, 0.1) if Yvar is None else None
        self.refused(lambda: model.observe(X, Y, wrong), NoiseError, model)

    def test_bounds_themselves(self) -> None:
        """Candidates sit at bounds: points there are fine, also a rounding error outside."""
        model = self.build()
        corners = torch.stack([self.bounds[0], self.bounds[1]])
        width = self.bounds[1] - self.bounds[0]
        just_outside = torch.stack([self.bounds[0] - 1e-9 * width, self.bounds[1] + 1e-9 * width])
        for X in (corners, just_outside):
            assert model.posterior(X).mean.isfinite().all()
            model.condition_on_observations(X, torch.zeros(2, 1, dtype=self.dtype))

    @pytest.mark.parametrize("bad", ["shape", "order", "NaN"])
    def test_bad_bounds(self, bad: str) -> None:
        bounds = {
            "shape": self.bounds[:, :1].expand(2, self.dim + 1),
            "order": self.bounds.flip(0),
            "NaN": self.bounds * torch.nan,
        }[bad]
        with pytest.raises(InputError):
            self.plain(*self.data(4), bounds=bounds)

    @pytest.mark.parametrize("which, kind", [("X", "arrays"), ("Y", "lists"), ("Yvar", "arrays")])
    def test_what_is_not_a_tensor(self, which: str, kind: str) -> None:
        """Refused by name wherever data come in, with the way to convert them."""
        model, sampler = self.build(), SobolQMCNormalSampler(Size([2]))
        batch: dict[str, Any] = dict(zip(("X", "Y", "Yvar"), self.data(4, seed=9), strict=True))
        if batch["Yvar"] is None and which == "Yvar":
            batch["Yvar"] = torch.full_like(batch["Y"], 0.1)
        good = dict(batch)
        batch[which] = batch[which].numpy() if kind == "arrays" else batch[which].tolist()
        calls: list[Callable[[], object]] = [
            lambda: model.observe(**batch),
            lambda: model.log_predictive(**batch),
            lambda: self.plain(*batch.values(), bounds=self.bounds),
            lambda: model.condition_on_observations(
                batch["X"], batch["Y"], noise=batch["Yvar"] if which == "Yvar" else None
            ),
        ]
        given = model.condition_on_observations(self.points(3, 4), good["Y"].expand(3, 4, 1))
        calls.append(lambda: given.condition_on_observations(batch["X"], batch["Y"], batch["Yvar"]))
        if which == "X":
            for m in (model, given):
                calls.append(functools.partial(m.posterior, batch["X"]))
                calls.append(functools.partial(m.fantasize, batch["X"], sampler))
        if which == "Y":
            calls.append(lambda: model.restandardise(batch["Y"]))
        if which == "Yvar":
            noise = {"observation_noise": batch["Yvar"]}
            calls.append(lambda: model.posterior(good["X"], **noise))
            calls.append(lambda: model.fantasize(good["X"], sampler, **noise))
        for call in calls:
            self.refused(call, DtypeError, model)

    def test_variances_of_another_dtype(self) -> None:
        X, Y, _ = self.data(4, seed=9)
        Yvar = torch.full_like(Y, 0.1)
        model = self.plain(X, Y, Yvar, bounds=self.bounds)
        for bad in (Yvar.float(), Yvar.long() + 1):
            self.refused(functools.partial(model.observe, X, Y, bad), DtypeError, model)
            self.refused(functools.partial(model.log_predictive, X, Y, bad), DtypeError, model)
            with pytest.raises(DtypeError, match="Yvar"):
                self.plain(X, Y, bad, bounds=self.bounds)

    def test_unknown_arguments_of_conditioning(self) -> None:
        model = self.build()
        X, Y, _ = self.data(4, seed=9)
        with pytest.raises(BoStreamError, match="unknown"):
            model.condition_on_observations(X, Y, something=1)
