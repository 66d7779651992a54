"""Growth policies against naive loops, index for index, and their common promises."""

import itertools
import math

import gpytorch
import pytest
import torch

from bo_stream.errors import InputError, ShapeError
from bo_stream.growth import (
    OIPS,
    VIPS,
    ConditionalVariance,
    Covering,
    FixedGrid,
    FixedSize,
    GrowthPolicy,
    Prescribed,
    Pruned,
    Selection,
)
from bo_stream.growth.policies import drop_losses, inducing_points, selected_update
from bo_stream.mathematics.inducing import (
    GreedyVariance,
    dense,
    log_noise_model,
    merged_moments,
    optimal_bound,
    predict,
)
from tests.bo_stream.mathematics.sgpr_cases import data, se_kernel, start, step

JITTER = 1e-8


def case(seed, M=6, N=30, d=2, spread=0.5, ls=0.4, noise=0.05):
    """An old state of M points, a new batch partly elsewhere, and the kernel of both."""
    kernel = se_kernel(1.4, (ls,) * d)
    first = data(25, d=d, seed=seed, spread=spread, noise=noise)
    state = start(first, 0.2, JITTER)
    if M:
        state = step(state, first, kernel, first.X[:M], 0.2).state
    batch = data(N, d=d, seed=seed + 100, spread=spread, noise=noise)
    return state, type(batch)(batch.X + 0.4, batch.y, batch.noise), kernel


def conditional_variances(kernel, X, Z, scale):
    if not len(Z):
        return dense(kernel, X).diagonal()
    K = dense(kernel, Z) + JITTER * scale * torch.eye(len(Z)).double()
    K_xz = dense(kernel, X, Z)
    return dense(kernel, X).diagonal() - (K_xz * torch.linalg.solve(K, K_xz.mT).mT).sum(-1)


def chosen(old, new):
    return Selection(torch.as_tensor(old, dtype=torch.long), torch.as_tensor(new, dtype=torch.long))


def naive_vips(state, batch, kernel, delta, upper, L_noise):
    entered = []
    L_star = float(optimal_bound(state, batch, kernel))
    while True:
        out = selected_update(state, batch, kernel, chosen(range(state.size), entered))
        U = L_star if upper == "optimal" else float(out.upper)
        if U - float(out.bound) <= delta * abs(U - L_noise):
            return entered
        r = conditional_variances(kernel, batch.X, out.state.Z, 1.4)
        r[entered] = -1.0
        if r.max() <= 10 * JITTER * 1.4:
            return entered
        entered.append(int(r.argmax()))


@pytest.mark.parametrize("upper", ["optimal", "collapsed"])
@pytest.mark.parametrize(
    ("seed", "M", "delta"), [(0, 0, 0.5), (1, 6, 0.035), (2, 0, 0.005), (3, 6, 0.005)]
)
def test_vips_equals_the_naive_loop(seed, M, delta, upper):
    state, batch, kernel = case(seed, M)
    got = VIPS(delta, upper).select(state, batch, kernel)
    mu, sigma = batch.y.mean(), batch.y.std()
    L_noise = float(torch.distributions.Normal(mu, sigma).log_prob(batch.y).sum())
    assert got.entered.tolist() == naive_vips(state, batch, kernel, delta, upper, L_noise)
    assert got.kept.tolist() == list(range(state.size))


def test_vips_reaches_its_gap_and_the_stricter_rule_is_a_longer_prefix():
    state, batch, kernel = case(1)
    loose = VIPS(0.1).select(state, batch, kernel)
    strict = VIPS(0.1, "collapsed").select(state, batch, kernel)
    assert 0 < len(loose.entered) < len(strict.entered) < batch.size
    assert strict.entered.tolist()[: len(loose.entered)] == loose.entered.tolist()
    out = selected_update(state, batch, kernel, loose)
    gap = loose.optimal_bound - float(out.bound)
    assert 0.0 <= gap <= 0.1 * abs(loose.optimal_bound - log_noise_model(batch, 1.0))


def test_noise_model_uses_all_targets_so_far():
    state, batch, kernel = case(2)
    seen = torch.cat([data(25, seed=9).y, batch.y])
    moments = merged_moments(merged_moments(torch.zeros(3).double(), seen[:25]), batch.y)
    told = type(batch)(batch.X, batch.y, batch.noise, moments)
    normal = torch.distributions.Normal(seen.mean(), seen.std())
    want = float(normal.log_prob(batch.y).sum())
    assert log_noise_model(told, 1.0) == pytest.approx(want, rel=1e-12)
    got = VIPS(0.3).select(state, told, kernel)
    assert got.entered.tolist() == naive_vips(state, told, kernel, 0.3, "optimal", want)


@pytest.mark.parametrize("N", [1, 2])
def test_first_point_of_a_stream_enters(N):
    state, batch, kernel = case(0, M=0, N=N)
    same = type(batch)(batch.X, torch.zeros(N).double(), batch.noise)
    assert VIPS().select(state, same, kernel).entered.tolist() == list(range(N))


def test_empty_batch_changes_nothing():
    state, batch, kernel = case(0, N=0)
    for policy in (VIPS(), OIPS(0.9), Pruned(VIPS(), tolerance=0.0)):
        got = policy.select(state, batch, kernel)
        assert (got.kept.tolist(), got.entered.tolist()) == (list(range(6)), [])


@pytest.mark.parametrize(("M", "seed"), list(itertools.product([0, 6], range(2))))
def test_bounds_are_ordered_and_their_gap_is_the_divergence(M, seed):
    state, batch, kernel = case(seed, M, N=12, ls=0.15)
    L_star = float(optimal_bound(state, batch, kernel))
    last = -math.inf
    for count in range(batch.size + 1):
        out = selected_update(state, batch, kernel, chosen(range(M), range(count)))
        L, U = float(out.bound), float(out.upper)
        assert last - 1e-9 <= L <= L_star + 1e-9 <= U + 2e-9
        last = L
        if count in (0, 5):
            want = divergence(state, batch, kernel, out)
            assert L_star - L == pytest.approx(want, rel=1e-5, abs=1e-5)
    assert last == pytest.approx(
        L_star, abs=1e-4
    )  # every point is in Z: jitter is all that is left


def divergence(state, batch, kernel, out):
    """``KL[q_n || q*_n]`` over old points and batch, new ones among it, jointly (MATHS 4.1)."""
    X = torch.cat([state.Z, batch.X])
    q = dist(out.state, kernel, X)
    star = dist(state, kernel, X)  # q*: the old posterior, conditioned on the batch
    S, N = star.covariance_matrix, batch.size
    C = S[-N:, -N:] + torch.diag(batch.noise)
    mean = star.mean + S[:, -N:] @ torch.linalg.solve(C, batch.y - star.mean[-N:])
    cov = S - S[:, -N:] @ torch.linalg.solve(C, S[-N:])
    best = torch.distributions.MultivariateNormal(mean, cov)
    return float(torch.distributions.kl_divergence(q, best))


def dist(state, kernel, X):
    """Joint posterior at X."""
    joint = predict(state, kernel, X)
    return torch.distributions.MultivariateNormal(joint.mean[0], joint.covariance(joint)[0])


@pytest.mark.parametrize(("seed", "eta"), list(itertools.product(range(4), [3.0, 0.3, 0.01])))
def test_conditional_variance_equals_the_naive_loop(seed, eta):
    state, batch, kernel = case(seed)
    pool = torch.cat([state.Z, batch.X])
    order = []
    while (r := conditional_variances(kernel, pool, pool[order], 1.4)).sum() > eta:
        r[order] = -1.0
        order.append(int(r.argmax()))
    got = ConditionalVariance(eta).select(state, batch, kernel)
    assert got.entered.tolist() == [j - 6 for j in order if j >= 6]
    assert got.kept.tolist() == sorted(j for j in order if j < 6)
    greedy = FixedSize(len(order)).select(state, batch, kernel)
    assert greedy.entered.tolist() == got.entered.tolist()
    assert greedy.kept.tolist() == got.kept.tolist()


@pytest.mark.parametrize(("seed", "rho"), list(itertools.product(range(4), [0.5, 0.9, 0.99])))
def test_oips_equals_the_naive_loop(seed, rho):
    state, batch, kernel = case(seed)
    Z, entered = state.Z.clone(), []
    for i, x in enumerate(batch.X):
        if dense(kernel, x.unsqueeze(0), Z).max() < rho * 1.4:
            Z, entered = torch.cat([Z, x.unsqueeze(0)]), [*entered, i]
    got = OIPS(rho).select(state, batch, kernel)
    assert got.entered.tolist() == entered
    assert got.kept.tolist() == list(range(6))
    K = dense(kernel, Z) / 1.4 - torch.eye(len(Z)).double()
    assert K[6:].max() < rho  # pairwise below rho
    assert (dense(kernel, batch.X, Z).max(-1).values >= rho * 1.4 * (1 - 1e-12)).all()


def test_oips_ignores_a_constant_component():
    state, batch, kernel = case(0, M=0)
    constant = gpytorch.kernels.ConstantKernel().double()
    constant.constant = torch.tensor(50.0, dtype=torch.float64)
    total = (kernel + constant).requires_grad_(False)
    got = OIPS(0.9).select(state, batch, total)
    assert got.entered.tolist() == OIPS(0.9).select(state, batch, kernel).entered.tolist()
    assert isinstance(total.kernels[1], gpytorch.kernels.ConstantKernel)


def test_ties_go_to_the_lowest_index():
    # a symmetric grid: mathematically tied variances differ by rounding only
    kernel = se_kernel(1.0, (0.4,))
    X = torch.linspace(-1, 1, 9).double().unsqueeze(-1)
    batch = type(data(1))(X, torch.sin(X[:, 0] * 9), torch.full((9,), 1e-3).double())
    order = ConditionalVariance(1e-9).select(start(batch), batch, kernel).entered.tolist()
    assert order[:2] == [0, 8]
    mirrored = ConditionalVariance(1e-9, max_points=4).select(start(batch), batch, kernel)
    assert mirrored.entered.tolist() == order[:4] == [0, 8, 4, 2]


def test_gradient_moves_points_up_the_bound():
    state, batch, kernel = case(3)
    greedy = FixedSize(8).select(state, batch, kernel)
    moved = FixedSize(8, "gradient").select(state, batch, kernel)
    assert moved.free is not None and moved.free.shape == (8, 2)
    a, b = (float(selected_update(state, batch, kernel, s).bound) for s in (greedy, moved))
    assert a < b <= float(optimal_bound(state, batch, kernel))


def test_fixed_grid_and_prescribed_recognise_points_they_know():
    state, batch, kernel = case(0)
    free = torch.tensor([[3.0, 3.0]]).double()
    Z = torch.cat([batch.X[[4]], state.Z[[5, 2]], free, batch.X[[1]]])
    for policy in (FixedGrid(Z), Prescribed([Z])):
        got = policy.select(state, batch, kernel)
        assert (got.kept.tolist(), got.entered.tolist()) == ([2, 5], [4, 1])
        rows, old_index = inducing_points(state, batch, got)
        assert torch.equal(rows, torch.cat([state.Z[[2, 5]], batch.X[[4, 1]], free]))
        assert old_index.tolist() == [-1, -1, 0, -1, -1, 1]
    twice = type(batch)(batch.X[[4, 4]], batch.y[:2], batch.noise[:2])
    assert FixedGrid(Z).select(state, twice, kernel).entered.tolist() == [0]
    with pytest.raises(InputError, match="batch 1"):
        Prescribed([Z]).select(state, type(batch)(batch.X, batch.y, batch.noise, index=1), kernel)
    with pytest.raises(ShapeError, match="raise max_points"):
        FixedGrid(Z, max_points=3)


@pytest.mark.parametrize(("old", "new"), [([0, 0], []), ([6], []), ([], [30]), ([], [-1])])
def test_impossible_selections_are_refused(old, new):
    state, batch, kernel = case(0)
    with pytest.raises(InputError, match="distinct"):
        selected_update(state, batch, kernel, chosen(old, new))


def test_pruning_loses_what_it_says():
    state, batch, kernel = case(1, ls=0.2)
    out = selected_update(state, batch, kernel, chosen(range(6), range(10)))
    losses = drop_losses(out.state)
    for j in range(16):
        left = [i for i in range(16) if i != j]
        without = chosen([i for i in left if i < 6], [i - 6 for i in left if i >= 6])
        lost = float(out.bound - selected_update(state, batch, kernel, without).bound)
        assert float(losses[j]) == pytest.approx(lost, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(("inner", "tolerance"), [(VIPS(0.005), 0.05), ("prescribed", 5.0)])
def test_pruned_stays_within_its_budget_and_its_cap(inner, tolerance):
    state, batch, kernel = case(2)
    if inner == "prescribed":
        shuffled = torch.cat([batch.X[[9, 3]], state.Z[[4, 0, 1]], batch.X[[0, 6]] + 1e-3])
        inner = Prescribed([shuffled])
    full = selected_update(state, batch, kernel, inner.select(state, batch, kernel))
    thin = Pruned(inner, tolerance).select(state, batch, kernel)
    out = selected_update(state, batch, kernel, thin)
    assert 0.0 < float(full.bound - out.bound) <= tolerance * batch.size
    assert out.state.size < full.state.size
    rows = {tuple(z) for z in full.state.Z.tolist()}
    assert all(tuple(z) in rows for z in out.state.Z.tolist())
    capped = Pruned(inner, tolerance=0.0, max_points=3).select(state, batch, kernel)
    assert selected_update(state, batch, kernel, capped).state.size == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda cap: VIPS(1e-6, max_points=cap),
        lambda cap: VIPS(1e-6, "collapsed", max_points=cap),
        lambda cap: OIPS(0.999, max_points=cap),
        lambda cap: ConditionalVariance(1e-6, max_points=cap),
        lambda cap: FixedSize(20, max_points=cap),
        lambda cap: FixedSize(20, "gradient", steps=3, max_points=cap),
    ],
)
def test_caps_are_kept(make):
    state, batch, kernel = case(0)
    policy = make(9)
    assert isinstance(policy, GrowthPolicy)
    assert (
        selected_update(state, batch, kernel, policy.select(state, batch, kernel)).state.size == 9
    )
    with pytest.raises(InputError, match="max_points"):
        make(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: VIPS(0.0),
        lambda: VIPS(0.1, "best"),  # type: ignore[arg-type]
        lambda: OIPS(1.0),
        lambda: ConditionalVariance(-1.0),
        lambda: FixedSize(0),
        lambda: FixedSize(2.5),  # type: ignore[arg-type]
        lambda: FixedSize(3, "random"),  # type: ignore[arg-type]
        lambda: Pruned(VIPS(), tolerance=-1.0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("seed", range(3))
def test_covering_fills_its_cap_by_conditional_variance(seed):
    state, batch, kernel = case(seed)
    selection = Covering(15).select(state, batch, kernel)
    assert torch.equal(selection.kept, torch.arange(6))
    Z, entered = state.Z, []
    for _ in range(9):
        r = conditional_variances(kernel, batch.X, Z, 1.4)
        entered.append(int(r.argmax()))
        Z = torch.cat([Z, batch.X[entered[-1:]]])
    assert selection.entered.tolist() == entered


@pytest.mark.parametrize("again", [True, False])
def test_covering_chooses_again_once_a_point_is_worth_it(again):
    """At the cap, at four times the variance of the point that those before it told most of."""
    state, batch, kernel = case(0, M=20)
    limit = 4.0 * float(state.L.diagonal().square().min())
    r = conditional_variances(kernel, batch.X, state.Z, 1.4)
    i = int(r.argmax() if again else r.masked_fill(r > limit, 0.0).argmax())
    assert bool(r[i] > limit) == again and float(r[i]) > 0.1 * limit
    point = type(batch)(batch.X[i : i + 1], batch.y[i : i + 1], batch.noise[i : i + 1])
    selection = Covering(20).select(state, point, kernel)
    pool = torch.cat([state.Z, point.X])
    anew = GreedyVariance(kernel, pool, JITTER, pool[:0], pool.new_zeros(0, 0))
    anew.grow(20)
    chosen_anew = anew.chosen if again else range(20)
    assert selection.kept.tolist() == sorted(j for j in chosen_anew if j < 20)
    assert len(selection.entered) == again


def test_covering_refuses_what_is_no_number():
    for count in (0, 1.5, True):
        with pytest.raises(InputError):
            Covering(count)
