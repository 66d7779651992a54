"""The bookkeeping between fits."""

import torch

from bo_stream.actions.history import FitHistory
from bo_stream.base.fitting.schedule import RefitSchedule


def test_growth_counts_from_each_kind_of_fit():
    h = FitHistory.empty()
    assert h.repartition_due(1) and h.learning_due(1)
    h = h.ended(100, repartitioned=True, learned=True)
    assert not h.learning_due(124) and h.learning_due(125)
    assert not h.repartition_due(149) and h.repartition_due(150)
    h = h.ended(130)  # hyperparameters alone: neither counts
    assert h.learning_due(130) and h.repartition_due(150)
    assert h.ended(140, learned=False).learning_due(140)  # cut short: again


def test_surprise_is_summed_until_a_fit():
    schedule, h = RefitSchedule(growth=1.5, surprise=4.0), FitHistory.empty()
    assert h.refit_due(schedule, 10)
    h = h.ended(100).surprised(torch.full((10,), 1.0).double())
    assert not h.refit_due(schedule, 110)
    h = h.surprised(torch.full((10,), 3.0).double())
    assert int(h.residuals) == 20 and float(h.chi_square) == 100.0
    assert h.refit_due(schedule, 120)
    assert not h.ended(120).refit_due(schedule, 121)


def test_the_start_is_that_of_the_first_fit():
    h = FitHistory.empty().begun(torch.ones(3).double()).begun(torch.zeros(3).double())
    assert h.start.tolist() == [0.0] * 3  # the first attempt was not ended
    assert h.ended(5).begun(torch.ones(3).double()).start.tolist() == [0.0] * 3
