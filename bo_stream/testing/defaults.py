"""Contract: what leaving a transform out means, and what a data set and its framework leave out."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import ChainedInputTransform, Round
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from bo_stream.errors import BoundsError, StateError, UnsupportedError
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["DefaultsContract"]


def _warned(made: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in made if issubclass(w.category, InputDataWarning)]


class DefaultsContract(Contract):
    """Inputs are normalised to the bounds, outcomes standardised, unless None is said."""

    @property
    def raw_bounds(self) -> Tensor:
        """Bounds of very different widths, far from the unit cube."""
        low = torch.tensor([20.0, 1e-4, -3e5, 0.0], dtype=self.dtype)
        high = torch.tensor([900.0, 0.1, 1e5, 1.0], dtype=self.dtype)
        return torch.stack([low, high])[:, : self.dim]

    def raw_data(self, n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
        """The contract's data in units of the raw bounds; outcomes around 4000."""
        X, Y, Yvar = self.data(n, seed=seed)
        (low, high), (a, b) = self.bounds, self.raw_bounds
        X = a + (b - a) * (X - low) / (high - low)
        return X, 4000.0 + 900.0 * Y, None if Yvar is None else 810_000.0 * Yvar

    def test_left_out_is_normalised_and_standardised(self) -> None:
        """To the last bit what the two transforms give when they are said."""
        data, more = self.raw_data(14), self.raw_data(5, seed=9)
        said: dict[str, Any] = {
            "input_transform": Normalize(self.dim, bounds=self.raw_bounds),
            "outcome_transform": Standardize(1),
        }
        model = self.left_out(*data, bounds=self.raw_bounds)
        other = self.left_out(*data, bounds=self.raw_bounds, **said)
        close(model.outcome_transform.means, data[1].mean(0, keepdim=True), 1e-12)
        for m in (model, other):
            m.observe(*more)
            m.fit(3)
        points = self.raw_data(6, seed=5)[0]
        a, b = model.posterior(points), other.posterior(points)
        assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
        a, b = (m.process().at(m.transformed(points)) for m in (model, other))
        assert torch.equal(a.covariance(a), b.covariance(b))
        assert_same_state(snapshot(model), snapshot(other))
        close(model.transformed(self.raw_bounds), torch.eye(2)[[1]].mT.expand(2, self.dim))

    def test_none_means_none(self) -> None:
        model = self.left_out(*self.data(8), input_transform=None, outcome_transform=None)
        assert not hasattr(model, "input_transform") and not hasattr(model, "outcome_transform")
        half = self.left_out(*self.data(8), input_transform=None)
        assert isinstance(half.outcome_transform, Standardize)
        assert not hasattr(half, "input_transform")

    @pytest.mark.parametrize("rows", [0, 1, 2])
    def test_too_few_rows_to_standardise(self, rows: int) -> None:
        """Outcomes are taken as they are, and one warning says so."""
        with warnings.catch_warnings(record=True) as made:
            warnings.simplefilter("always")
            model = self.left_out(*self.data(rows))
        assert len(_warned(made)) == (rows < 2)
        assert hasattr(model, "outcome_transform") == (rows >= 2)

    def test_raw_inputs_without_bounds(self) -> None:
        """BoTorch's warning; none where inputs fill the unit cube."""
        if type(self.build(4)).needs_bounds:
            pytest.skip("needs bounds")
        X, Y, Yvar = self.raw_data(14)
        unit = Normalize(self.dim, bounds=self.raw_bounds)(X)
        for points, expected in ((X, 1), (unit, 0)):
            with warnings.catch_warnings(record=True) as made:
                warnings.simplefilter("always")
                self.left_out(points, Y, Yvar, bounds=None)
            assert len([w for w in _warned(made) if "unit cube" in w]) == expected

    def test_resumed_standardisation(self) -> None:
        """A surrogate built without data takes on the saved one's, unless it was told otherwise."""
        empty = self.data(0)
        model = self.left_out(*self.raw_data(14), bounds=self.raw_bounds)
        saved = snapshot(model)
        with pytest.warns(InputDataWarning):
            resumed = self.left_out(*empty, bounds=self.raw_bounds)
        resumed.load_state_dict(saved)
        assert_same_state(snapshot(resumed), saved)
        assert_same_posterior(resumed, model, self.raw_data(5, seed=5)[0], 1e-12)
        for m in (model, resumed):
            m.observe(*self.raw_data(5, seed=9))
        assert_same_state(snapshot(resumed), snapshot(model))
        told = self.left_out(*empty, bounds=self.raw_bounds, outcome_transform=None)
        with pytest.raises(StateError):
            told.load_state_dict(saved)

    # -- bounds by the unit cube -----------------------------------------------------------------

    def test_bounds_of_the_unit_cube(self) -> None:
        """`bounds="unit"`: what the input transform maps there; points outside are refused."""
        data = self.raw_data(14)
        kw: dict[str, Any] = {"bounds": "unit"}
        inputs = Normalize(self.dim, bounds=self.raw_bounds)
        model = self.left_out(*data, **kw, input_transform=inputs)
        close(model.bounds, self.raw_bounds.double(), 1e-12)
        other = self.left_out(*data, bounds=self.raw_bounds, input_transform=inputs)
        assert_same_posterior(model, other, self.raw_data(5, seed=5)[0])
        with pytest.raises(BoundsError):
            model.posterior(self.raw_bounds * 1.1)
        for kw in ({"bounds": "unit"}, {"bounds": "unit", "input_transform": None}):
            model = self.left_out(inputs(data[0]), *data[1:], **kw)
            cube = torch.stack([torch.zeros(self.dim), torch.ones(self.dim)]).double()
            assert torch.equal(model.bounds, cube)

    def test_bounds_that_cannot_be_told(self) -> None:
        rounded = ChainedInputTransform(
            scale=Normalize(self.dim, bounds=self.bounds),
            round=Round(integer_indices=[0], approximate=False),
        )
        with pytest.raises(UnsupportedError, match="raw bounds"):
            self.left_out(*self.data(8), bounds="unit", input_transform=rounded)
        with pytest.raises(BoundsError, match="'unit'"):
            self.left_out(*self.data(8), bounds="units")

    # -- from a data set, as Ax builds models ----------------------------------------------------

    def dataset(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> SupervisedDataset:
        """BoTorch's container, which Ax hands over."""
        names = [f"x{i}" for i in range(self.dim)]
        return SupervisedDataset(X, Y, Yvar=Yvar, feature_names=names, outcome_names=["y"])

    def constructed(self, *data: Any, **options: Any) -> dict[str, Any]:
        """The arguments that the family's `construct_inputs` makes of a data set."""
        inputs = type(self.build(0)).construct_inputs(self.dataset(*data), **options)
        return {"bounds": None, **inputs}

    def test_constructed_from_a_data_set(self) -> None:
        data = self.data(8)
        inputs = self.constructed(*data, bounds=self.bounds)
        assert inputs["loads_data"] is False
        model = self.left_out(inputs.pop("train_X"), inputs.pop("train_Y"), **_named(inputs))
        assert_same_posterior(model, self.left_out(*data), self.points(4))

    def test_constructed_beside_a_transform(self) -> None:
        """Ax's way: no bounds, or those of the unit cube, beside a `Normalize` of its own."""
        data, cube = self.raw_data(14), torch.tensor([[0.0], [1.0]]).expand(2, self.dim)
        expected = self.left_out(*data, bounds=self.raw_bounds)
        for options in ({}, {"bounds": cube}, {"bounds": cube.tolist()}):
            inputs = self.constructed(*data, **options)
            inputs["input_transform"] = Normalize(self.dim, bounds=self.raw_bounds)
            model = self.left_out(inputs.pop("train_X"), inputs.pop("train_Y"), **_named(inputs))
            assert_same_posterior(model, expected, self.raw_data(5, seed=5)[0])
            if type(model).needs_bounds or options:
                close(model.bounds, self.raw_bounds.double(), 1e-12)

    def test_exact_evaluations_of_a_data_set(self) -> None:
        """Variances of zero get a floor there, and only there; others stay."""
        if self.noise == "learned":
            pytest.skip("has no variances")
        X, Y, Yvar = self.data(8)
        assert Yvar is not None
        Yvar = Yvar.clone()
        Yvar[:3] = 0.0
        given = self.constructed(X, Y, Yvar)["train_Yvar"]
        close(given[:3], 1e-6 * Y.var(0).expand(3, 1), 1e-12)
        assert torch.equal(given[3:], Yvar[3:])
        one = self.constructed(X[:1], Y[:1], Yvar[:1])["train_Yvar"]
        close(one, torch.full_like(one, 1e-6), 1e-12)

    def test_options_no_constructor_takes(self) -> None:
        """What else a search space may have is refused by name."""
        with pytest.raises(UnsupportedError, match="categorical_features"):
            self.constructed(*self.data(8), categorical_features=[0])


def _named(inputs: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments with the variances under the name of the contract's `make`."""
    Yvar = inputs.pop("train_Yvar", None)
    return {"Yvar": Yvar, **inputs}
