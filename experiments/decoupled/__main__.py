"""Decoupled GPs beside the baselines of their papers: `python -m experiments.decoupled COMMAND`.

`sinc`: what decoupling is about, in one dimension, and what stochastic gradients make of it. `arm`:
the seven torques of a robot arm. `stream`: tables of more rows than the window holds. Those that
could always learn more have the first contender's seconds of processor time, batch by batch. Tables
are printed and written, pictures drawn, in the folder of the configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Choice,
    Config,
    Out,
    Smoke,
    begin,
    commands,
    read,
    selected,
    start,
)
from experiments.common.progress import say

SINC, ARM, STREAM = (CONFIGS / f"decoupled_{name}.toml" for name in ("sinc", "arm", "stream"))
SMOKE = {"tables": ["made up"], "outputs": [0], "seeds": [0, 1], "train": 120, "test": 60}
SMOKE |= {"first": 60, "batch": 30}
SMALL = {"points": 12, "mean_basis": 80, "covar_basis": 12, "window": 64, "m": 12, "steps": 2}
SMALL |= {"evaluations": 3}
"""Sizes in a smoke run."""


def sinc(config: Config = SINC, out: Out = None, smoke: Smoke = False) -> None:
    """A noisy sinc function: one basis for mean and covariance, two, and two by gradients."""
    c = read(config, SINC)
    if smoke:
        c |= {"rows": 60, "seeds": [0, 1], "steps": [1, 20, 60]}
    folder = begin(c["output"], out, smoke, c.get(TAKES))

    import torch

    from experiments.decoupled.pictures import draw_course, draw_laws
    from experiments.decoupled.toy import compared

    torch.set_num_threads(1)
    results, laws = compared(c)
    results.to_csv(folder / "results.csv", index=False)
    draw_laws(laws, folder / "laws.png")
    draw_course(results, folder / "course.png")
    last = results[results["step"] == results.groupby("method")["step"].transform("max")]
    table = last.groupby("method", sort=False)[["seconds", "mean_error", "deviation"]].mean()
    say("\nRMS distance from the exact mean in noise deviations, deviation over the exact one")
    say(table.to_string(float_format="{:.4f}".format))


def arm(
    config: Config = ARM, out: Out = None, smoke: Smoke = False, contender: Choice = None
) -> None:
    """Seven torques of a robot arm from 21 inputs, in batches."""
    _tables(config, ARM, out, smoke, contender)


def stream(
    config: Config = STREAM, out: Out = None, smoke: Smoke = False, contender: Choice = None
) -> None:
    """Tables of several windows of rows, in batches."""
    _tables(config, STREAM, out, smoke, contender)


def _tables(
    config: Path, default: Path, out: Path | None, smoke: bool, chosen: list[str] | None
) -> None:
    c = read(config, default)
    first = next(iter(c["contenders"]))
    names = selected(chosen, c["contenders"], "--contender")
    c["contenders"] = {k: c["contenders"][k] for k in dict.fromkeys([first, *names])}
    if smoke:
        c = _smaller(c) | SMOKE
    folder = begin(c["output"], out, smoke, c.get(TAKES))

    import torch

    from experiments.decoupled.course import followed
    from experiments.decoupled.pictures import draw_scores
    from experiments.decoupled.report import means, summary

    torch.set_num_threads(1)
    scores = followed(c, lambda frame: frame.to_csv(folder / "scores.csv", index=False))
    by_seed = means(scores)
    for name, part in by_seed.groupby("table", sort=False):
        draw_scores(part, folder, str(name))
    table = summary(by_seed, first)
    table.to_csv(folder / "table.csv", index=False)
    about = f"ratio: nMSE of {first} over this one's; gap: its NLPD less this one's"
    say(f"\nAt the end, means over outputs and seeds; {about}")
    say(table.to_string(index=False, float_format="{:.4f}".format))


def _smaller(c: Any) -> Any:
    """A configuration with small sizes wherever it has sizes."""
    if not isinstance(c, dict):
        return c
    return {k: min(v, SMALL[k]) if k in SMALL else _smaller(v) for k, v in c.items()}


app = commands(__doc__, sinc, arm, stream)

if __name__ == "__main__":
    start(app)
