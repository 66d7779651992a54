import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import ExpectedImprovement
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.exceptions.errors import UnsupportedError as BotorchUnsupportedError
from botorch.exceptions.warnings import NumericsWarning
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf

from acquisitions import NAMES, NIPV, MaxVariance, Random, ThompsonSampling, build
from acquisitions.build import sampler_for
from bo_stream import WISKI, ExactGP, WarpedGP
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import InputError

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
X = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = 5.0 - 10.0 * (X - 0.6).square().sum(-1, keepdim=True)
CLASSES = {
    "qucb": qUpperConfidenceBound,
    "ei": ExpectedImprovement,
    "qlogei": qLogExpectedImprovement,
    "qlognei": qLogNoisyExpectedImprovement,
    "nipv": NIPV,
    "max_variance": MaxVariance,
    "random": Random,
}
GIVEN = {"X_baseline": X, "best_f": float(Y.max()), "mc_points": X.flip(-1)}
pytestmark = pytest.mark.filterwarnings(f"ignore::{NumericsWarning.__module__}.NumericsWarning")


def surrogate(family: type[StreamingGP]) -> StreamingGP:
    return family(X, Y, bounds=BOUNDS, outcome_transform=Standardize(1))


def test_the_names_are_those_pinned() -> None:
    assert list(NAMES) == [*CLASSES, "thompson"]
    assert isinstance(build("thompson", surrogate(WISKI)), ThompsonSampling)


@pytest.mark.parametrize("family", [WISKI, ExactGP])
@pytest.mark.parametrize("name", CLASSES)
def test_each_is_built_and_optimised(family: type[StreamingGP], name: str) -> None:
    torch.manual_seed(0)
    acqf = build(name, surrogate(family), **GIVEN)
    assert isinstance(acqf, AcquisitionFunction) and isinstance(acqf, CLASSES[name])
    q = 1 if name == "ei" else 2
    options = {"maxiter": 5}
    batch, value = optimize_acqf(acqf, BOUNDS, q=q, num_restarts=2, raw_samples=16, options=options)
    assert batch.shape == (q, 2) and bool(value.isfinite())
    assert bool(((batch >= 0) & (batch <= 1)).all())


@pytest.mark.parametrize("name", ["qucb", "qlogei", "qlognei"])
def test_those_that_seek_the_maximum_find_it(name: str) -> None:
    torch.manual_seed(0)
    model = surrogate(WISKI)
    model.fit()
    acqf = build(name, model, **GIVEN, beta=0.1)
    best, _ = optimize_acqf(acqf, BOUNDS, q=1, num_restarts=2, raw_samples=32)
    assert float((best - 0.6).abs().max()) < 0.1


@pytest.mark.parametrize(
    ("name", "missing"),
    [("ei", "best_f"), ("qlogei", "best_f"), ("qlognei", "X_baseline"), ("nipv", "mc_points")],
)
def test_what_is_missing_is_named_with_the_remedy(name: str, missing: str) -> None:
    given = {key: value for key, value in GIVEN.items() if key != missing}
    with pytest.raises(InputError, match=rf"{missing} for '{name}'; got none. Pass"):
        build(name, surrogate(WISKI), **given)


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match="qucb, ei, .*, random, thompson"):
        build("ucb", surrogate(WISKI))


def test_options_reach_the_functions() -> None:
    model = surrogate(WISKI)
    qucb = build("qucb", model, beta=9.0, num_samples=16, seed=3)
    assert qucb.sampler.sample_shape == torch.Size([16]) and qucb.sampler.seed == 3
    wider = build("qucb", model, beta=36.0, num_samples=16, seed=3)
    at = X[:1].flip(-1)
    mean = model.posterior(at).mean.squeeze()
    torch.testing.assert_close(wider(at) - mean, 2.0 * (qucb(at) - mean), rtol=1e-2, atol=1e-3)
    weights = torch.zeros(20).double().index_fill(0, torch.tensor([4]), 1.0)
    one = build("nipv", model, mc_points=X, weights=weights)
    torch.testing.assert_close(one(at), NIPV(model, X[4:5])(at), rtol=1e-10, atol=0.0)
    with pytest.raises(TypeError, match="no_such_option"):
        build("qucb", model, no_such_option=1)
    with pytest.raises(TypeError, match="maximize"):  # an option of another function
        build("qlogei", model, best_f=1.0, maximize=False)


@pytest.mark.parametrize("name", ["qucb", "qlogei", "qlognei", "nipv", "max_variance"])
def test_pending_points_are_passed_on(name: str) -> None:
    model, at = surrogate(WISKI), X[:1].flip(-1)
    torch.manual_seed(0)
    free = build(name, model, **GIVEN, seed=0)(at)
    torch.manual_seed(0)
    pending = build(name, model, **GIVEN, seed=0, X_pending=at + 0.01)(at)
    assert abs(float(free - pending)) > 1e-6


def test_analytic_expected_improvement_refuses_pending_points() -> None:
    with pytest.raises(BotorchUnsupportedError, match="pending"):
        build("ei", surrogate(WISKI), best_f=0.0, X_pending=X[:1])


def test_outcomes_of_a_list_without_a_joint_posterior_are_sampled_independently() -> None:
    """Warped ones, say; with one seed BoTorch's own samples rise and fall together."""
    Y = -(6.0 * (X - 0.3).square().sum(-1, keepdim=True)).exp()
    members = [WarpedGP(X, a * Y, bounds="unit") for a in (1.0, 2.0)]
    for member in members:
        member.fit()
    assert all(member.is_warped for member in members)
    models, at = ModelListGP(*members), X[:1].flip(-1)
    sampler = sampler_for(models, torch.Size([512]), seed=0)
    rows = sampler(models.posterior(at)).squeeze(-2).T
    assert abs(float(torch.corrcoef(rows.argsort().argsort().double())[0, 1])) < 0.15
    reference = torch.tensor([-9.0, -9.0]).double()
    assert build("qlognehvi", models, X_baseline=X, ref_point=reference, seed=0)(at).isfinite()


@pytest.mark.parametrize("name", ["ei", "nipv", "qlogei", "qlognei", "qucb"])
def test_what_is_built_in_inference_mode_has_gradients_later(name):
    X = torch.rand(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = ExactGP(X, X.sum(-1, keepdim=True), bounds="unit")
    options = {"best_f": 1.0, "mc_points": X, "X_baseline": X, "num_samples": 8, "seed": 0}
    with torch.inference_mode():
        built = build(name, model, **options)
    x, z = (X[:2, None].clone().requires_grad_() for _ in range(2))
    built(x).sum().backward()
    build(name, model, **options)(z).sum().backward()
    torch.testing.assert_close(x.grad, z.grad)
