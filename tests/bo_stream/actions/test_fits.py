"""Fitting a CaGP: values of S and hyperparameters together, stages, refits, schedules."""

from dataclasses import replace

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.optim.fit import fit_gpytorch_mll_torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from bo_stream import CaGP
from bo_stream.actions import BlockSparse, ConjugateGradient
from bo_stream.base.fitting import fit_model
from bo_stream.surrogates.cagp import RELEARN
from tests.calls import failing
from tests.raw import RAW

ADAM = {"step_limit": 12}


def data(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = torch.sin(6 * X[:, :1]) + 0.05 * torch.randn(n, 1, generator=generator).double()
    return X, Y


def model(n=60, actions=None, **options):
    X, Y = data(n)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    return CaGP(X, Y, covar_module=kernel, actions=actions or BlockSparse(8), **{**RAW, **options})


def learning_due(m):
    return m.num_observed >= RELEARN * int(m.state.learned)


def learned(m):
    """As if learning the values of S had converged in the last fit."""
    m._note(state=replace(m.state, learned=m.state.fitted))


def test_joint_fit_beats_fixed_actions():
    fixed, joint = model(), model()
    fit_model(fixed)
    report = joint.fit(60)
    assert report.evaluations <= 60
    assert joint.log_evidence().item() > fixed.log_evidence().item() + 1.0
    columns = joint.S.gram(torch.ones(60).double()).diagonal()
    assert torch.allclose(columns, torch.ones(8).double())
    assert abs(report.value - joint.make_mll()().item()) < 1e-6 * abs(report.value)


def test_rows_are_divided_anew_by_learned_lengthscales():
    m = model()
    m.fit(60)
    across = [m.state.rows.X[m.state.S.block == b].var(0) for b in range(8)]
    mean = torch.stack(across).mean(0)
    assert mean[0] < 0.3 * mean[1]  # the second input does not matter: blocks are long in it


def test_a_later_fit_keeps_the_actions_until_the_data_have_grown_by_a_quarter():
    m = model()
    m.fit(60)
    learned(m)
    kept = m.state.S.block.clone()
    m.observe(*data(1, seed=3))
    assert m.fit().evaluations < 20
    assert torch.equal(m.state.S.block[:60], kept)
    m.observe(*data(13, seed=4))  # 74 points
    assert not learning_due(m)
    m.observe(*data(1, seed=5))
    assert learning_due(m)
    m.fit(30)
    assert m.num_actions == 8


def test_values_merged_by_compression_are_learned_again():
    m = model()
    m.fit(60)
    learned(m)
    m.observe(*data(14, seed=3))
    assert m.num_actions <= 10 and not learning_due(m)
    m.fit()
    m.observe(*data(1, seed=4))
    assert learning_due(m)  # a fit that kept S does not count
    before, merged = m.log_evidence().item(), m.state.S.values.clone()
    m.fit()
    assert m.log_evidence().item() > before and not torch.allclose(m.state.S.values, merged)


@pytest.mark.slow
def test_a_stream_is_not_held_in_the_hyperparameters_its_actions_were_merged_under():
    """Noise only at first: a stream must find the signal that more data show, as a batch does."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(160, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(160, 1, generator=generator, dtype=torch.float64)
    Y = torch.where(torch.arange(160)[:, None] < 40, 0.0, 2.0) * (9 * X).sin() + noise

    def start(n):
        kernel = ScaleKernel(RBFKernel(ard_num_dims=1))
        return CaGP(X[:n], Y[:n], covar_module=kernel, actions=BlockSparse(16), **RAW)

    stream, batch = start(10), start(160)
    for first in range(10, 160, 30):
        stream.fit()
        stream.observe(X[first : first + 30], Y[first : first + 30])
    stream.fit()
    batch.fit()
    assert stream.log_evidence().item() > batch.log_evidence().item() - 5.0


def test_a_fit_that_ends_lower_goes_back():
    m = CaGP(*data(60), actions=BlockSparse(8), **RAW)
    m.fit(200)
    before, values = m.make_mll()().item(), m.state.S.values
    m._note(state=replace(m.state, learned=0 * m.state.fitted))
    report = m.fit(10)
    assert torch.equal(m.state.S.values, values)
    assert report.value == pytest.approx(before) == m.make_mll()().item()


def test_an_interrupted_fit_loses_nothing():
    """Ctrl-C when rows are to be divided again."""
    m = model()
    m.fit(60)
    m.observe(*data(20, seed=3))
    learned_values, before = m.state.S.values.clone(), m.make_mll()().item()
    with failing(BlockSparse.build, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        m.fit(60)
    assert m.make_mll()().item() >= before - 1e-9
    assert torch.equal(m.state.S.values, learned_values) and not m.training


def test_given_values_are_a_start_in_the_given_order():
    values = torch.linspace(1.0, 2.0, 60)
    m = model(actions=BlockSparse(8, values=values))
    assert m.state.S.block.tolist() == sorted(m.state.S.block.tolist())
    before = m.log_evidence().item()
    m.fit(20)
    assert m.state.S.block.tolist() == sorted(m.state.S.block.tolist())
    assert m.log_evidence().item() > before


def test_an_optimizer_of_the_user_keeps_the_actions():
    m = model()
    before, values = m.log_evidence().item(), m.state.S.values.clone()
    fit_gpytorch_mll(m.make_mll(), optimizer=fit_gpytorch_mll_torch, optimizer_kwargs=ADAM)
    assert m.log_evidence().item() > before
    assert torch.equal(m.state.S.values, values) and not m.refit_due


def test_conjugate_gradients_fit_in_turns():
    m = model(actions=ConjugateGradient(8))
    before = m.log_evidence().item()
    report = m.fit()
    assert m.log_evidence().item() > before
    assert abs(report.value - m.make_mll()().item()) < 1e-8 * abs(report.value)


def test_refits_come_with_growth_and_with_surprise():
    m = model(40)
    assert m.refit_due  # never fitted
    m.fit()
    assert not m.refit_due
    for seed in range(19):
        m.observe(*data(1, seed=100 + seed))
        assert not m.refit_due
    m.observe(*data(1, seed=200))
    assert m.refit_due
    m.fit()
    assert not m.refit_due
    X, Y = data(6, seed=300)
    m.observe(X, Y + 2.0)
    assert m.refit_due
