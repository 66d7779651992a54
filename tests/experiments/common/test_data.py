"""Tables split into training and test rows."""

import torch

from experiments.common.data import TableSplit, waves


def test_a_split_is_standardised_and_shares_no_row() -> None:
    split = TableSplit.standardised(*waves(600, 20), 400, 100, 1)
    assert len(split.X) == 400 and len(split.X_test) == 100
    assert torch.allclose(split.X.mean(0), torch.zeros(20).double(), atol=1e-9)
    assert torch.allclose(split.Y.std(0), torch.ones(1).double())
    assert len(torch.cat([split.X, split.X_test]).unique(dim=0)) == 500


def test_a_sorted_split_shares_no_row() -> None:
    split = TableSplit.sorted(*waves(160, 3), 0.9, 3)
    assert len(split.X) == 144 and len(split.X_test) == 16
    assert bool((split.X[1:, 0] >= split.X[:-1, 0]).all())
    assert len(torch.cat([split.X, split.X_test]).unique(dim=0)) == 160
