"""Optimisation runs summed up: medians at the end, differences in pairs."""

import numpy as np
import pandas as pd
import pytest

from experiments.common.summary import paired, summary


def test_the_summary_takes_medians_of_the_last_steps() -> None:
    def table(label: str, regret: float) -> pd.DataFrame:
        steps = range(31)
        columns = ["n", "bytes", "wallclock_seconds", "fit_evaluations", "log_predictive"]
        times = ["step_seconds", "fit_seconds", "acquisition_seconds", "update_seconds"]
        return pd.DataFrame(
            {
                "step": steps,
                **{name: [float(s) for s in steps] for name in (*columns, *times)},
                "simple_regret": 100.0,
                "inference_regret": [50.0] * 11 + [regret] * 20,
                "surrogate": label,
            }
        )

    out = summary([table("a", 1.0), table("b", 2.0), table("a", 3.0)], batch=3).set_index(
        "surrogate"
    )
    assert out.index.tolist() == ["a", "b"]
    assert out["seeds"].tolist() == [2, 1]
    assert out["inference regret"].tolist() == [2.0, 2.0]
    assert out["s/step"].tolist() == [20.5, 20.5]
    assert out["log density/point"].tolist() == [20.5 / 3, 20.5 / 3]
    assert out["total s"].tolist() == [30.0, 30.0]
    of_unequal_length = summary([table("a", 1.0), table("a", 5.0).tail(5)], batch=3)
    assert of_unequal_length["inference regret"].tolist() == [3.0]  # each run counts once


def test_differences_are_paired_by_seed() -> None:
    def table(label: str, seed: int, regrets: list[float]) -> pd.DataFrame:
        columns = {"step": range(len(regrets)), "inference_regret": regrets}
        return pd.DataFrame(columns | {"surrogate": label, "seed": seed})

    tables = [table("a", s, [9.0] * 18 + [1.0 + s, 2.0 * (1 + s)]) for s in range(4)]
    tables += [table("b", s, [3.0] * 18 + [1.0 + s, 1.0 + s]) for s in reversed(range(3))]
    tables += [table("b", 3, [3.0] * 10)]  # shorter: compared where both have been
    out = paired(tables).set_index("at")
    assert out["pair"].unique().tolist() == ["a - b"] and out["seeds"].tolist() == [4, 4]
    assert out.loc["last step", "median"] == pytest.approx(np.log(2.0))
    assert out.loc["last tenth", "median"] == pytest.approx(0.5 * np.log(2.0))
    assert bool((out["low"] <= out["median"]).all() and (out["median"] <= out["high"]).all())
