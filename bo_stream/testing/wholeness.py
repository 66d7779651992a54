"""Contract: changes are whole or not at all, and derived results never outlive what made them.

Interruptions at any line, readers in other threads, hyperparameters that change their meaning, and
saved states that were tampered with.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import bo_stream
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["WholenessContract", "interrupted", "lines_of"]

PACKAGE = str(Path(bo_stream.__file__).parent)
TESTING = str(Path(__file__).parent)


def _traced(action: Callable[[], Any], at: int | None) -> int:
    """Run under a tracer that counts the package's lines and raises `KeyboardInterrupt` at one."""
    count = 0

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == at:
                raise KeyboardInterrupt
        return local

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        return local if name.startswith(PACKAGE) and not name.startswith(TESTING) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    assert torch.is_grad_enabled(), f"gradients are off after an interruption at line {at}"
    return count


def lines_of(action: Callable[[], Any]) -> int:
    """How many of the package's lines an action runs."""
    return _traced(action, None)


def interrupted(action: Callable[[], Any], line: int) -> None:
    """Run an action that is interrupted at the given one of the package's lines."""
    _traced(action, line)


class WholenessContract(Contract):
    """Interruption, threads, meaning, tampering."""

    interruptions: int = 5

    def test_an_interrupted_observe_is_all_or_nothing(self) -> None:
        """At any line: the state is the old one or the new one, to the last bit."""
        batch = self.data(5, seed=8)
        after = self.build()
        total = lines_of(lambda: after.observe(*batch))
        draw = random.Random(0)
        for line in sorted(draw.sample(range(1, total + 1), min(total, self.interruptions))):
            model = self.build()
            model.posterior(self.points(3))
            before = snapshot(model)
            interrupted(lambda model=model: model.observe(*batch), line)  # type: ignore[misc]
            if model.num_observed == 14:
                assert_same_state(before, snapshot(model))
                model.observe(*batch)
            assert_same_state(snapshot(after), snapshot(model))
            assert_same_posterior(model, after, self.points(4), 1e-9)

    def test_an_interrupted_posterior_is_no_stale_one(self) -> None:
        batch, X = self.data(5, seed=8), self.points(4)
        after = self.build().observe(*batch)
        total = lines_of(lambda: self.build().observe(*batch).posterior(X))
        draw = random.Random(1)
        for line in sorted(draw.sample(range(1, total + 1), min(total, self.interruptions))):
            model = self.build()
            model.posterior(X)
            model.observe(*batch)
            interrupted(lambda model=model: model.posterior(X), line)  # type: ignore[misc]
            assert_same_posterior(model, after, X, 1e-9)

    def test_readers_beside_a_writer(self) -> None:
        """Each gets the old posterior or the new one, never a mixture or a stale one."""
        X, batches = self.points(6), [self.data(3, seed=s) for s in range(20, 25)]
        twin, model = self.build(), self.build()
        allowed = [twin.posterior(X).mean]
        for batch in batches:
            allowed.append(twin.observe(*batch).posterior(X).mean)
        seen: list[torch.Tensor] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    seen.append(model.posterior(X).mean.detach())
            except BaseException as error:
                errors.append(error)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        readers = [threading.Thread(target=read) for _ in range(3)]
        try:
            for reader in readers:
                reader.start()
            for batch in batches:
                model.observe(*batch)
        finally:
            done.set()
            for reader in readers:
                reader.join()
            sys.setswitchinterval(interval)
        assert not errors
        for mean in seen:
            assert min(float((mean - a).abs().max()) for a in allowed) < 1e-7
        assert_same_posterior(model, twin, X, 1e-8)

    def test_hyperparameters_that_change_their_meaning(self) -> None:
        """Constraints, settings and kernels replaced, all at equal raw values."""
        self.require(self.build(4), "takes_modules")

        def fresh(change: Callable[[Any], Any]) -> tuple[Any, Any]:
            kernels = [ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=self.dim)) for _ in range(2)]
            used, unused = (self.build(covar_module=kernel) for kernel in kernels)
            used.posterior(self.points(2))
            used.make_mll()()
            for model in (used, unused):
                change(model)
            return used, unused

        def constrain(model: StreamingGP) -> None:
            model.covar_module.register_constraint("raw_outputscale", GreaterThan(2.0))

        def set_nu(model: StreamingGP) -> None:
            model.covar_module.base_kernel.nu = 0.5

        def replace(model: StreamingGP) -> None:
            old = model.covar_module
            model.covar_module = ScaleKernel(RBFKernel(ard_num_dims=self.dim)).to(self.dtype)
            model.covar_module.load_state_dict(old.state_dict())

        for change in (constrain, set_nu, replace):
            used, unused = fresh(change)
            close(used.make_mll()(), unused.make_mll()(), 1e-9)
            assert_same_posterior(used, unused, self.points(4), 1e-8)

    def test_inference_mode_leaves_nothing_behind(self) -> None:
        """Whatever is first computed in inference mode serves gradients afterwards."""
        X, batch = self.points(2), self.data(3, seed=9)
        weights = torch.ones(2, dtype=torch.float64)
        with torch.inference_mode():
            model, built = self.build(), self.build()
            built.observe(*(None if part is None else part.clone() for part in batch))
            built.posterior(X)
            built.fit(2)
            process, inner = model.process(), model.transformed(X)
            process.at(inner).operator()
            model.expanded()
            process.path(torch.Size([2]))(inner)
            process.mean_function()(inner)
            process.integral(inner, weights)
            model.make_mll()()
            model.posterior(X, observation_noise=True).rsample(torch.Size([2]))
        other = self.build(6, seed=4)

        def slope(one: Any) -> torch.Tensor:
            x = X.clone().requires_grad_()
            posterior = one.posterior(x)
            total = posterior.mean.sum() + posterior.variance.sum()
            return torch.autograd.grad(total, x)[0]

        close(slope(model), slope(self.build()))
        slope(other)
        for one in (model, built):
            one.observe(*batch)
            slope(one)
            one.make_mll()().backward()
            one.fit(2)
            slope(one)

    def test_a_tampered_state_is_refused(self) -> None:
        """NaN, truncated, or negative parts, no numbers; and the state of another kernel."""
        saved = snapshot(self.build())
        model = self.build(5, seed=3, loads_data=True)
        before, mean = snapshot(model), model.posterior(self.points(3)).mean

        def refused(state: dict[str, Any]) -> None:
            with pytest.raises(StateError):
                model.load_state_dict(state)
            assert_same_state(before, snapshot(model))
            assert torch.equal(model.posterior(self.points(3)).mean, mean)

        for count in (torch.tensor(-3), torch.tensor(torch.inf), torch.ones(2), 3):
            refused({**saved, "stream.count": count})
        for name, value in saved.items():
            if not name.startswith("stream."):
                continue
            if not value.numel() or not value.is_floating_point():
                continue
            refused({**saved, name: torch.full_like(value, torch.nan)})
            if value.ndim and "fits" not in name:
                refused({**saved, name: value[..., :-1]})
        if self.declared(model).takes_modules:
            kernel = ScaleKernel(MaternKernel(nu=0.5, ard_num_dims=self.dim))
            refused(snapshot(self.build(covar_module=kernel)))
