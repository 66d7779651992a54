"""Checkpoints: what is refused when it is saved, and what when it is loaded."""

import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, NormalPrior
from torch import Tensor

from bo_stream import ExactGP, load
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.testing.base import assert_same_state, snapshot


def data(n: int = 12) -> tuple[Tensor, Tensor]:
    X = 0.5 + torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return X, (3.0 * X.sum(-1, keepdim=True)).sin()


# -- refused when it is saved --------------------------------------------------------------------


class OwnKernel(RBFKernel):
    pass


def prior_on_a_function() -> Kernel:
    """Under the name of one that the constructor itself puts on a function."""
    kernel, prior = PeriodicKernel(), GammaPrior(2.0, 2.0)
    kernel.register_prior(
        "period_length_prior", prior, lambda m: m.period_length.sqrt(), lambda m, v: None
    )
    return kernel


def tied() -> Kernel:
    first, second = RBFKernel(), RBFKernel()
    second.raw_lengthscale = first.raw_lengthscale
    return first + second


REFUSED: dict[str, tuple[Callable[[], Kernel], str]] = {
    "own class": (lambda: ScaleKernel(OwnKernel()), "OwnKernel"),
    "own transform": (
        lambda: RBFKernel(lengthscale_constraint=Positive(lambda x: x.square(), torch.sqrt)),
        "covar_module.raw_lengthscale_constraint",
    ),
    "own prior transform": (
        lambda: RBFKernel(lengthscale_prior=NormalPrior(0.0, 1.0, transform=lambda x: 2.0 * x)),
        "covar_module.lengthscale_prior",
    ),
    "prior on a function": (prior_on_a_function, "covar_module.period_length_prior"),
    "tied": (tied, "covar_module.kernels.1.raw_lengthscale would"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_described_is_refused(name: str, tmp_path: Path) -> None:
    """Naming it and the remedy; an earlier checkpoint stays."""
    make, named = REFUSED[name]
    path = tmp_path / "model.pt"
    path.write_bytes(b"earlier")
    with pytest.raises(UnsupportedError, match=rf"{named}.*state_dict"):
        ExactGP(*data(), covar_module=make()).save(path)
    assert path.read_bytes() == b"earlier" and list(tmp_path.iterdir()) == [path]


def test_an_interrupted_save_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = tmp_path / "model.pt", ExactGP(*data())
    model.save(path)
    earlier = path.read_bytes()

    def half(document: Any, file: Any) -> None:
        file.write(earlier[: len(earlier) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(torch, "save", half)
        model.observe(*data(3)).save(path)
    assert path.read_bytes() == earlier and list(tmp_path.iterdir()) == [path]


# -- refused when it is loaded -------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint."""
    ExactGP(*data()).save(tmp_path / "model.pt")
    return tmp_path / "model.pt"


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def test_pickled_code_is_refused(path: Path) -> None:
    document = torch.load(path, weights_only=True)
    document["options"]["evil"] = Evil(path.with_name("mark"))
    torch.save(document, path)
    with pytest.raises(StateError, match="complete file"):
        load(path)
    assert not path.with_name("mark").exists()


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "this.d",
        "torch.nn.Linear",
        "torch.nn.Module",
        "gpytorch.kernels.os",
        "gpytorch.kernels.kernel.Kernel",
        "bo_stream.growth.torch",
        "bo_stream.growth.GrowthPolicy",
        "",
        "Kernel",
    ],
)
def test_other_classes_are_refused(name: str, path: Path) -> None:
    document = torch.load(path, weights_only=True)
    document["modules"]["covar_module"]["made"]["class"] = name
    torch.save(document, path)
    sys.modules.pop("this", None)
    with pytest.raises(StateError, match="gpytorch.kernels"):
        load(path)
    assert "this" not in sys.modules


CHANGES: dict[str, Callable[[Any], Any]] = {
    "version": lambda d: d.update(version=1),
    "format": lambda d: d.update(format="other"),
    "family": lambda d: d.update({"class": "bo_stream.Other"}),
    "abstract family": lambda d: d.update({"class": "bo_stream.StreamingGP"}),
    "state": lambda d: d.pop("state"),
    "header": lambda d: d["state"].pop("_extra_state"),
    "truncated": lambda d: d["state"].update({"stream.state_X": d["state"]["stream.state_X"][:3]}),
    "sizes": lambda d: d.update(sizes=[3, 1]),
    "noise": lambda d: d.update(noise="known"),
    "type": lambda d: d.update(options=[1]),
    "option": lambda d: d["options"].update(steps=3),
    "again": lambda d: d["modules"].update(mean_module={"made": {"again": 99}}),
    "setting": lambda d: d["modules"]["mean_module"]["made"]["named"].update(batch_shape=(2,)),
    "unknown": lambda d: d.update(more=1),
    "bound": lambda d: d["modules"]["likelihood"]["constraints"]["noise_covar.raw_noise"][
        "named"
    ].update(lower_bound=torch.tensor(0.5)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_files_are_refused(name: str, path: Path) -> None:
    document = torch.load(path, weights_only=True)
    CHANGES[name](document)
    torch.save(document, path)
    with pytest.raises(StateError):
        load(path)


def test_other_files_are_refused(path: Path) -> None:
    state = path.with_name("state.pt")
    torch.save(ExactGP(*data()).state_dict(), state)
    text = path.with_name("text.pt")
    text.write_text("no checkpoint")
    empty = path.with_name("empty.pt")
    empty.touch()
    archive = path.with_name("archive.pt")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "b")
    for other in (state, text, empty, archive):
        with pytest.raises(StateError, match=other.name):
            load(other)
    with pytest.raises(FileNotFoundError):
        load(path.with_name("nothing.pt"))


def test_damage_is_noticed(path: Path) -> None:
    """Cut anywhere, or with one bit flipped: refused, or (in what is never read) harmless."""
    whole, state = path.read_bytes(), load(path).state_dict()
    refused = 0
    for at in range(0, len(whole), len(whole) // 60):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        for changed in (whole[:at], bytes(flipped)):
            path.write_bytes(changed)
            try:
                again = load(path)
            except StateError:
                refused += 1
            else:
                assert_same_state(state, snapshot(again))
    assert refused > 80
