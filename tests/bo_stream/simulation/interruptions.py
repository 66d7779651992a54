"""Small runs, and ways to interrupt them: a method once, or any line of the campaign's code."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from torch import Tensor

import bo_stream.campaign
from acquisitions import PoolPolicy
from bo_stream import surrogate
from bo_stream.simulation import BOLoop, FitPolicy, LoopConfig, PoolConfig, PoolLoop

FOLDER = str(Path(bo_stream.campaign.__file__).parent)
SETTINGS = LoopConfig(
    steps=2,
    q=1,
    num_initial=5,
    num_restarts=2,
    raw_samples=16,
    recommend_every=2,
    fit=FitPolicy(max_evals=2, first_max_evals=5),
)
OPTIONS: dict[str, dict[str, int]] = {
    "wiski": {"grid_size": 12},
    "hsgp": {"num_features": 12},
    "node_wiski": {"cap": 6},
    "exact": {},
    "online_sgpr": {},
    "online_svgp": {"num_inducing": 5, "initial_steps": 5},
    "svdgp": {"window": 4, "covar_basis": 5, "slack": 1},
    "cagp": {},
}


class Bowl:
    """Noisy, its maximum at 0.3; counts what it is asked; may have a part without values."""

    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    optimal_value = 2.0

    def __init__(self, nothing_below: float = -1.0) -> None:
        self.nothing_below = nothing_below
        self.truth_is_known = self.reachable = True
        self.spoiled: Callable[[Tensor], Tensor] | None = None
        self.asked: list[Tensor] = []
        self.answered: list[Tensor] = []

    def evaluate_true(self, X: Tensor) -> Tensor:
        if not self.truth_is_known:
            raise RuntimeError("no truth today")
        return 2.0 - 10.0 * (X - 0.3).square()

    def __call__(self, X: Tensor) -> Tensor:
        if not self.reachable:
            raise ConnectionError
        Y = 2.0 - 10.0 * (X - 0.3).square() + 0.1 * torch.randn(len(X), 1, dtype=torch.float64)
        self.asked.append(X)
        self.answered.append(Y.masked_fill(self.nothing_below > X, torch.nan))
        return self.answered[-1] if self.spoiled is None else self.spoiled(self.answered[-1])


def ucb(model: Any, **kw: object) -> UpperConfidenceBound:
    return UpperConfidenceBound(model, beta=4.0)


class Once:
    """A method that is interrupted in one of its calls, before or after it does its work."""

    def __init__(self, method: Callable[..., Any], call: int, after: bool) -> None:
        self.method, self.left, self.after = method, call, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        result = self.method(*args, **kwargs)
        if self.left == 0:
            raise KeyboardInterrupt
        return result


class Line:
    """A trace function that counts the lines run in one folder and interrupts at one of them."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.count = at, 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.line if frame.f_code.co_filename.startswith(FOLDER) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self.line

    def run(self, work: Callable[[], Any]) -> bool:
        """Whether the work was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            torch.set_grad_enabled(True)  # an interrupted `with` may not have come to its exit
        return False


def untimed(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=[name for name in table if str(name).endswith("_seconds")])


def same(run: BOLoop | PoolLoop, undisturbed: pd.DataFrame, **tolerance: Any) -> None:
    options = tolerance or {"check_exact": True}
    pd.testing.assert_frame_equal(untimed(run.run()), untimed(undisturbed), **options)


def loop(
    problem: Bowl,
    family: str = "wiski",
    method: str = "",
    call: int = 1,
    after: bool = False,
    settings: LoopConfig = SETTINGS,
) -> BOLoop:
    """A loop, a method of whose surrogate may be interrupted at one of its calls."""

    def make(*args: Any, **kwargs: Any) -> Any:
        options = OPTIONS.get(family, {})
        model = surrogate(family, *args, **kwargs, **options)
        if method and hook:
            setattr(model, method, Once(getattr(model, method), hook.pop(), after))
        return model

    hook = [call]
    return BOLoop(problem, make, ucb, settings)


def campaign(
    cells: Any, method: str = "", call: int = 1, after: bool = False, **changes: Any
) -> PoolLoop:
    """A campaign, a method of whose surrogate may be interrupted at one of its calls."""

    def make(*args: Any, **kwargs: Any) -> Any:
        model = surrogate("wiski", *args, **kwargs, grid_size=8)
        if method and hook:
            setattr(model, method, Once(getattr(model, method), hook.pop(), after))
        return model

    hook = [call]
    settings = {"steps": 2, "q": 3, "num_test": 20, "clip_from": 10, "clip": 1.0}
    fit = FitPolicy(max_evals=2, first_max_evals=5)
    config = PoolConfig(**{**settings, "fit": fit, **changes})
    return PoolLoop(cells, make, PoolPolicy("random"), config)
