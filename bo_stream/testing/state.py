"""Contract: the stream. What `observe` does to the state, and what nothing else does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from botorch.models.transforms import Standardize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bo_stream.errors import StateError
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["StateContract"]

CHUNKED = 14
DRIFT = 1e-6
"""Allowed after thousands of one-point updates, against a rebuild, relative to 1 + |value|."""


def rows(
    batch: tuple[Tensor, Tensor, Tensor | None], index: Any
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Some rows of a batch."""
    X, Y, Yvar = batch
    return X[index], Y[index], None if Yvar is None else Yvar[index]


class StateContract(Contract):
    """Chunks, order, bytes, drift, copies, merges."""

    most_updates: int | None = None
    """One-point updates tried for drift; None: as many as the family promises to stand."""

    def test_observe_returns_self_and_counts(self) -> None:
        model = self.build(5)
        assert model.observe(*self.data(3, seed=9)) is model
        assert model.num_observed == 8
        before = snapshot(model)
        assert model.observe(*self.data(0, seed=9)) is model
        assert float(model.log_predictive(*self.data(0, seed=9))) == 0.0
        assert_same_state(before, snapshot(model))

    def test_the_posterior_is_pure(self) -> None:
        model = self.build()
        before = snapshot(model)
        X = self.points(3, 2)
        first = model.posterior(X).mean
        model.posterior(X, observation_noise=True).rsample(torch.Size([2]))
        model.log_predictive(*self.data(3, seed=9))
        model.make_mll()()
        assert torch.equal(model.posterior(X).mean, first)
        assert_same_state(before, snapshot(model))

    def test_waiting_batches_are_not_aliased(self) -> None:
        """Writing to a batch between `observe` and the next posterior changes nothing."""
        model, twin = self.build(10), self.build(10)
        X = self.points(4)
        for m in (model, twin):
            m.posterior(X)
        more = self.data(2, seed=9)
        twin.observe(*(None if t is None else t.clone() for t in more))
        model.observe(*more)
        for t in more:
            if t is not None:
                t.fill_(0.5)
        assert torch.equal(model.posterior(X).mean, twin.posterior(X).mean)

    def test_inputs_are_not_aliased(self) -> None:
        """Writing to the user's tensors afterwards changes nothing, neither do we write to them."""
        batch = self.data(10)
        kept = [None if t is None else t.clone() for t in batch]
        model = self.over(*batch)
        more = self.data(4, seed=9)
        model.observe(*more)
        X = self.points(4)
        before = model.posterior(X).mean
        for mine, copied in zip(batch, kept, strict=True):
            assert mine is None or (copied is not None and torch.equal(mine, copied))
        for t in (*batch, *more):
            if t is not None:
                t.fill_(0.5)
        model.observe(*self.data(0))
        state = snapshot(model)
        restored = self.build(0)
        restored.load_state_dict(state)
        close(restored.posterior(X).mean, before)

    def test_chunks_and_order(self) -> None:
        """Any order in any chunks, with posteriors in between, is one batch."""
        whole = self.build(CHUNKED)
        self.require(whole, "order_invariant")
        batch, X = self.data(CHUNKED), self.points(6)

        @settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(
            st.permutations(range(CHUNKED)),
            st.lists(st.integers(0, CHUNKED), max_size=5).map(sorted),
            st.booleans(),
        )
        def any_way(order: list[int], cuts: list[int], look: bool) -> None:
            shuffled = rows(batch, torch.tensor(order))
            edges = [0, *cuts, CHUNKED]
            model = self.over(*rows(shuffled, slice(0, edges[1])))
            for a, b in zip(edges[1:-1], edges[2:], strict=True):
                if look:
                    model.posterior(X)
                model.observe(*rows(shuffled, slice(a, b)))
            assert model.num_observed == CHUNKED
            assert_same_posterior(model, whole, X)
            close(self.objective_of_all(model), self.objective_of_all(whole))

        any_way()

    def test_starting_from_nothing(self) -> None:
        """Zero training points, then data."""
        model = self.build(0)
        X = self.points(5)
        assert model.num_observed == 0
        prior = model.posterior(X)
        assert prior.mean.isfinite().all() and (prior.variance > 0).all()
        model.observe(*self.data(8))
        assert model.num_observed == 8
        if self.declared(model).order_invariant:
            assert_same_posterior(model, self.build(8), X)
        assert (model.posterior(X).variance < prior.variance).all()

    def test_several_outputs_are_independent(self) -> None:
        """Each output of a joint surrogate is the surrogate of that output alone."""
        outputs = self.outputs_of(2)
        X, Y, Yvar = self.data(12, outputs=outputs)
        both, points = self.over(X, Y, Yvar), self.points(3, 4)
        for o in range(outputs):
            alone = self.over(X, Y[:, [o]], None if Yvar is None else Yvar[:, [o]])
            posterior = both.posterior(points, output_indices=[o])
            close(posterior.mean, alone.posterior(points).mean)
            close(posterior.variance, alone.posterior(points).variance)

    def test_bytes(self) -> None:
        """`state_bytes` up to n = 1,000; families that grow do so in proportion at most.

        Where it is to be constant the batches are of one size: a family may keep its last one.
        """
        model = self.build(0)
        constant = self.declared(model).bytes_constant
        batch, sizes = 100 if constant else 500, {}
        for n in (200, 600, 1_000) if constant else (100, 1_000):
            while model.num_observed < n:
                count = min(batch, n - model.num_observed)
                model.observe(*self.data(count, seed=model.num_observed))
            sizes[n] = model.state_bytes
        if constant:
            assert len(set(sizes.values())) == 1, sizes
        else:
            assert 0 < sizes[1_000] <= 11 * sizes[100], sizes

    def test_no_drift(self) -> None:
        """One-point updates with posteriors in between, against one batch."""
        model = self.build(0)
        n = self.declared(model).updates_without_drift
        n = n if self.most_updates is None else min(n, self.most_updates)
        batch = self.data(n)
        x = self.points(1)
        for i in range(n):
            model.observe(*rows(batch, slice(i, i + 1)))
            if i % 4 == 0:
                posterior = model.posterior(x)
        assert posterior.mean.isfinite().all() and (posterior.variance > 0).all()
        if self.declared(model).order_invariant:
            rebuilt = self.over(*batch)
            assert_same_posterior(model, rebuilt, self.points(20), DRIFT)
            close(self.objective_of_all(model), self.objective_of_all(rebuilt), DRIFT)

    def test_deepcopy(self) -> None:
        model = self.build()
        X = self.points(4)
        before, state = model.posterior(X).mean, snapshot(model)
        twin = copy.deepcopy(model)
        assert_same_state(snapshot(twin), state)
        assert torch.equal(twin.posterior(X).mean, before)
        twin.observe(*self.data(5, seed=9))
        twin.likelihood.eval()
        for p in twin.parameters():
            p.data.add_(0.1)
        assert_same_state(snapshot(model), state)
        assert torch.equal(model.posterior(X).mean, before)

    def test_hyperparameters_by_assignment(self) -> None:
        """A parameter written through ``.data``, as gpytorch's setters do, leaves nothing stale."""
        model, X = self.build(), self.points(4)
        for name, parameter in model.named_parameters():
            before, value = model.posterior(X, observation_noise=True), model.make_mll()()
            mean, variance = before.mean.clone(), before.variance.clone()
            parameter.data.add_(0.3)
            after = model.posterior(X, observation_noise=True)
            same = torch.equal(after.mean, mean) and torch.equal(after.variance, variance)
            assert not same, f"the posterior does not see {name}"
            assert not torch.equal(model.make_mll()(), value), f"the objective does not see {name}"
            fresh = self.build(0)
            fresh.load_state_dict(snapshot(model))
            assert_same_posterior(model, fresh, X)
            close(model.make_mll()(), fresh.make_mll()())
            model.observe(*self.data(1, seed=9))

    # -- merging ---------------------------------------------------------------------------------

    def mergeable(self, n: int, **kw: Any) -> Any:
        """A surrogate that can `merge`, or skip."""
        model = self.build(n, **kw)
        self.require(model, "additive")
        return model

    def test_merge(self) -> None:
        first = self.mergeable(6)
        batch = self.data(14)
        first = self.over(*rows(batch, slice(0, 6)))
        second = self.over(*rows(batch, slice(6, None)))
        X = self.points(5)
        first.posterior(X)
        kept = snapshot(second)
        assert first.merge(second) is first
        assert first.num_observed == 14
        assert_same_posterior(first, self.over(*batch), X)
        close(first.make_mll()(), self.over(*batch).make_mll()())
        assert_same_state(kept, snapshot(second))
        empty = self.build(0).merge(first)
        assert_same_posterior(empty, first, X)

    def test_merging_what_does_not_fit(self) -> None:
        model = self.mergeable(6)
        X, Y, Yvar = self.data(6)
        other_bounds = torch.stack([self.bounds[0] - 1, self.bounds[1]])
        others: list[Any] = [
            self.plain(X, Y, Yvar, bounds=other_bounds),
            self.plain(X, Y, Y.square() + 0.1 if Yvar is None else None, bounds=self.bounds),
            self.build(6, outputs=2),
            self.build(6, outcome_transform=Standardize(1)),
            object(),
        ]
        before = snapshot(model)
        for other in others:
            with pytest.raises(StateError):
                model.merge(other)
            assert_same_state(before, snapshot(model))

    def test_merging_transformed_streams(self) -> None:
        """One transform for both, or a refusal: sums in different units do not add up."""
        first = self.mergeable(6, outcome_transform=Standardize(1))
        with pytest.raises(StateError, match=r"\(different: outcome_transform\)"):
            first.merge(self.build(8, seed=3, outcome_transform=Standardize(1)))
        batch = self.data(8, seed=3)
        first.merge(self.over(*batch, outcome_transform=first.outcome_transform))
        both = self.build(6, outcome_transform=Standardize(1)).observe(*batch)
        assert_same_posterior(first, both, self.points(5))
