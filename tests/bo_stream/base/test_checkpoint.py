"""Checkpoints: what comes back, what is handed in, and what is refused."""

import copy
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models.transforms.input import (
    ChainedInputTransform,
    InputStandardize,
    Log10,
    Normalize,
)
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    Log,
    Power,
    Standardize,
)
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.priors import (
    GammaPrior,
    LogNormalPrior,
    NormalPrior,
)
from torch import Size, Tensor

from bo_stream import (
    HSGP,
    SVDGP,
    WISKI,
    CaGP,
    CountGP,
    DirichletClassifier,
    ExactGP,
    OnlineSGPR,
    TrustRegionGP,
    WarpedGP,
    load,
)
from bo_stream.base import checkpoint
from bo_stream.base.options import default_kernel
from bo_stream.errors import InputError, StateError
from bo_stream.growth import VIPS, Pruned
from bo_stream.testing.base import assert_same_state, snapshot
from bo_stream.testing.wholeness import interrupted, lines_of

BOUNDS = torch.tensor([[0.5, 0.5], [1.5, 1.5]], dtype=torch.float64)


def data(n: int = 12, seed: int = 0, outputs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = 0.5 + torch.rand(n, 2, generator=generator, dtype=torch.float64)
    return X, 1.5 + (3.0 * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin()


def goes_on(model: Any, path: Path, *noise: Tensor, **modules: Any) -> Any:
    """Save, load, and let both go on; bit-identical throughout. The loaded one."""
    before, random = snapshot(model), torch.get_rng_state()
    model.save(path)
    again = load(path, **modules)
    assert torch.equal(random, torch.get_rng_state())
    assert_same_state(before, snapshot(model))
    assert_same_state(before, snapshot(again))
    assert type(again) is type(model)
    X, Y = data(6, seed=1, outputs=model.num_outputs)
    for m in (model, again):
        m.observe(X.to(m.dtype), Y.to(m.dtype), *noise)
        m.fit(2)
    assert_same_state(snapshot(model), snapshot(again))
    mine, theirs = (m.process().at(m.transformed(X)) for m in (model, again))
    assert torch.equal(mine.mean, theirs.mean)
    return again


def needs(model: Any, path: Path, name: str, make: Callable[[], Any]) -> None:
    """It is asked for the module, and goes on with a new one, which is copied."""
    model.save(path)
    with pytest.raises(InputError, match=rf"{name} of class .*load\(path, {name}=\.\.\.\)"):
        load(path)
    new = make()
    before = copy.deepcopy(new.state_dict())
    goes_on(model, path, **{name: new})
    assert_same_state(before, new.state_dict())


# -- what is made again by the class -------------------------------------------------------------


@pytest.mark.parametrize("family", [ExactGP, WISKI, HSGP, WarpedGP, TrustRegionGP, CaGP])
def test_defaults_need_nothing(family: Any, tmp_path: Path) -> None:
    model = family(*data(), bounds=BOUNDS)
    model.fit(3)
    goes_on(model, tmp_path / "model.pt")


def test_defaults_may_be_handed_in(tmp_path: Path) -> None:
    goes_on(ExactGP(*data()), tmp_path / "model.pt", covar_module=default_kernel(2, Size()))


def test_a_default_that_was_changed_is_handed_in(tmp_path: Path) -> None:
    def changed() -> Kernel:
        return like_the_default(lengthscale_prior=NormalPrior(0.0, 1.0))

    model = ExactGP(*data())
    model.covar_module = changed().double()
    model.save(tmp_path / "model.pt")
    with pytest.raises(InputError, match="covar_module"):
        load(tmp_path / "model.pt")
    goes_on(model, tmp_path / "model.pt", covar_module=changed())


def by_name(kernel: Kernel) -> Kernel:
    kernel.register_prior("lengthscale_prior", GammaPrior(2.0, 3.0), "lengthscale")
    return kernel


def constrained(kernel: Kernel) -> Kernel:
    kernel.register_constraint("raw_lengthscale", Interval(0.1, 5.0))
    return kernel


def shared() -> Kernel:
    kernel = RBFKernel()
    return ScaleKernel(kernel) + ScaleKernel(kernel) * ConstantKernel()


def frozen() -> Kernel:
    kernel = RBFKernel()
    kernel.raw_lengthscale.requires_grad_(False)
    return ScaleKernel(kernel)


def of_one_prior() -> Kernel:
    prior, floor = GammaPrior(2.0, 2.0), GreaterThan(1e-3)
    base = RBFKernel(lengthscale_prior=prior, lengthscale_constraint=floor)
    return ScaleKernel(base, outputscale_prior=prior, outputscale_constraint=floor)


class OwnKernel(RBFKernel):
    pass


def squared(x: Tensor) -> Tensor:
    return x.square()


KERNELS: dict[str, Callable[[], Kernel]] = {
    "periodic": lambda: PeriodicKernel(period_length_prior=LogNormalPrior(0.0, 1.0)),
    "sum of three": lambda: RBFKernel(active_dims=[0]) + MaternKernel(active_dims=[1]) + RQKernel(),
    "prior by name": lambda: by_name(RBFKernel()),
    "interval, afterwards": lambda: constrained(RBFKernel()),
    "shared kernel": shared,
    "shared prior": of_one_prior,
    "frozen": frozen,
    "own class": lambda: ScaleKernel(OwnKernel()),
    "own transform": lambda: RBFKernel(lengthscale_constraint=Positive(squared, torch.sqrt)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_ones_own(name: str, tmp_path: Path) -> None:
    model = ExactGP(*data(), bounds=BOUNDS, covar_module=KERNELS[name]())
    needs(model, tmp_path / "model.pt", "covar_module", KERNELS[name])
    again = load(tmp_path / "model.pt", covar_module=KERNELS[name]())
    learned = {k: p.requires_grad for k, p in model.named_parameters()}
    assert {k: p.requires_grad for k, p in again.named_parameters()} == learned


def like_the_default(**given: Any) -> Kernel:
    """The default kernel but for a prior or constraint."""
    kernel: Any = default_kernel(2, Size())
    for name, part in given.items():
        if name.endswith("prior"):
            kernel.base_kernel.register_prior(name, part, "lengthscale")
        else:
            kernel.base_kernel.register_constraint(name, part)
    return kernel


def test_a_prior_or_constraint_makes_a_kernel_ones_own(tmp_path: Path) -> None:
    """Also one of the same class as the default's, of which the state tells nothing."""
    for given in (
        {"lengthscale_prior": LogNormalPrior(0.0, 1.0, transform=torch.exp)},
        {"lengthscale_prior": NormalPrior(0.0, 1.0)},
        {"raw_lengthscale": GreaterThan(0.025, transform=torch.exp, inv_transform=torch.log)},
    ):
        model = ExactGP(*data(), covar_module=like_the_default(**given))
        needs(model, tmp_path / "model.pt", "covar_module", partial(like_the_default, **given))
        with pytest.raises(InputError, match="covar_module"):
            load(tmp_path / "model.pt", covar_module=default_kernel(2, Size()))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    ExactGP(*data(), covar_module=RBFKernel(), mean_module=ZeroMean()).save(path)
    with pytest.raises(InputError, match=r"covar_module=\.\.\., mean_module="):
        load(path)
    for wrong in (MaternKernel(), RBFKernel(ard_num_dims=2)):
        with pytest.raises(InputError, match=r"covar_module of class .*RBFKernel; got"):
            load(path, covar_module=wrong, mean_module=ZeroMean())
    with pytest.raises(InputError, match="one of covar_module.*got window"):
        load(path, covar_module=RBFKernel(), mean_module=ZeroMean(), window=3)


def test_kernels_of_counts_and_classifiers(tmp_path: Path) -> None:
    """Theirs is of one output, whatever the number of classes."""
    (X, Y), path = data(), tmp_path / "model.pt"
    counts = CountGP(X, (5.0 * Y[:, 0]).round(), 20, bounds=BOUNDS, covar_module=OwnKernel())
    labels = ["high" if y > 2.0 else "low" for y in Y[:, 0]]
    classes = DirichletClassifier(X, labels, bounds=BOUNDS, covar_module=OwnKernel())
    for model, more in ((counts, torch.ones(12)), (classes, labels)):
        model.save(path)
        with pytest.raises(InputError, match="covar_module of class .*OwnKernel"):
            load(path)
        again = load(path, covar_module=OwnKernel())
        assert_same_state(snapshot(again), snapshot(model))
        for each in (model, again):
            each.observe(X, more)
        assert_same_state(snapshot(again), snapshot(model))


def test_policies_of_ones_own(tmp_path: Path) -> None:
    class OwnVIPS(VIPS):
        pass

    path = tmp_path / "model.pt"
    goes_on(OnlineSGPR(*data(), growth=Pruned(VIPS(0.1))), path)
    model = OnlineSGPR(*data(), growth=OwnVIPS())
    model.save(path)
    with pytest.raises(InputError, match="growth of class .*OwnVIPS"):
        load(path)
    goes_on(model, path, growth=OwnVIPS())


INPUTS = {
    "learned": lambda: Normalize(2),
    "of bounds": lambda: Normalize(2, bounds=BOUNDS),
    "none": lambda: None,
}
OWN_INPUTS = {
    "off centre": lambda: Normalize(2, bounds=BOUNDS, center=0.0),
    "one column": lambda: Normalize(2, indices=[1]),
    "standardised": lambda: InputStandardize(2),
    "chained": lambda: ChainedInputTransform(log=Log10(indices=[0]), unit=Normalize(2)),
    "reversed": lambda: Normalize(2, bounds=BOUNDS, reverse=True),
}


@pytest.mark.parametrize("name", [*INPUTS, *OWN_INPUTS])
def test_input_transforms(name: str, tmp_path: Path) -> None:
    """WISKI's grid covers the transformed bounds: it is the same grid only with their values."""
    make, path = (INPUTS | OWN_INPUTS)[name], tmp_path / "model.pt"
    model = WISKI(*data(), bounds=BOUNDS, grid_size=(9, 11), input_transform=make())
    if name in INPUTS:
        assert goes_on(model, path).grid == model.grid
    else:
        needs(model, path, "input_transform", make)


OUTCOMES = {"standardised": lambda: Standardize(1), "none": lambda: None}
OWN_OUTCOMES = {
    "logarithm": Log,
    "power": lambda: Power(0.5),
    "chained": lambda: ChainedOutcomeTransform(log=Log(), unit=Standardize(1)),
}


@pytest.mark.parametrize("name", [*OUTCOMES, *OWN_OUTCOMES])
def test_outcome_transforms(name: str, tmp_path: Path) -> None:
    make, path = (OUTCOMES | OWN_OUTCOMES)[name], tmp_path / "model.pt"
    model = ExactGP(*data(), bounds=BOUNDS, outcome_transform=make())
    if name in OUTCOMES:
        goes_on(model, path)
    else:
        needs(model, path, "outcome_transform", make)


MODULES: dict[str, tuple[str, Callable[[], Any]]] = {
    "constrained mean": (
        "mean_module",
        lambda: ConstantMean(
            constant_prior=NormalPrior(0.0, 1.0), constant_constraint=Interval(-3.0, 3.0)
        ),
    ),
    "zero mean": ("mean_module", ZeroMean),
    "noise": (
        "likelihood",
        lambda: GaussianLikelihood(
            noise_prior=GammaPrior(1.1, 0.05), noise_constraint=GreaterThan(1e-5)
        ),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_means_and_likelihoods(name: str, tmp_path: Path) -> None:
    argument, make = MODULES[name]
    model: Any = ExactGP(*data(), **{argument: make()})
    needs(model, tmp_path / "model.pt", argument, make)


@pytest.mark.parametrize("likelihood", [None, GaussianLikelihood()])
def test_known_noise(likelihood: Any, tmp_path: Path) -> None:
    """BoTorch's view of the noise comes back too; so does one known up to a factor."""
    X, Y = data()
    noise = torch.full_like(Y, 0.02)
    model = ExactGP(X, Y, noise, likelihood=likelihood)
    model.save(tmp_path / "model.pt")
    own = {} if likelihood is None else {"likelihood": GaussianLikelihood()}
    if own:
        with pytest.raises(InputError, match=r"likelihood=\.\.\."):
            load(tmp_path / "model.pt")
    assert torch.equal(load(tmp_path / "model.pt", **own).likelihood.noise, model.likelihood.noise)
    goes_on(model, tmp_path / "model.pt", noise[:6], **own)


def test_several_outputs_and_float32(tmp_path: Path) -> None:
    X, Y = (t.float() for t in data(outputs=2))
    model = WISKI(X, Y, bounds=BOUNDS, grid_size=9)
    assert goes_on(model, tmp_path / "model.pt").dtype == torch.float32


def test_few_points_make_a_small_file(tmp_path: Path) -> None:
    """Sums over 900 nodes take 6.6 MB, nearly all of it zeros."""
    model = WISKI(*data(), bounds=BOUNDS, grid_size=30)
    goes_on(model, tmp_path / "model.pt")
    assert (tmp_path / "model.pt").stat().st_size < 1_000_000


def test_grids_given_node_by_node(tmp_path: Path) -> None:
    """Thirds have no exact step: only the nodes themselves give the same grid."""
    nodes = [torch.linspace(-1.0 / 3.0, 7.0 / 3.0, 13), torch.linspace(0.1, 1.9, 12)]
    model = WISKI(*data(), grid=nodes, input_transform=None)
    assert goes_on(model, tmp_path / "model.pt").grid == model.grid


def test_options_of_a_family(tmp_path: Path) -> None:
    model = SVDGP(*data(), window=9, covar_basis=5, slack=2)
    again = goes_on(model, tmp_path / "model.pt")
    assert (again.window, again.covar_basis, again.slack) == (9, 5, 2)


def test_what_was_left_out_stays_left_out(tmp_path: Path) -> None:
    """Such a surrogate may take on the standardisation of a state that is loaded later."""
    X, Y = data()
    for given, taken in (({}, True), ({"outcome_transform": None}, False)):
        model = ExactGP(X[:0], Y[:0], bounds=BOUNDS, **given)  # type: ignore[arg-type]
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert not hasattr(again, "outcome_transform")
        if taken:
            again.load_state_dict(ExactGP(X, Y, bounds=BOUNDS).state_dict())
            assert isinstance(again.outcome_transform, Standardize)
        else:
            with pytest.raises(StateError):
                again.load_state_dict(ExactGP(X, Y, bounds=BOUNDS).state_dict())


@pytest.mark.filterwarnings("ignore:No outcome_transform")
def test_an_interrupted_load_takes_over_the_standardisation_with_the_data_or_not() -> None:
    """At some lines, and at each of the last, where the state is replaced."""
    saved = ExactGP(*data()).state_dict()
    lines = lines_of(lambda: ExactGP(*data(0)).load_state_dict(saved))
    built = lines_of(lambda: ExactGP(*data(0)))
    total = lines - built
    for line in [*range(1, total - 30, 60), *range(total - 30, total + 1)]:
        model = ExactGP(*data(0))
        interrupted(lambda model=model: model.load_state_dict(saved), line)  # type: ignore[misc]
        assert hasattr(model, "outcome_transform") == (model.num_observed > 0)


def test_another_standardisation(tmp_path: Path) -> None:
    X, Y = data()
    goes_on(ExactGP(X, Y).restandardise(3.0 * Y), tmp_path / "model.pt")


def test_in_a_fresh_process(tmp_path: Path) -> None:
    model = WISKI(*data(), bounds=BOUNDS, grid_size=9)
    model.fit(3)
    X, Y = data(5, seed=2)
    torch.save([X, Y], tmp_path / "batch.pt")
    model.save(tmp_path / "model.pt")
    script = (
        "import sys, torch, bo_stream; torch.set_num_threads(1)\n"
        "model = bo_stream.load(sys.argv[1] + '/model.pt')\n"
        "model.observe(*torch.load(sys.argv[1] + '/batch.pt')).fit(3)\n"
        "torch.save(model.state_dict(), sys.argv[1] + '/after.pt')\n"
    )
    root = str(Path(checkpoint.__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    model.observe(X, Y).fit(3)
    assert_same_state(snapshot(model), torch.load(tmp_path / "after.pt", weights_only=True))


class OwnFamily(ExactGP):
    """A family of one's own, with an option."""

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Any = None,
        *,
        name: str = "a",
        **kw: Any,
    ) -> None:
        self.__dict__["name"] = name
        super().__init__(train_X, train_Y, train_Yvar, **kw)


def test_families_of_ones_own(tmp_path: Path) -> None:
    """They are found among the classes that have been imported."""
    again = goes_on(OwnFamily(*data(), name="b"), tmp_path / "model.pt")
    assert again.name == "b"


# -- what is refused when it is loaded ----------------------------------------------------------


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
    document["arguments"]["evil"] = Evil(path.with_name("mark"))
    torch.save(document, path)
    with pytest.raises(StateError, match="complete file"):
        load(path)
    assert not path.with_name("mark").exists()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "version": lambda d: d.update(version=1),
    "format": lambda d: d.update(format="other"),
    "family": lambda d: d.update({"class": "bo_stream.Other"}),
    "abstract family": lambda d: d.update({"class": "bo_stream.StreamingGP"}),
    "state": lambda d: d.pop("state"),
    "header": lambda d: d["state"].pop("_extra_state"),
    "truncated": lambda d: d["state"].update({"stream.state_X": d["state"]["stream.state_X"][:3]}),
    "type": lambda d: d.update(arguments=[1]),
    "option": lambda d: d["arguments"].update(steps=3),
    "class": lambda d: d["arguments"].update(bounds={"class": "os.system"}),
    "noise": lambda d: d["arguments"].update(train_Yvar=d["arguments"]["train_Y"]),
    "prior": lambda d: d["numbers"]["covar_module"].add_(1.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_files_are_refused(name: str, path: Path) -> None:
    document = torch.load(path, weights_only=True)
    CHANGES[name](document)
    torch.save(document, path)
    with pytest.raises(InputError if name in ("noise", "prior") else StateError):
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
