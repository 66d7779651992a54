"""Contract: saving and restoring. The state dict holds the stream, and comes back bit-identical."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Normalize, Standardize

from bo_stream.base.checkpoint import load, packed, read, unpacked
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError, StateError
from bo_stream.testing.base import (
    Contract,
    assert_same_posterior,
    assert_same_state,
    close,
    snapshot,
)

__all__ = ["PersistenceContract"]


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Saved and loaded the safe way."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


class PersistenceContract(Contract):
    """`state_dict` and `load_state_dict`, `save` and `load`."""

    @pytest.mark.parametrize("n", [0, 7])
    def test_round_trip(self, n: int) -> None:
        """Into a surrogate that has seen nothing, or one whose data it is to replace."""
        model = self.build()
        model.posterior(self.points(3))
        model.observe(*self.data(4, seed=8))
        restored = self.build(n, seed=77, loads_data=True if n else None)
        restored.posterior(self.points(3))
        restored.load_state_dict(through_a_file(model.state_dict()))
        assert_same_state(snapshot(restored), snapshot(model))
        assert restored.num_observed == model.num_observed
        assert_same_posterior(restored, model, self.points(5), 1e-10)
        close(restored.make_mll()(), model.make_mll()(), 1e-10)

    def test_resuming(self) -> None:
        """The state stays bit-identical under further `observe`."""
        model = self.build()
        restored = self.build(0)
        restored.load_state_dict(through_a_file(model.state_dict()))
        for seed in (8, 9, 10):
            for m in (model, restored):
                m.posterior(self.points(3))
                m.observe(*self.data(3, seed=seed))
            assert_same_state(snapshot(restored), snapshot(model))
        assert_same_posterior(restored, model, self.points(5), 1e-10)

    def test_resuming_with_fits(self) -> None:
        """The memory of a fit is state too: a resumed stream fits as the other does."""
        model, restored = self.build(20), self.build(0)
        model.fit(8)
        restored.load_state_dict(through_a_file(model.state_dict()))
        for m in (model, restored):
            m.observe(*self.data(20, seed=8))
            m.fit(5)
        assert_same_state(snapshot(restored), snapshot(model))

    def test_a_checkpoint_suffices(self, tmp_path: Path) -> None:
        """The surrogate comes back with its modules, and goes on as the other does."""
        transforms: dict[str, Any] = {
            "input_transform": Normalize(self.dim, bounds=self.bounds),
            "outcome_transform": Standardize(1),
        }
        model, path = self.build(20, **transforms), tmp_path / "model.pt"
        next(model.covar_module.parameters()).requires_grad_(False)
        model.fit(3)
        model.observe(*self.data(4, seed=8))
        before = snapshot(model)
        model.save(path)
        assert_same_state(before, snapshot(model))
        again = self.loaded(model, path)
        assert type(again) is type(model)
        assert_same_posterior(again, model, self.points(5), 1e-10)
        for m in (model, again):
            m.observe(*self.data(5, seed=9))
            m.fit(3)
        assert_same_state(snapshot(again), snapshot(model))
        assert_same_posterior(again, model, self.points(5), 1e-10)

    def test_a_checkpoint_of_nothing_yet(self, tmp_path: Path) -> None:
        """Defaults left out stay left out."""
        X, Y, Yvar = self.data(0)
        model = self.make(X, Y, Yvar, bounds=self.bounds)
        model.save(tmp_path / "model.pt")
        again = self.loaded(model, tmp_path / "model.pt")
        for m in (model, again):
            m.observe(*self.data(6))
        assert_same_state(snapshot(again), snapshot(model))

    def loaded(self, model: StreamingGP, path: Path) -> Any:
        """Loaded from a file; what is not the family's is asked for, and handed in."""
        try:
            return load(path)
        except InputError:
            document = read(path.read_bytes())
        own = {"covar_module": self.kernel() or model.covar_module, **self.options}
        own.setdefault("likelihood", copy.deepcopy(model.likelihood))
        names = own.keys() & (document["kinds"] | document["handed_in"]).keys()
        return load(path, **{name: own[name] for name in names})

    def test_assigning_copies(self) -> None:
        """With ``assign`` too the saved tensors stay as they were saved."""
        saved, model = snapshot(self.build()), self.build(0)
        kept = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in saved.items()}
        model.load_state_dict(saved, assign=True)
        model.observe(*self.data(5, seed=9))
        assert_same_state(saved, kept)

    def test_saving_copies_nothing_live(self) -> None:
        """Loading does not tie two surrogates together."""
        model, restored = self.build(), self.build(0)
        restored.load_state_dict(model.state_dict())
        before = snapshot(model)
        restored.observe(*self.data(5, seed=9))
        for p in restored.parameters():
            p.data.add_(0.1)
        assert_same_state(before, snapshot(model))

    def test_transforms_are_saved(self) -> None:
        """Learned from other data, then replaced by the saved ones."""

        def build(seed: int) -> Any:
            return self.build(
                seed=seed,
                input_transform=Normalize(self.dim, bounds=self.bounds),
                outcome_transform=Standardize(1),
                loads_data=True,
            )

        model, restored = build(0), build(77)
        assert not torch.equal(model.outcome_transform.means, restored.outcome_transform.means)
        restored.load_state_dict(through_a_file(model.state_dict()))
        assert_same_state(snapshot(restored), snapshot(model))
        assert_same_posterior(restored, model, self.points(5), 1e-10)

    def not_loaded(self, change: Any) -> None:
        """Loading a changed state raises and leaves everything bit-identical."""
        saved = snapshot(self.build())
        change(saved)
        model = self.build(5, seed=3, loads_data=True)
        before, posterior = snapshot(model), model.posterior(self.points(3)).mean
        with pytest.raises(StateError):
            model.load_state_dict(saved)
        assert_same_state(before, snapshot(model))
        assert torch.equal(model.posterior(self.points(3)).mean, posterior)

    def extra(self, state: dict[str, Any], **changes: Any) -> None:
        """Change the extra state in a saved state."""
        state["_extra_state"] = packed({**unpacked(state["_extra_state"]), **changes})

    def test_unknown_versions_are_refused(self) -> None:
        self.not_loaded(lambda state: self.extra(state, version=999))

    def test_other_classes_are_refused(self) -> None:
        self.not_loaded(lambda state: self.extra(state, **{"class": "Other"}))

    def test_missing_state_is_refused(self) -> None:
        self.not_loaded(lambda state: state.pop("stream.count"))

    def test_other_shapes_are_refused(self) -> None:
        """Of hyperparameters, say: nothing is loaded by halves."""
        name = next(iter(dict(self.build(0).named_parameters())))
        self.not_loaded(lambda state: state.update({name: torch.zeros(7, 7, dtype=self.dtype)}))

    def test_missing_header_is_refused(self) -> None:
        self.not_loaded(lambda state: state.pop("_extra_state"))

    def test_unexpected_state_is_refused(self) -> None:
        self.not_loaded(lambda state: state.update(other=torch.zeros(3)))

    def test_other_noise_is_refused(self) -> None:
        X, Y, Yvar = self.data(6)
        saved = self.plain(X, Y, Y.square() + 0.1 if Yvar is None else None, bounds=self.bounds)
        with pytest.raises(StateError):
            self.build().load_state_dict(saved.state_dict())

    # -- into a surrogate that has data --------------------------------------------------------

    @pytest.mark.parametrize("loads_data", [None, False])
    def test_warm_start(self, loads_data: bool | None) -> None:
        """BoTorch's loop: a new model on all data starts from the last one's hyperparameters."""
        old = self.left_out(*self.data(10))
        old.fit(20)
        data = self.data(30, seed=3)
        new = self.left_out(*data, loads_data=loads_data)
        before = snapshot(new)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            new.load_state_dict({k: v.clone() for k, v in old.state_dict().items()})
        assert new.num_observed == 30
        for name, value in old.named_parameters():
            assert torch.equal(new.get_parameter(name), value), name
        for name, kept in before.items():
            if name.startswith(("bounds", "input_transform", "outcome_transform", "stream.count")):
                assert torch.equal(new.state_dict()[name], kept), name
        X, Y, _ = data
        missed = float((new.posterior(X).mean - Y).std() / Y.std())
        assert missed < self.warm_residual, missed
        again = self.left_out(*self.data(0))
        again.load_state_dict(new.state_dict())
        close(again.posterior(X).mean, new.posterior(X).mean, 1e-9)
        close(again.posterior(X).variance, new.posterior(X).variance, 1e-9)

    def test_warm_start_of_a_list(self) -> None:
        """BoTorch's lists and torch's containers, whose loading is not this package's."""
        old = self.left_out(*self.data(10))
        for p in old.parameters():
            p.data.add_(0.1)
        for make in (ModelListGP, lambda model: torch.nn.ModuleList([model])):
            new = self.left_out(*self.data(12, seed=3))
            make(new).load_state_dict(make(old).state_dict())
            assert new.num_observed == 12
            for name, value in old.named_parameters():
                assert torch.equal(new.get_parameter(name), value), name

    def test_less_data_than_the_state_is_noticed(self) -> None:
        old, few = self.left_out(*self.data(12)), self.left_out(*self.data(5))
        with pytest.warns(UserWarning, match="keeps its 5 observations.*bo_stream.load"):
            few.load_state_dict(old.state_dict())
        assert few.num_observed == 5

    def test_its_last_state_changes_nothing(self) -> None:
        model = self.build()
        before = snapshot(model)
        model.load_state_dict(before)
        assert_same_state(snapshot(model), before)

    def test_some_hyperparameters(self) -> None:
        """Those that a state has are loaded with ``strict=False``, with or without data."""
        for n in (0, 8):
            model, count = self.build(n), self.build(n).num_observed
            name, value = next((k, v.detach() + 0.3) for k, v in model.named_parameters())
            with pytest.raises(StateError, match="[Mm]issing"):
                model.load_state_dict({name: value})
            result = model.load_state_dict({name: value, "other": value}, strict=False)
            assert result.unexpected_keys == ["other"] and name not in result.missing_keys
            assert torch.equal(model.get_parameter(name), value)
            assert model.num_observed == count
            assert_same_posterior(self.resumed(model), model, self.points(4), 1e-9)

    def resumed(self, model: StreamingGP) -> Any:
        """A surrogate built without data that has loaded a state."""
        again = self.build(0)
        again.load_state_dict(model.state_dict())
        return again
