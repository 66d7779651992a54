"""What is kept at module level serves gradients, wherever it was first computed."""

from functools import _lru_cache_wrapper
from typing import Any

import pytest
import torch
from torch import Tensor

from acquisitions import refinement
from bo_stream.mathematics.autograd import lasting_property
from bo_stream.mathematics.sine_states import Frequencies, assembly_for

FREQUENCIES = Frequencies(2, 5, 0)


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = vars(value).values() if hasattr(value, "__dict__") else value
    parts = parts.values() if isinstance(parts, dict) else parts
    return [t for part in parts if isinstance(part, (Tensor, dict)) for t in tensors_in(part)]


@pytest.mark.parametrize(
    ("kept", "arguments"),
    [
        (assembly_for, (FREQUENCIES, 9, (0.3, 0.3), (0.0, 0.0), (1.0, 1.0), torch.device("cpu"))),
        (refinement._powers, (2, 2)),
        (refinement._derivatives, (2, 2)),
    ],
)
def test_caches_hold_no_tensors_of_inference_mode(kept: Any, arguments: Any) -> None:
    assert isinstance(kept, _lru_cache_wrapper)
    kept.cache_clear()
    with torch.inference_mode():
        made = kept(*arguments)
    found = tensors_in(made)
    assert found and not any(tensor.is_inference() for tensor in found)


def test_gradients_flow_through_a_lasting_property() -> None:
    class Twice:
        def __init__(self, x: Tensor) -> None:
            self.x = x

        @lasting_property
        def value(self) -> Tensor:
            return 2.0 * self.x

    x = torch.ones(3, requires_grad=True)
    (slope,) = torch.autograd.grad(Twice(x).value.sum(), x)
    assert torch.equal(slope, torch.full((3,), 2.0))
