"""Moving a stream to another grid: exactly, whole, saved and merged."""

from typing import Any

import pytest
import torch
from botorch.models.transforms.input import Normalize

from acquisitions import NIPV
from bo_stream import WISKI, ExactGP, load
from bo_stream.base.checkpoint import packed, unpacked
from bo_stream.errors import BoundsError, InputError, StateError
from bo_stream.mathematics.grid import Interpolation
from bo_stream.testing.base import assert_same_posterior, assert_same_state, close, snapshot
from tests.bo_stream.surrogates.refine_cases import BOUNDS, build, data
from tests.calls import failing
from tests.raw import RAW

WIDER = torch.tensor([[-1.5, 0.5], [1.0, 3.0]]).double()


# -- moving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("mode", ["learned", "known", "scaled"])
def test_a_refined_stream_is_one_built_anew(mode: str, outputs: int) -> None:
    model, anew = build(20, mode, outputs), build(20, mode, outputs, grid_size=(14, 12))
    Z = data(7, seed=5)[0]
    model.posterior(Z)
    batch = data(3, outputs, seed=9)
    more = batch if mode != "learned" else batch[:2]
    for m in (model, anew):
        m.observe(*more).forget(0.9)
    assert model.refine((14, 12)) is model
    assert model.grid.sizes == (14, 12) and model.num_observed == 23
    close(model.state.A, anew.state.A, 1e-12)
    close(model.state.b, anew.state.b, 1e-12)
    for m in (model, anew):
        m.observe(*more)
    assert_same_posterior(model, anew, Z, 1e-9)
    close(model.log_evidence(), anew.log_evidence(), 1e-9)
    assert model.effective_observations == anew.effective_observations


def test_after_restandardising() -> None:
    X, Y, _ = data(20)
    model = WISKI(X, Y, bounds=BOUNDS, grid_size=9).restandardise(3.0 * Y + 7.0)
    before = model.log_evidence()
    model.refine(9)
    close(model.log_evidence(), before, 1e-12)


def test_far_outcomes() -> None:
    """Sums are taken about the first batch's mean, those over another grid too."""
    X, Y, _ = data(20)
    model, moved = (WISKI(X, Y + 1e6, bounds=BOUNDS, grid_size=9, **RAW) for _ in range(2))
    assert float(model.state.origin) > 1e5
    for m in (model, moved.refine(9)):
        m.mean_module.constant = 1e6
    close(moved.log_evidence(), model.log_evidence(), 1e-9)
    close(moved.state.b, model.state.b, 1e-9)


def test_only_while_all_points_are_at_hand() -> None:
    model = build(20, opening=20).refine(10)
    model.observe(*data(1, seed=3)[:2])
    before = snapshot(model)
    with pytest.raises(StateError, match=r"21 seen and at most 20 buffered.*with a larger"):
        model.refine(12)
    assert_same_state(before, snapshot(model))
    X, Y, _ = data(5)
    given = WISKI(X, Y, grid=[torch.linspace(-3.0, 4.0, 12)] * 2, **RAW)
    with pytest.raises(StateError, match="explicitly given"):
        given.refine(12)


@pytest.mark.parametrize("size", [3, (9, 9, 9), 9.5, "fine", (9, 2.5)])
def test_bad_sizes(size: Any) -> None:
    model = build(10)
    before = snapshot(model)
    with pytest.raises(InputError):
        model.refine(size)
    assert_same_state(before, snapshot(model))
    with pytest.raises(InputError):
        build(10, grid_size=size)


def test_interrupted_it_stays_where_it_was() -> None:
    model = build(20)
    Z, before = data(7, seed=5)[0], snapshot(model)
    dist = model.posterior(Z).mean
    stop = failing(Interpolation.transpose_times, KeyboardInterrupt())
    with stop, pytest.raises(KeyboardInterrupt):
        model.refine(12, bounds=WIDER)
    assert model.grid.sizes == (9, 8) and torch.equal(model.bounds, BOUNDS)
    assert_same_state(before, snapshot(model))
    assert torch.equal(model.posterior(Z).mean, dist)


# -- wider bounds --------------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [True, False])
def test_bounds_widen(normalised: bool) -> None:
    """Under the input transform of before, to which points beyond its unit cube are points too."""
    transform = Normalize(2, bounds=BOUNDS).eval() if normalised else None
    model = build(20, input_transform=transform)
    outside = torch.tensor([[-1.4, 2.8]]).double()
    with pytest.raises(BoundsError):
        model.observe(outside, outside[:, :1])
    model.refine((14, 12), bounds=WIDER)
    anew = build(20, input_transform=transform, bounds=WIDER, grid_size=(14, 12))
    for m in (model, anew):
        m.observe(outside, outside[:, :1])
    close(model.log_evidence(), anew.log_evidence(), 1e-9)
    assert_same_posterior(model, anew, outside, 1e-9)


def test_bounds_do_not_narrow() -> None:
    model = build(20)
    higher, lower = BOUNDS.clone(), BOUNDS.clone()
    higher[0, 0], lower[1, 1] = -0.9, 1.9
    for bounds in (higher, lower, BOUNDS.flip(0), BOUNDS[:, :1]):
        with pytest.raises(InputError):
            model.refine(bounds=bounds)
    assert torch.equal(model.bounds, BOUNDS)


def test_a_widened_stream_is_saved(tmp_path: Any) -> None:
    model = build(20, input_transform=Normalize(2, bounds=BOUNDS).eval())
    model.refine((14, 12), bounds=WIDER)
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert again.grid.same_as(model.grid)
    assert torch.equal(again.log_evidence(), model.log_evidence())
    with pytest.raises(StateError, match="box"):
        build(0, input_transform=Normalize(2, bounds=BOUNDS).eval()).load_state_dict(
            model.state_dict()
        )


# -- saving and merging --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(9, 8), "auto"])
def test_a_saved_state_brings_its_grid(tmp_path: Any, size: Any) -> None:
    """Into a surrogate built with the same options, and back."""
    model = build(20, grid_size=size, loads_data=True)
    start, first = snapshot(model), model.grid
    model.refine((14, 12))
    model.save(tmp_path / "model.pt")
    again, other = load(tmp_path / "model.pt"), build(0, grid_size=size)
    other.load_state_dict(model.state_dict())
    for m in (model, again, other):
        m.observe(*data(5, seed=4)[:2])
        m.refine((10, 11))
        m.observe(*data(5, seed=5)[:2])
        m.refresh()
    for m in (again, other):
        assert m.grid.same_as(model.grid)
        assert_same_state(snapshot(m), snapshot(model))
        assert torch.equal(m.log_evidence(), model.log_evidence())
    model.load_state_dict(start)
    assert model.grid.same_as(first)
    assert_same_state(snapshot(model), start)
    with pytest.raises(StateError):
        build(0, grid_size=(9, 9)).load_state_dict(start)


def test_hyperparameters_alone_leave_the_grid() -> None:
    model, other = build(20).refine((14, 12)), build(10)
    with pytest.warns(UserWarning, match="keeps its 10"):
        other.load_state_dict(model.state_dict())
    assert other.grid.sizes == (9, 8) and other.num_observed == 10
    assert torch.equal(other.mean_module.constant, model.mean_module.constant)


def test_a_damaged_grid_is_refused() -> None:
    model = build(20, loads_data=True)
    for sizes in (None, [9], [9, 3], [9, 9], ["9", "8"]):
        saved = model.state_dict()
        header = unpacked(saved["_extra_state"])
        saved["_extra_state"] = packed({**header, "nodes": sizes})
        before = snapshot(model)
        with pytest.raises((StateError, InputError)):
            model.load_state_dict(saved)
        assert_same_state(before, snapshot(model))


@pytest.mark.parametrize(("mine", "others"), [(15, 40), (40, 15), (0, 40)])
def test_streams_on_other_grids_merge_while_points_are_held(mine: int, others: int) -> None:
    """As long as one of them holds all of its own."""
    parts = [build(mine, opening=20), build(others, seed=1, opening=20)]
    min(parts, key=lambda p: p.num_observed).refine((14, 12))
    merged = parts[0].merge(parts[1])
    whole = build(mine, opening=20).observe(*data(others, seed=1)[:2])
    assert merged.grid.sizes == (9, 8)
    close(merged.log_evidence(), whole.log_evidence(), 1e-9)
    assert_same_posterior(merged, whole, data(7, seed=5)[0], 1e-9)


def test_streams_that_cannot_merge() -> None:
    first, second = build(15, opening=20).refine((14, 12)), build(40, opening=20)
    first.observe(*data(10, seed=2)[:2])
    with pytest.raises(StateError, match="same grid"):
        first.merge(second)


def test_a_kept_integral_is_not_that_of_the_old_grid() -> None:
    points = data(30, seed=8)[0]
    model, anew = build(20), build(20).refine((14, 12))
    kept = NIPV(model, points)
    candidate = data(2, seed=6)[0].unsqueeze(0)
    kept(candidate)
    model.refine((14, 12))
    close(kept(candidate), NIPV(anew, points)(candidate), 1e-9)


def test_streams_of_unequal_openings() -> None:
    """A buffer is never taken for whole if it lacks points of the other stream."""
    few, many = build(5), build(30, seed=3, opening=10)
    with pytest.raises(StateError, match=r"same `opening`.*smaller `opening`"):
        few.merge(many)
    assert few.num_observed == 5
    assert many.merge(few).num_observed == 35


# -- what a first grid does not resolve ----------------------------------------------------------


def test_a_mode_is_found_that_the_first_grid_does_not_resolve() -> None:
    """A wave of .17 widths has an eighth of that as its lengthscale, nodes are .11 apart."""
    torch.manual_seed(0)
    box = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    X = torch.rand(200, 3, dtype=torch.float64)
    Y = (36.0 * X[:, :1]).sin() + 2.0 * X[:, 1:2].square() + 0.35 * torch.randn_like(X[:, :1])
    model, exact = WISKI(X, Y, bounds=box, grid_size="auto"), ExactGP(X, Y, bounds=box)
    report = model.fit()
    assert report.value > exact.fit().value - 1.0 and report.converged
    assert abs(report.value - float(model.make_mll()().detach())) < 1e-6
    assert model.grid.sizes[0] > 20
