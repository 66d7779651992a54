"""Seconds of each part of a step against the number of points seen.

Run `python -m experiments.cost` (or name a configuration like experiments/configs/cost.toml). Every
surrogate observes n points first; then one point observed, the posterior at some points, one
evaluation of a fit with its gradient and one acquisition step are timed, and so is one 1,000 x
1,000 Cholesky factorisation in the same process, the unit c. Prints medians of repetitions in
seconds and in c, and writes them with a picture for each number of inputs to the config's folder;
`python -m experiments.report FOLDER` draws them too. With `--workers 1`, timings do not share the
machine.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.cost.study", CONFIGS / "cost.toml", __doc__)

if __name__ == "__main__":
    start(app)
