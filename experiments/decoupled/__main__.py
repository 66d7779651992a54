"""Decoupled GPs beside the baselines of their papers: `python -m experiments.decoupled COMMAND`.

`sinc`: what decoupling is about, in one dimension, and what stochastic gradients make of it. `arm`:
the seven torques of a robot arm. `stream`: tables of more rows than the window holds. Those that
could always learn more have the first method's seconds of processor time, batch by batch. Tables
are printed and written, pictures drawn, in the folder of the configuration.
"""

from pathlib import Path
from typing import Any

from experiments.common.along import draw_along
from experiments.common.command import CONFIGS, commands, configured, start
from experiments.common.data import MADE_UP
from experiments.common.progress import say
from experiments.decoupled.pictures import draw_learning, draw_scores
from experiments.decoupled.streams import followed, means, summary
from experiments.decoupled.toy import by_step, compared

SMALLER: dict[str, Any] = {"table": [{"name": MADE_UP}], "seeds": [0, 1], "train": 120, "test": 60}
SMALLER |= {"first": 60, "batch": 30, "times": 0.2}


def sinc(c: dict[str, Any], folder: Path) -> None:
    """A noisy sinc function: one basis for mean and covariance, two, and two by gradients."""
    results, along = compared(c)
    results.to_csv(folder / "results.csv", index=False)
    draw_along(along, folder / "predictions.png")
    draw_learning(results, folder / "learning.png")
    table = by_step(results)
    table.to_csv(folder / "table.csv", index=False)
    say("\nRMS distance from the exact mean in noise deviations, deviation over the exact one")
    say(table.to_string(index=False, float_format="{:.4f}".format))


def arm(c: dict[str, Any], folder: Path) -> None:
    """Seven torques of a robot arm from 21 inputs, in batches."""
    stream(c, folder)


def stream(c: dict[str, Any], folder: Path) -> None:
    """Tables of several windows of rows, in batches."""
    first = next(iter(c["contenders"]))
    by_seed = means(followed(c, lambda rows: rows.to_csv(folder / "scores.csv", index=False)))
    for name, part in by_seed.groupby("table", sort=False):
        draw_scores(part, folder, str(name))
    table = summary(by_seed, first)
    table.to_csv(folder / "table.csv", index=False)
    about = f"ratio: nMSE of {first} over this one's; gap: its NLPD less this one's"
    say(f"\nAt the end, means over outputs and seeds; {about}")
    say(table.to_string(index=False, float_format="{:.4f}".format))


sizes = {"rows": 60, "seeds": [0, 1], "steps": [1, 20, 60]}
app = commands(
    __doc__,
    configured(sinc, CONFIGS / "decoupled_sinc.toml", sizes),
    configured(arm, CONFIGS / "decoupled_arm.toml", SMALLER),
    configured(stream, CONFIGS / "decoupled_stream.toml", SMALLER),
)

if __name__ == "__main__":
    start(app)
