"""Checkpoints: what comes back, what is refused when it is saved, what is refused when loaded."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from botorch.models.transforms.input import (
    AffineInputTransform,
    ChainedInputTransform,
    InputStandardize,
    Log10,
    Normalize,
    Round,
)
from botorch.models.transforms.outcome import (
    Bilog,
    ChainedOutcomeTransform,
    Log,
    Power,
    Standardize,
)
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.priors import (
    GammaPrior,
    HalfCauchyPrior,
    HalfNormalPrior,
    HorseshoePrior,
    LogNormalPrior,
    MultivariateNormalPrior,
    NormalPrior,
    SmoothedBoxPrior,
    UniformPrior,
)
from torch import Tensor

from bo_stream import SVDGP, WISKI, ExactGP, load
from bo_stream.base import checkpoint
from bo_stream.base.loading import unpacked
from bo_stream.errors import StateError
from bo_stream.testing.base import assert_same_state, snapshot

BOUNDS = torch.tensor([[0.5, 0.5], [1.5, 1.5]], dtype=torch.float64)


def data(n: int = 12, seed: int = 0, outputs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = 0.5 + torch.rand(n, 2, generator=generator, dtype=torch.float64)
    return X, 1.5 + (3.0 * X.sum(-1, keepdim=True) + torch.arange(outputs)).sin()


def goes_on(model: Any, path: Path, *noise: Tensor) -> Any:
    """Save, load, and let both go on; bit-identical throughout. The loaded one."""
    before, random = snapshot(model), torch.get_rng_state()
    model.save(path)
    again = load(path)
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


def rbf(**given: Any) -> Callable[[], Kernel]:
    return lambda: RBFKernel(ard_num_dims=2, **given)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "matern": lambda: ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)),
    "rational quadratic": RQKernel,
    "periodic": lambda: PeriodicKernel(period_length_prior=LogNormalPrior(0.0, 1.0)),
    "linear": lambda: LinearKernel(ard_num_dims=2, variance_prior=HalfCauchyPrior(1.0)),
    "polynomial": lambda: PolynomialKernel(power=2, offset_prior=NormalPrior(0.0, 1.0)),
    "constant": lambda: ConstantKernel(constant_prior=HalfNormalPrior(2.0)) + RBFKernel(),
    "sum of three": lambda: RBFKernel(active_dims=[0]) + MaternKernel(active_dims=[1]) + RQKernel(),
    "product": lambda: RBFKernel(active_dims=[0]) * MaternKernel(nu=0.5, active_dims=[1]),
    "spectral mixture": lambda: SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2),
    "piecewise polynomial": lambda: PiecewisePolynomialKernel(q=1),
    "of botorch": lambda: CategoricalKernel(ard_num_dims=2),
    "prior by name": lambda: by_name(RBFKernel()),
    "gamma": rbf(lengthscale_prior=GammaPrior(3.0, 6.0)),
    "uniform": rbf(lengthscale_prior=UniformPrior(0.01, 9.0)),
    "smoothed box": rbf(lengthscale_prior=SmoothedBoxPrior(0.1, 3.0, 0.2)),
    "horseshoe": rbf(lengthscale_prior=HorseshoePrior(0.3)),
    "multivariate": rbf(
        lengthscale_prior=MultivariateNormalPrior(
            torch.zeros(2), covariance_matrix=2.0 * torch.eye(2)
        )
    ),
    "prior of logarithms": rbf(lengthscale_prior=NormalPrior(0.0, 1.0, transform=torch.log)),
    "interval, afterwards": lambda: constrained(RBFKernel()),
    "intervals": rbf(lengthscale_constraint=Interval(torch.tensor([0.1, 0.2]), torch.tensor(4.0))),
    "less than": rbf(lengthscale_constraint=LessThan(9.0)),
    "started": rbf(lengthscale_constraint=GreaterThan(0.01, initial_value=0.4)),
    "unenforced": rbf(lengthscale_constraint=GreaterThan(0.01, transform=None, initial_value=0.4)),
    "exponential": rbf(
        lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log)
    ),
    "shared kernel": shared,
    "shared prior": of_one_prior,
    "frozen": frozen,
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_priors_and_constraints(name: str, tmp_path: Path) -> None:
    model = ExactGP(*data(), bounds=BOUNDS, covar_module=KERNELS[name]())
    again = goes_on(model, tmp_path / "model.pt")
    learned = {k: p.requires_grad for k, p in model.named_parameters()}
    assert {k: p.requires_grad for k, p in again.named_parameters()} == learned


def test_shared_kernels_stay_shared(tmp_path: Path) -> None:
    ExactGP(*data(), covar_module=shared()).save(tmp_path / "model.pt")
    kernel: Any = load(tmp_path / "model.pt").covar_module
    assert kernel.kernels[0].base_kernel is kernel.kernels[1].kernels[0].base_kernel


INPUTS = {
    "learned": lambda: Normalize(2),
    "of bounds": lambda: Normalize(2, bounds=BOUNDS, center=0.0),
    "one column": lambda: Normalize(2, indices=[1]),
    "standardised": lambda: InputStandardize(2),
    "affine": lambda: AffineInputTransform(2, torch.tensor([2.0, 3.0]), torch.tensor([0.1, 0.2])),
    "chained": lambda: ChainedInputTransform(log=Log10(indices=[0]), unit=Normalize(2)),
    "reversed": lambda: Normalize(2, bounds=BOUNDS, reverse=True),
    "none": lambda: None,
}


@pytest.mark.parametrize("name", INPUTS)
def test_input_transforms(name: str, tmp_path: Path) -> None:
    """WISKI's grid covers the transformed bounds: it is the same grid only with their values."""
    transform = INPUTS[name]()
    model = WISKI(*data(), bounds=BOUNDS, grid_size=(9, 11), input_transform=transform)
    assert goes_on(model, tmp_path / "model.pt").grid == model.grid


def test_rounding_inputs(tmp_path: Path) -> None:
    rounded = Round(integer_indices=[0], approximate=True)
    goes_on(ExactGP(*data(), input_transform=rounded), tmp_path / "model.pt")


OUTCOMES = {
    "standardised": lambda: Standardize(1),
    "logarithm": Log,
    "power": lambda: Power(0.5),
    "bilog": Bilog,
    "chained": lambda: ChainedOutcomeTransform(log=Log(), unit=Standardize(1)),
    "none": lambda: None,
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcome_transforms(name: str, tmp_path: Path) -> None:
    model = ExactGP(*data(), bounds=BOUNDS, outcome_transform=OUTCOMES[name]())
    goes_on(model, tmp_path / "model.pt")


MODULES = {
    "constant mean": {
        "mean_module": ConstantMean(
            constant_prior=NormalPrior(0.0, 1.0), constant_constraint=Interval(-3.0, 3.0)
        )
    },
    "zero mean": {"mean_module": ZeroMean()},
    "noise": {
        "likelihood": GaussianLikelihood(
            noise_prior=GammaPrior(1.1, 0.05), noise_constraint=GreaterThan(1e-5)
        )
    },
}


@pytest.mark.parametrize("name", MODULES)
def test_means_and_likelihoods(name: str, tmp_path: Path) -> None:
    goes_on(ExactGP(*data(), **MODULES[name]), tmp_path / "model.pt")


def test_noise_priors_by_name(tmp_path: Path) -> None:
    likelihood = GaussianLikelihood()
    likelihood.noise_covar.register_prior("noise_prior", GammaPrior(2.0, 3.0), "noise")
    goes_on(ExactGP(*data(), likelihood=likelihood), tmp_path / "model.pt")


@pytest.mark.parametrize("likelihood", [None, GaussianLikelihood()])
def test_known_noise(likelihood: Any, tmp_path: Path) -> None:
    """BoTorch's view of the noise comes back too."""
    X, Y = data()
    noise = torch.full_like(Y, 0.02)
    model = ExactGP(X, Y, noise, likelihood=likelihood)
    model.save(tmp_path / "model.pt")
    assert torch.equal(load(tmp_path / "model.pt").likelihood.noise, model.likelihood.noise)
    goes_on(model, tmp_path / "model.pt", noise[:6])


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


def test_another_standardisation(tmp_path: Path) -> None:
    X, Y = data()
    goes_on(ExactGP(X, Y).restandardise(3.0 * Y), tmp_path / "model.pt")


def test_metadata_as_a_mapping() -> None:
    """As releases before this one stored them in a `state_dict`."""
    X, Y = data()
    model, again = WISKI(X, Y, bounds=BOUNDS), WISKI(X[:0], Y[:0], bounds=BOUNDS)
    state = model.state_dict()
    again.load_state_dict({**state, "_extra_state": unpacked(state["_extra_state"])})
    assert_same_state(snapshot(again), snapshot(model))


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
