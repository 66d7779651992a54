"""Points that a surrogate takes."""

import pytest
import torch

from bo_stream.base.units import SLACK, check_points
from bo_stream.errors import BoundsError

BOUNDS = torch.tensor([[-1.0, 2.0], [1.0, 10.0]], dtype=torch.float64)
WIDTH = BOUNDS[1] - BOUNDS[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("k", [0, 1])
def test_up_to_the_slack_beyond_a_bound(k: int, end: int, dtype: torch.dtype) -> None:
    X = BOUNDS.mean(0).repeat(3, 2, 1)
    away = SLACK * WIDTH[k] * (1.0 if end else -1.0)
    X[1, 0, k] = BOUNDS[end, k] + 0.9 * away
    check_points(X.to(dtype), 2, BOUNDS)
    X[1, 0, k] = BOUNDS[end, k] + 1.1 * away
    with pytest.raises(BoundsError, match="1 outside"):
        check_points(X.to(dtype), 2, BOUNDS)
