"""What tests of samplers and nodes share: quick options, a spy, and a stubborn acquisition."""

from collections.abc import Callable
from typing import Any

from botorch.acquisition import AcquisitionFunction

from bo_stream import ExactGP
from bo_stream.campaign.effort import FitPolicy, Optimiser

QUICK: dict[str, Any] = {
    "surrogate": "exact",
    "optimiser": Optimiser(num_restarts=2, raw_samples=32, options={"maxiter": 3}),
    "fit": FitPolicy(then_every=5, max_evals=10, first_max_evals=10),
}


def counting(batches: list[int]) -> Callable[..., ExactGP]:
    """Builds surrogates that record the size of every batch they observe."""

    class Counting(ExactGP):
        def observe(self, X: Any, *rest: Any) -> Any:
            batches.append(len(X))
            return super().observe(X, *rest)

    return Counting


class Peak(AcquisitionFunction):
    """Highest in the middle of the box, whatever is known."""

    def forward(self, X: Any) -> Any:
        return -(X - self.model.bounds.mean(0)).square().sum((-1, -2))
