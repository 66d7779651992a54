"""Synthetic problems against BoTorch's own functions and published optima."""

import pytest
import torch
from botorch import test_functions as tf
from hypothesis import given
from hypothesis import strategies as st

from problems import SyntheticProblem, synthetic

STUDY = {
    "Levy": (tf.Levy, 10.0),
    "Ackley": (tf.Ackley, 4.0),
    "StyblinskiTang": (tf.StyblinskiTang, 20.0),
    "Rastrigin": (tf.Rastrigin, 10.0),
    "Griewank": (tf.Griewank, 4.0),
    "Michalewicz": (tf.Michalewicz, 5.0),
}
OTHERS = [
    *[(n, d) for n in ("dixonprice", "rosenbrock", "rastrigin", "michalewicz") for d in (2, 5)],
    *[(n, 2) for n in ("beale", "branin", "bukin", "dropwave", "eggholder", "holdertable")],
    *[("sixhumpcamel", 2), ("threehumpcamel", 2), ("shekel", 4), ("powell", 4), ("powell", 8)],
    *[("hartmann", d) for d in (3, 6)],
]


def cube(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", STUDY)
def test_values_are_botorchs_negated_on_the_unit_cube(name: str) -> None:
    botorch_class, noise_std = STUDY[name]
    function = botorch_class(dim=3)
    problem = synthetic(name)
    X = torch.cat([cube(20, 3), torch.zeros(1, 3).double(), torch.ones(1, 3).double()])
    raw = function.bounds[0] + X * (function.bounds[1] - function.bounds[0])
    assert problem.noise_std == noise_std
    assert problem.dim == 3
    assert torch.equal(problem.bounds, torch.tensor([[0.0] * 3, [1.0] * 3]).double())
    torch.testing.assert_close(problem.evaluate_true(X).squeeze(-1), -function.evaluate_true(raw))


@pytest.mark.parametrize(("name", "dim"), [*[(n, 3) for n in STUDY], *OTHERS])
def test_the_optimum_is_attained_and_never_exceeded(name: str, dim: int) -> None:
    problem = synthetic(name, dim=dim)
    random = problem.evaluate_true(cube(4096, dim))
    assert random.max() <= problem.optimal_value
    if len(problem.optimizers):
        attained = problem.evaluate_true(problem.optimizers)
        # published optimisers and optima carry four to six digits
        tolerance = 1e-4 * (1.0 + abs(problem.optimal_value))
        assert attained.max() <= problem.optimal_value
        assert (attained - problem.optimal_value).abs().max() <= tolerance


@pytest.mark.parametrize(("dim", "published"), [(2, 1.8013034), (5, 4.687658), (10, 9.66015)])
def test_michalewicz_optimum_agrees_with_the_published_ones(dim: int, published: float) -> None:
    assert synthetic("michalewicz", dim=dim).optimal_value == pytest.approx(published, abs=1e-5)


def test_michalewicz_optimum_in_three_dimensions_by_local_search() -> None:
    """A slow oracle: L-BFGS on the joint function from many starts finds nothing better."""
    problem = synthetic("michalewicz", dim=3)
    X = cube(2048, 3)
    X = X[problem.evaluate_true(X).squeeze(-1).topk(64).indices].requires_grad_()
    optimizer = torch.optim.LBFGS(
        [X], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = -problem.evaluate_true(X.clamp(0.0, 1.0)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    best = problem.evaluate_true(X.detach().clamp(0.0, 1.0)).max().item()
    assert best == pytest.approx(problem.optimal_value, abs=1e-6)
    assert best <= problem.optimal_value + 1e-12


def test_styblinski_tang_optimum_is_stationary() -> None:
    """Each coordinate's optimum is the least root of 2 x^3 - 16 x + 5/2 = 0."""
    problem = synthetic("styblinskitang", dim=3)
    x = problem.optimizers * 10.0 - 5.0
    assert (2.0 * x**3 - 16.0 * x + 2.5).abs().max() < 1e-5
    assert problem.optimal_value == pytest.approx(3 * 39.16616570377142, abs=1e-10)


def test_noise_has_the_stated_level_and_is_independent() -> None:
    problem = synthetic("levy", seed=1)
    X = cube(1, 3).expand(20_000, 3)
    noise = problem(X) - problem.evaluate_true(X)
    assert noise.std().item() == pytest.approx(10.0, rel=0.03)  # standard error 0.5 %
    assert noise.mean().item() == pytest.approx(0.0, abs=0.3)  # standard error 0.07


def test_a_seed_makes_the_noise_repeatable_and_leaves_torchs_generator_alone() -> None:
    X = cube(8, 3)
    before = torch.get_rng_state()
    first, second = synthetic("ackley", seed=3), synthetic("ackley", seed=3)
    Y = first(X)
    assert torch.equal(Y, second(X))
    assert not torch.equal(Y, first(X))
    assert not torch.equal(Y, synthetic("ackley", seed=4)(X))
    assert torch.equal(Y, first(X, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_torchs_generator_decides() -> None:
    X = cube(8, 3)
    torch.manual_seed(0)
    Y = synthetic("ackley")(X)
    torch.manual_seed(0)
    assert torch.equal(Y, synthetic("ackley")(X))


def test_zero_noise_is_the_truth() -> None:
    problem = synthetic("griewank", noise_std=0.0)
    X = cube(8, 3)
    assert torch.equal(problem(X), problem.evaluate_true(X))
    assert synthetic("branin", dim=2).noise_std == 0.0
    assert synthetic("levy", dim=2, noise_std=0.5).noise_std == 0.5


@given(batch=st.lists(st.integers(0, 3), max_size=2), n=st.integers(0, 4))
def test_shapes(batch: list[int], n: int) -> None:
    problem = synthetic("rastrigin", dim=2)
    X = cube(*batch, n, 2)
    assert problem(X).shape == (*batch, n, 1)
    assert problem.evaluate_true(X).shape == (*batch, n, 1)


def test_dtype_follows_the_input_and_values_stay_accurate() -> None:
    problem = synthetic("hartmann", dim=6, seed=0)
    X = cube(16, 6)
    single = problem.evaluate_true(X.float())
    assert single.dtype == torch.float32
    assert problem(X.float()).dtype == torch.float32
    torch.testing.assert_close(single.double(), problem.evaluate_true(X), rtol=1e-5, atol=1e-5)
    assert problem.evaluate_true(X).dtype == torch.float64


def test_gradients_reach_the_inputs() -> None:
    X = cube(4, 3).requires_grad_()
    problem = synthetic("levy")
    assert torch.autograd.gradcheck(problem.evaluate_true, (X,))


@pytest.mark.gpu
def test_runs_where_the_input_lies() -> None:
    X = cube(4, 3)
    problem = synthetic("levy", seed=0)
    on_device = problem(X.cuda())
    assert on_device.is_cuda
    torch.testing.assert_close(on_device.cpu(), synthetic("levy", seed=0)(X))


@pytest.mark.parametrize("spelling", ["LEVY", "Levy", "levy"])
def test_names_ignore_case(spelling: str) -> None:
    assert synthetic(spelling).name == "levy"
    assert synthetic("Styblinski-Tang").name == synthetic("styblinski_tang").name
    assert repr(synthetic(spelling)) == "SyntheticProblem('levy', dim=3, noise_std=10)"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"name": "lewy"}, "Use one of"),
        ({"name": "branin", "dim": 3}, "expected dim to be 2, got 3"),
        ({"name": "hartmann", "dim": 4}, "3 or 6"),
        ({"name": "powell", "dim": 6}, "multiple of 4"),
        ({"name": "rosenbrock", "dim": 1}, "at least 2"),
        ({"name": "levy", "dim": 0}, "positive int"),
        ({"name": "levy", "dim": 2.0}, "positive int"),
        ({"name": "levy", "noise_std": -1.0}, "noise_std >= 0"),
        ({"name": "levy", "noise_std": float("nan")}, "noise_std >= 0"),
    ],
)
def test_refusals_name_the_remedy(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic(**kwargs)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (torch.rand(3), "unsqueeze"),
        (torch.rand(4, 2), "batch_shape x n x 3"),
        (torch.zeros(4, 3, dtype=torch.long), "floating-point"),
        (torch.full((2, 3), 1.1), "unit cube"),
        (torch.full((2, 3), -0.1), "unit cube"),
        (torch.full((2, 3), float("nan")), "unit cube"),
    ],
)
def test_bad_inputs_are_refused(X: torch.Tensor, message: str) -> None:
    problem: SyntheticProblem = synthetic("levy")
    for evaluate in (problem, problem.evaluate_true):
        with pytest.raises(ValueError, match=message):
            evaluate(X)


MOVABLE = [(n, d) for n in (*STUDY, "dixonprice", "rosenbrock") for d in (3, 10)]


@pytest.mark.parametrize(("name", "dim"), [*MOVABLE, ("hartmann", 3), ("hartmann", 6)])
@pytest.mark.parametrize("moved", [0, 1])
def test_a_moved_box_keeps_the_maximum_elsewhere_inside(name: str, dim: int, moved: int) -> None:
    plain, problem = synthetic(name, dim=dim), synthetic(name, dim=dim, moved=moved)
    assert problem.optimal_value == plain.optimal_value
    best = problem.optimizers[0]
    assert best.min() >= 0.05 - 1e-12 and best.max() <= 0.95 + 1e-12
    assert 0.01 < (best - plain.optimizers[0]).abs().max() <= 0.2 + 1e-12
    attained = problem.evaluate_true(problem.optimizers)
    scale = 1.0 + abs(plain.optimal_value)
    assert (attained - plain.optimal_value).abs().max() <= 1e-4 * scale
    assert problem.evaluate_true(cube(4096, dim)).max() <= plain.optimal_value
    again = synthetic(name, dim=dim, moved=moved)
    assert torch.equal(again.evaluate_true(cube(8, dim)), problem.evaluate_true(cube(8, dim)))


def test_a_box_that_cannot_be_moved_is_refused() -> None:
    with pytest.raises(ValueError, match="moved=None for branin"):
        synthetic("branin", dim=2, moved=0)
